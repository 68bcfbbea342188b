"""MultiView: m transforms of each image, through a real DataLoader into a method."""

from __future__ import annotations

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision
from coterie.errors import InputError


class Pictures:
    """Eight grey PIL images, each of its own level."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (12, 12), (index * 30,) * 3), index % 2


def noisy(image: Tensor) -> Tensor:
    return image + torch.rand(())


def test_each_view_is_a_transform_of_the_same_image_with_draws_of_its_own() -> None:
    images, labels = torch.arange(6.0).view(6, 1, 1, 1) * 10, torch.arange(6)
    loader = DataLoader(coterie.MultiView(TensorDataset(images, labels), noisy, views=3), batch_size=4)
    views, batch_labels = next(iter(loader))
    assert len(views) == 3 and batch_labels.tolist() == [0, 1, 2, 3]
    for view in views:
        assert view.shape == (4, 1, 1, 1)
        assert torch.equal(view.floor(), images[:4])  # the draw is below 1
    assert not torch.equal(views[0], views[1]) and not torch.equal(views[1], views[2])


@pytest.mark.parametrize("kind", ["torchvision v1", "torchvision v2", "timm"])
def test_pil_images_through_transforms_of_others(kind: str) -> None:
    if kind == "timm":
        from timm.data import create_transform

        transform = create_transform(8, is_training=True)
    elif kind == "torchvision v1":
        transforms = import_torchvision("torchvision.transforms")
        transform = transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()])
    else:
        v2 = import_torchvision("torchvision.transforms.v2")
        transform = v2.Compose([v2.RandomCrop(8), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    dataset = coterie.MultiView(Pictures(), transform, views=2)
    views, labels = next(iter(DataLoader(dataset, batch_size=8, collate_fn=dataset.collate)))
    assert isinstance(views, list) and [view.shape for view in views] == [(8, 3, 8, 8)] * 2
    assert len(dataset) == 8 and labels.tolist() == [0, 1] * 4


def test_a_method_tells_how_many_views_it_takes() -> None:
    def network() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        )

    net = coterie.PeerNet(network, peers=3, example=torch.randn(2, 1, 2, 2))
    method = coterie.PCL(net)
    pairs = TensorDataset(torch.randn(6, 1, 2, 2), torch.tensor([0, 1] * 3))
    views, labels = next(iter(DataLoader(coterie.MultiView(pairs, noisy, method), batch_size=6)))
    assert len(views) == method.views == 3
    assert method(views, labels, 0.0)["loss"].isfinite()


def test_refusals() -> None:
    pairs = TensorDataset(torch.zeros(2, 1), torch.zeros(2))
    for views, sentence in ((0, "at least 1"), ("many", "a number or a method"), (True, "a number or a method")):
        with pytest.raises(InputError, match=sentence):
            coterie.MultiView(pairs, noisy, views)
    with pytest.raises(InputError, match="must be callable"):
        coterie.MultiView(pairs, None, 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="items \\(image, label\\)"):
        coterie.MultiView(TensorDataset(torch.zeros(2, 1)), noisy, 2)[0]
