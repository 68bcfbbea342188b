"""Lightning: a method inside a LightningModule, its averages updated after each step of the optimiser.

You learn the three lines that peers add to your module. The picture shows how the loss terms change.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision
from coterie.report.charts import Curve, line_chart
from coterie.report.picture import Panel, picture

transforms = import_torchvision("torchvision.transforms")  # its CUDA wheel, beside a CPU-only torch as well
try:
    import lightning as L
except ImportError:
    sys.exit('This script needs Lightning: pip install -c constraints.txt -e ".[examples]"')


def make_net() -> nn.Module:  # any network of yours
    low = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
    return nn.Sequential(low, high, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class PeerModule(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        net = coterie.PeerNet(make_net, peers=3, cut="1", example=torch.zeros(2, 1, 8, 8))
        self.method = coterie.PCL(net, ramp_up=6, beta=0.95)  # peers, averages, ensemble: Lightning saves them all
        self.history: list[dict[str, float]] = []

    def training_step(self, batch: tuple[list[Tensor], Tensor], batch_idx: int) -> Tensor:
        terms = self.method(*batch, self.current_epoch)
        self.history.append({name: value.item() for name, value in terms.items()})
        return terms["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [p for p in self.method.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        optimizer.register_step_post_hook(lambda *_: self.method.after_step())  # updates the averages
        return optimizer


torch.manual_seed(0)
augment = transforms.RandomCrop(8, padding=1)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
module = PeerModule()
train_set = coterie.MultiView(TensorDataset(images[:1200], labels[:1200]), augment, views=module.method)
trainer = L.Trainer(max_epochs=12, barebones=True, accelerator="cpu")
trainer.fit(module, DataLoader(train_set, batch_size=48, shuffle=True))
student = module.method.deploy()  # what make_net makes, with its keys
wrong = student(images[1200:]).argmax(1) != labels[1200:]
print(f"student {100 * wrong.float().mean():.2f} % errors after {len(module.history)} steps")
print("loss of the last step:", ", ".join(f"{name} {value:.3f}" for name, value in module.history[-1].items()))

steps, names = range(1, len(module.history) + 1), [name for name in module.history[0] if name != "loss"]
curves = [Curve(name, steps, [terms[name] for terms in module.history], colour=i) for i, name in enumerate(names)]
title = "PCL's loss terms in Lightning"
chart = Panel(line_chart(title, curves, "step", "loss term"))
Path("loss_terms.svg").write_text(picture(title, [chart], [(c.name, c.css) for c in curves]), encoding="utf-8")
