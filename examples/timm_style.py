"""Train a timm network with PCL as timm's scripts do: its Mixup, optimiser, scheduler and soft targets.

    python examples/timm_style.py

Trains on the digits that ship with scikit-learn, enlarged to 16x16, for some seconds.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision

import_torchvision("torchvision")  # timm imports it; this mends its CUDA wheel beside a CPU-only torch

import timm  # noqa: E402
from timm.data import Mixup  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import create_scheduler_v2  # noqa: E402


def make_model() -> nn.Module:
    """Build any network of timm; this one is small enough for a CPU."""
    return timm.create_model("test_resnet", num_classes=10, in_chans=1)


def shift(image: Tensor) -> Tensor:
    """Move an image by up to two pixels: in place of `timm.data.create_transform`, which takes PIL images."""
    row, column = torch.randint(5, (2,)).tolist()
    return nn.functional.pad(image, (2, 2, 2, 2))[:, row : row + 16, column : column + 16]


def mix(mixup: Mixup, views: list[Tensor], labels: Tensor) -> tuple[list[Tensor], Tensor]:
    """Mix all views of an image alike: for timm they are the channels of one image."""
    mixed, targets = mixup(torch.cat(views, dim=1), labels)
    return list(mixed.chunk(len(views), dim=1)), targets


def main(epochs: int) -> None:
    """Train and print the error of the network to deploy."""
    torch.manual_seed(0)
    np.random.seed(0)  # Mixup draws from NumPy
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = nn.functional.interpolate(images, scale_factor=2, mode="bilinear")
    labels = torch.tensor(digits.target)

    net = coterie.PeerNet(make_model, peers=3, cut="layer4", example=images[:2])
    method = coterie.PCL(net, ramp_up=0.27 * epochs, beta=0.9)
    train_set = coterie.MultiView(TensorDataset(images[:1200], labels[:1200]), shift, views=method)
    loader = DataLoader(train_set, batch_size=60, shuffle=True, drop_last=True)  # Mixup wants an even number
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, prob=0.5, label_smoothing=0.1, num_classes=10)
    # timm groups the parameters of the method, not of the net, and leaves out the averages, which are not trained.
    optimizer = create_optimizer_v2(method, opt="adamw", lr=8e-3, weight_decay=0.02)
    scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=epochs, warmup_epochs=1)

    for epoch in range(epochs):
        for views, targets in loader:
            views, targets = mix(mixup, views, targets)  # targets: probabilities (B, 10)
            terms = method(views, targets, epoch)
            terms["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            method.after_step()
        scheduler.step(epoch + 1)

    student = method.deploy()  # timm's class, timm's keys
    make_model().load_state_dict(student.state_dict())
    with torch.no_grad():
        error = (student(images[1200:]).argmax(1) != labels[1200:]).float().mean()
    print(f"student {100 * error:.1f} % errors, a {type(student).__name__}")
    torch.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    main(**vars(parser.parse_args()))
