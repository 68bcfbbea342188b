"""Train with PCL in a loop of Hugging Face Accelerate: accumulation, clipping, saving and loading the state.

    pip install -c constraints.txt -e ".[examples]"
    accelerate launch examples/accelerate_loop.py  # or: python examples/accelerate_loop.py

The same command again continues from the folder `accelerate`; `--stop 2` ends after two epochs, as if the job had
been killed. Trains on the digits that ship with scikit-learn, for a few seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import coterie

CHECKPOINT = Path("accelerate")


class Net(nn.Module):
    """Any network of yours."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.high(self.low(x)).mean((2, 3)))


class Progress:
    """The number of epochs trained: Accelerate saves whatever has a `state_dict`."""

    epochs = 0

    def state_dict(self) -> dict[str, int]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epochs = state["epochs"]


def shift(image: Tensor) -> Tensor:
    """Move an image by up to one pixel: in place of your augmentation, of torchvision or of timm."""
    row, column = torch.randint(3, (2,)).tolist()
    return nn.functional.pad(image, (1, 1, 1, 1))[:, row : row + 8, column : column + 8]


def main(epochs: int, stop: int) -> None:
    """Train, save after every epoch, and print the error of the network to deploy."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train_set = coterie.MultiView(TensorDataset(images[:1200], labels[:1200]), shift, views="PCL", peers=3)

    torch.manual_seed(0)
    seedable = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)  # the order follows from the epoch
    accelerator = Accelerator(gradient_accumulation_steps=2, dataloader_config=seedable)
    net = coterie.PeerNet(Net, peers=3, cut="high", example=images[:2])
    method = coterie.PCL(net, ramp_up=0.27 * epochs, beta=0.95)
    trained = [p for p in method.parameters() if p.requires_grad]  # the method's, not the net's
    optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    loader = DataLoader(train_set, batch_size=24, shuffle=True)
    model, optimizer, loader = accelerator.prepare(method, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if CHECKPOINT.exists():
        accelerator.load_state(str(CHECKPOINT))

    for epoch in range(progress.epochs, min(epochs, stop)):
        loader.set_epoch(epoch)
        for views, targets in loader:
            with accelerator.accumulate(model):
                terms = model(views, targets, epoch)
                accelerator.backward(terms["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and not optimizer.step_was_skipped:
                method.after_step()  # only after a real step
        progress.epochs = epoch + 1
        # Peers share modules, and the state holds a step counter: neither goes into a safetensors file.
        accelerator.save_state(str(CHECKPOINT), safe_serialization=False)

    student = method.deploy()  # a Net, with a Net's keys
    error = (student.cpu()(images[1200:]).argmax(1) != labels[1200:]).float().mean()
    accelerator.print(f"student {100 * error:.1f} % errors")
    accelerator.save_model(student, "student")  # an ordinary network: safetensors
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--stop", type=int, default=10**6)
    main(**vars(parser.parse_args()))
