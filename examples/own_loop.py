"""Your own network and your own training loop: peers, five lines of loop, and your network back.

    python examples/own_loop.py

Trains a small network of this file's on the digits that ship with scikit-learn, for a few seconds.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import coterie


class Net(nn.Module):
    """Any network will do; Coterie does not need to know it."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.high(self.low(x)).mean((2, 3)))


def jitter(x: Tensor) -> Tensor:
    """Your augmentation: here, a shift of up to one pixel for every image."""
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    rows, columns = torch.randint(3, (2, len(x), 1)) + torch.arange(8)
    return padded[torch.arange(len(x))[:, None, None], 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def main(epochs: int = 20) -> float:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = slice(0, 1200), slice(1200, None)

    net = coterie.PeerNet(Net, peers=3, cut="high", example=images[:2])
    method = coterie.PCL(net, temperature=3.0, ramp_up=0.27 * epochs, beta=0.95)
    optimizer = torch.optim.SGD(
        [p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    for epoch in range(epochs):
        for batch in torch.randperm(1200).split(64):
            views = [jitter(images[train][batch]) for _ in range(3)]
            terms = method(views, labels[train][batch], epoch)
            terms["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            method.after_step()

    student = method.deploy()  # a Net, with a Net's keys
    torch.save(student.state_dict(), "student.pt")
    plain = Net()
    plain.load_state_dict(torch.load("student.pt", weights_only=True), strict=True)
    with torch.no_grad():
        error = (plain.eval()(images[test]).argmax(1) != labels[test]).float().mean().item()
        ensemble = method.eval().predictors()["ensemble"]
        error_ensemble = (ensemble(images[test]).argmax(1) != labels[test]).float().mean().item()
    print(f"student {100 * error:.1f} % errors, ensemble {100 * error_ensemble:.1f} %")
    return error


if __name__ == "__main__":
    main()
