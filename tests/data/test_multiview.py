"""MultiView: m transforms of each image, through a real DataLoader into a method."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision
from coterie.errors import InputError
from coterie.methods import available
from tests.helpers.common import TinyNet


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
    for views, sentence in (
        (0, "at least 1"),
        ("many", "is a number, or a method"),
        (True, "is a number, or a method"),
    ):
        with pytest.raises(InputError, match=sentence):
            coterie.MultiView(pairs, noisy, views)
    with pytest.raises(InputError, match="must be callable"):
        coterie.MultiView(pairs, None, 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="items \\(image, label\\)"):
        coterie.MultiView(TensorDataset(torch.zeros(2, 1)), noisy, 2)[0]


@pytest.mark.parametrize(
    ("method", "peers", "count"),
    [
        ("PCL", 3, 3),
        ("PCL", 2, 2),
        ("KDCL", 4, 4),
        ("ONE", 3, 1),
        ("FFL", 3, 1),
        ("KD", 3, 1),
        ("OwnMean", 3, 2),
        (coterie.PCL, 4, 4),
        (partial(coterie.PCL, input_augmentation=False), 3, 1),
        (partial(coterie.Baseline, views=5), 3, 5),
    ],
)
def test_a_name_or_a_class_tells_how_many_views_a_method_takes(method: Any, peers: int, count: int) -> None:
    state = torch.get_rng_state()
    dataset = coterie.MultiView(TensorDataset(torch.zeros(2, 1), torch.zeros(2)), noisy, method, peers)
    assert dataset.views == count
    assert torch.equal(torch.get_rng_state(), state)  # asking draws nothing from the user's generator


def test_every_method_can_be_asked_by_name() -> None:
    pairs = TensorDataset(torch.zeros(2, 1), torch.zeros(2))
    for name, cls in available().items():
        assert coterie.MultiView(pairs, noisy, name).views == cls.view_count(3), name


def test_every_class_says_what_its_objects_take() -> None:
    for name, cls in available().items():
        cut = "stage3" if cls.trains == "branches" else None
        net = coterie.PeerNet(TinyNet, 1 if cls.trains == "one network" else 3, cut, torch.zeros(2, 3, 8, 8))
        options = {"teacher": "none"} if name == "KD" else {}
        assert cls(net, **options).views == cls.view_count(net.size, options), name  # type: ignore[call-arg]


@pytest.mark.parametrize("views", ["PLC", str, "Data", True, None])
def test_what_takes_no_views_is_refused(views: Any) -> None:
    pairs = TensorDataset(torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(InputError, match="`views` is a number, or a method or its class or name"):
        coterie.MultiView(pairs, noisy, views)


def draws(image: Tensor) -> Tensor:
    """The image, which is its own number, and a draw from each generator a transform may use."""
    return torch.tensor([float(image), torch.rand(()).item(), random.random(), np.random.rand()])


@pytest.mark.parametrize("workers", [0, 2])
def test_every_view_in_every_worker_has_draws_of_its_own(workers: int) -> None:
    numbers = torch.arange(16.0)
    dataset = coterie.MultiView(TensorDataset(numbers, numbers.long()), draws, "PCL")
    batches = list(DataLoader(dataset, batch_size=4, num_workers=workers))
    for views, labels in batches:
        assert isinstance(views, list) and all(torch.equal(view[:, 0].long(), labels) for view in views)
    drawn = torch.stack([view for views, _ in batches for view in views])[..., 1:].flatten(0, 1)  # (48, 3)
    for kind in range(3):
        assert len(drawn[:, kind].unique()) == 16 * 3


class Soft(Pictures):
    """Labels that are probabilities, or a dictionary."""

    def __init__(self, as_dictionary: bool) -> None:
        self.as_dictionary = as_dictionary

    def __getitem__(self, index: int) -> tuple[Image.Image, Any]:  # type: ignore[override]
        image, label = super().__getitem__(index)
        soft = torch.tensor([0.1, 0.9]).roll(label)
        return image, {"soft": soft, "number": label} if self.as_dictionary else soft


@pytest.mark.parametrize("collate", [None, coterie.MultiView.collate])
@pytest.mark.parametrize("as_dictionary", [False, True])
def test_labels_may_be_probabilities_or_a_dictionary(as_dictionary: bool, collate: Any) -> None:
    v2 = import_torchvision("torchvision.transforms.v2")
    transform = v2.Compose([v2.PILToTensor(), v2.RandomCrop(8), v2.ToDtype(torch.float32, scale=True)])
    dataset = coterie.MultiView(Soft(as_dictionary), transform, 2)
    views, labels = next(iter(DataLoader(dataset, batch_size=4, collate_fn=collate)))
    soft = labels["soft"] if as_dictionary else labels
    assert isinstance(views, list) and [view.shape for view in views] == [(4, 3, 8, 8)] * 2
    assert soft.shape == (4, 2) and (not as_dictionary or labels["number"].tolist() == [0, 1, 0, 1])


def test_images_of_torchvision_that_are_tensors_reach_a_method() -> None:
    """A v2 transform on uint8 tensors; the views train a method with soft labels."""
    v2 = import_torchvision("torchvision.transforms.v2")
    transform = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(6), v2.ToDtype(torch.float32, scale=True)])
    images = torch.randint(256, (8, 3, 8, 8), dtype=torch.uint8)
    soft = torch.rand(8, 5).softmax(1)
    net = coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 6, 6))
    method = coterie.PCL(net)
    views, labels = next(iter(DataLoader(coterie.MultiView(TensorDataset(images, soft), transform, "PCL"), 8)))
    assert method(views, labels, 0.0)["loss"].isfinite()
