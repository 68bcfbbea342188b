"""Train with PCL in a plain PyTorch loop: mixed precision, accumulation, clipping, several processes, resume.

    python examples/plain_pytorch.py
    torchrun --nproc-per-node 2 examples/plain_pytorch.py

The same command again continues from `plain.pt`; `--stop 2` ends after two epochs, as if the job had been killed.
Trains on the digits that ship with scikit-learn, for a few seconds.
"""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import coterie

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
DEVICE = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu")
FORMAT = torch.float16 if DEVICE.type == "cuda" else torch.bfloat16
CHECKPOINT = Path("plain.pt")
ACCUMULATE = 2  # batches for each optimiser step


class Net(nn.Module):
    """Any network of yours."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.high(self.low(x)).mean((2, 3)))


def shift(image: Tensor) -> Tensor:
    """Move an image by up to one pixel: in place of your augmentation, of torchvision or of timm."""
    row, column = torch.randint(3, (2,)).tolist()
    return nn.functional.pad(image, (1, 1, 1, 1))[:, row : row + 8, column : column + 8]


def train(model: nn.Module, loader: DataLoader, optimizer: Optimizer, scaler: GradScaler, epoch: int) -> None:
    """Train for one epoch."""
    for number, (views, labels) in enumerate(loader, 1):
        full = number % ACCUMULATE == 0 or number == len(loader)
        with model.no_sync() if isinstance(model, DistributedDataParallel) and not full else nullcontext():
            with torch.autocast(DEVICE.type, FORMAT):
                terms = model([view.to(DEVICE) for view in views], labels.to(DEVICE), epoch)
            scaler.scale(terms["loss"] / ACCUMULATE).backward()
        if full:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def main(epochs: int, stop: int) -> None:
    """Train, save after every epoch, and print the error of the network to deploy."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train_set = coterie.MultiView(TensorDataset(images[:1200], labels[:1200]), shift, views="PCL", peers=3)
    sampler: DistributedSampler = DistributedSampler(train_set, WORLD, RANK)
    loader = DataLoader(train_set, batch_size=24 // WORLD, sampler=sampler)

    torch.manual_seed(0)
    net = coterie.PeerNet(Net, peers=3, cut="high", example=images[:2])
    method = coterie.PCL(net, ramp_up=0.27 * epochs, beta=0.95).to(DEVICE)
    trained = [p for p in method.parameters() if p.requires_grad]  # the method's, not the net's
    optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    scaler = GradScaler(DEVICE.type, enabled=torch.float16 == FORMAT)
    # After every step that is taken: not after a part of a batch, nor when the scaler skips a step.
    optimizer.register_step_post_hook(lambda *_: method.after_step())

    parts: dict[str, Any] = {"method": method, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    state = torch.load(CHECKPOINT, DEVICE, weights_only=True) if CHECKPOINT.exists() else {"epochs": 0}
    for name, part in parts.items() if CHECKPOINT.exists() else ():
        part.load_state_dict(state[name])
    model = DistributedDataParallel(method) if WORLD > 1 else method
    for epoch in range(state["epochs"], min(epochs, stop)):
        torch.manual_seed(epoch * WORLD + RANK)  # a resumed run draws what an uninterrupted one draws
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, scaler, epoch)
        schedule.step()
        if RANK == 0:
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save(state | {"epochs": epoch + 1}, CHECKPOINT)

    # In all processes: one that ends right after its last exchange of gradients may be aborted in gloo's threads.
    student = method.deploy()  # a Net, with a Net's keys
    error = (student(images[1200:].to(DEVICE)).argmax(1).cpu() != labels[1200:]).float().mean()
    if RANK == 0:
        print(f"student {100 * error:.1f} % errors")
        torch.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--stop", type=int, default=10**6)
    if WORLD > 1:
        dist.init_process_group("nccl" if DEVICE.type == "cuda" else "gloo")
    main(**vars(parser.parse_args()))
    if WORLD > 1:
        dist.destroy_process_group()
