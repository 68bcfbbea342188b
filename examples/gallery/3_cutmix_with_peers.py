"""CutMix with peers: the same box is pasted into every view, so that all peers have the same target.

You learn how to use CutMix in `coterie.train`, with `mix=`, and in your own loop, with `mix(views, labels)`.
"""

from statistics import mean

import torch
from contact_sheet import contact_sheet
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision

# Few digits, chosen as 1_digits.py says: the errors are an example, not evidence.
recipe = dict(model="resnet8", data="digits", data_options={"limit": 20}, epochs=40, batch=50, evaluate_every=4)
for method in ("Baseline", "PCL"):
    for name, mix in ((method, None), (f"{method} + CutMix", coterie.CutMix(probability=0.5))):
        runs = [coterie.train(method=method, mix=mix, seed=s, out=f"runs/{name}-{s}", **recipe) for s in range(3)]
        errors = ", ".join(f"{run.error:.2f}" for run in runs)
        print(f"{name:17}  {mean(run.error for run in runs):.2f} % errors, by seed {errors}")

torch.manual_seed(0)
crop = import_torchvision("torchvision.transforms").RandomCrop(8, padding=1)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
train_set = coterie.MultiView(TensorDataset(images, labels), crop, views="PCL", peers=3)
views, labels = next(iter(DataLoader(train_set, batch_size=6)))

# What a loop does in each step. Image numbers are mixed like a fourth view: they tell from which image a pixel is.
numbers = torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 1, 8, 8)
(*mixed, numbers), targets = coterie.CutMix(probability=1.0)([*views, numbers], labels, num_classes=10)
print(f"targets of the first image: {', '.join(f'{p:.2f} of {c}' for c, p in enumerate(targets[0]) if p)}")

shown = [(Image.fromarray((images[i, 0] * 255).byte().numpy()), f"image {i + 1}", "black") for i in range(6)]
for view in mixed:
    for i in range(6):
        partner = numbers[i, 0] != i
        red, green = view[i, 0], view[i, 0] * torch.where(partner, 0.6, 1.0)  # the pasted box is tinted
        pixels = torch.stack([red + 0.3 * partner, green, green]).clamp(0, 1)
        caption = ", ".join(f"{100 * p:.0f} % {c}" for c, p in enumerate(targets[i]) if p)
        shown.append((Image.fromarray((pixels * 255).byte().permute(1, 2, 0).numpy()), caption, "black"))
contact_sheet(shown, columns=6).save("mixed_views.png")
