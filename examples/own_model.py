"""A network of your own as peers, on the command line and in Python.

    coterie cuts examples/own_model.py:make_model
    coterie train --method PCL --model examples/own_model.py:make_model --cut stage3 --data digits --out run

`make_model` takes `num_classes` and `in_channels` by name, so they are set from the data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import coterie


class OwnNet(nn.Module):
    """Any class of yours whose forward gives logits."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.stage1 = self._stage(in_channels, 16, 1)
        self.stage2 = self._stage(16, 32, 2)
        self.stage3 = self._stage(32, 64, 2)
        self.classifier = nn.Linear(64, num_classes)

    @staticmethod
    def _stage(inputs: int, width: int, stride: int) -> nn.Sequential:
        conv = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage3(self.stage2(self.stage1(x)))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


def make_model(num_classes: int = 10, in_channels: int = 3) -> OwnNet:
    return OwnNet(num_classes, in_channels)


def main() -> None:
    """A few steps on random images: your own loop, your own optimiser, and your own network back."""
    torch.manual_seed(0)
    net = coterie.PeerNet(make_model, peers=3, cut="stage3")
    method = coterie.PCL(net, beta=0.9)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    for step in range(5):
        views = [images + 0.1 * torch.randn_like(images) for _ in range(net.size)]  # your augmentation
        terms = method(views, labels, epoch=step)
        terms["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        print(f"step {step}: loss {terms['loss'].item():.3f}")
    student = method.deploy()
    make_model().load_state_dict(student.state_dict())  # the same class, the same keys
    print(f"deployed: {type(student).__name__}, {sum(p.numel() for p in student.parameters()):,} parameters")


if __name__ == "__main__":
    main()
