"""Train with PCL in PyTorch Lightning: a module around a method, and a callback that moves the averages.

    pip install -c constraints.txt -e ".[examples]"
    python examples/lightning_module.py

The same command again continues from `lightning/last.ckpt`; `--stop 2` ends after two epochs, as if the job had
been killed. Trains on the digits that ship with scikit-learn, for a few seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import coterie
from coterie.compat import import_torchvision

import_torchvision("torchvision")  # Lightning imports it; this mends its CUDA wheel beside a CPU-only torch

import lightning as L  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402


class Net(nn.Module):
    """Any network of yours."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.high(self.low(x)).mean((2, 3)))


class PeerModule(L.LightningModule):
    """A method in a LightningModule: its `state_dict`, which Lightning saves, holds peers, averages and heads."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        net = coterie.PeerNet(Net, peers=3, cut="high", example=torch.zeros(2, 1, 8, 8))
        self.method = coterie.PCL(net, ramp_up=0.27 * epochs, beta=0.95)
        self.epochs = epochs

    def on_train_epoch_start(self) -> None:
        """Seed every epoch, so that the views of a resumed run are those of an uninterrupted one."""
        torch.manual_seed(self.current_epoch * self.trainer.world_size + self.global_rank)

    def training_step(self, batch: tuple[list[Tensor], Tensor], batch_idx: int) -> Tensor:
        terms = self.method(*batch, self.current_epoch)
        self.log_dict(terms)
        return terms["loss"]

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.method.parameters() if p.requires_grad]  # the method's, not the net's
        optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)]


class AfterStep(L.Callback):
    """Call `after_step` after every step that the optimiser takes, however many batches it accumulates."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, PeerModule)
        after_step = pl_module.method.after_step
        self.hook = trainer.optimizers[0].register_step_post_hook(lambda *_: after_step())

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.hook.remove()


def shift(image: Tensor) -> Tensor:
    """Move an image by up to one pixel: in place of your augmentation, of torchvision or of timm."""
    row, column = torch.randint(3, (2,)).tolist()
    return nn.functional.pad(image, (1, 1, 1, 1))[:, row : row + 8, column : column + 8]


def main(epochs: int, stop: int) -> None:
    """Train, save after every epoch, and print the error of the network to deploy."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    module = PeerModule(epochs)
    train_set = coterie.MultiView(TensorDataset(images[:1200], labels[:1200]), shift, views=module.method)
    # The order of an epoch follows from its number, and the loader draws nothing itself: for an exact resume.
    sampler: DistributedSampler = DistributedSampler(train_set, num_replicas=1, rank=0)
    loader = DataLoader(train_set, batch_size=24, sampler=sampler, generator=torch.Generator())
    last = Path("lightning/last.ckpt")
    trainer = L.Trainer(
        max_epochs=min(epochs, stop),
        accumulate_grad_batches=2,
        gradient_clip_val=5.0,
        callbacks=[AfterStep(), ModelCheckpoint(last.parent, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader, ckpt_path=last if last.exists() else None)
    student = module.method.deploy()  # a Net, with a Net's keys
    wrong = student(images[1200:]).argmax(1) != labels[1200:]
    print(f"student {100 * wrong.float().mean():.1f} % errors after {trainer.global_step} steps")
    torch.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--stop", type=int, default=10**6)
    main(**vars(parser.parse_args()))
