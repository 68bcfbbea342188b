"""How fast views are made, as ratios measured in one run.

    python benchmarks/data_speed.py --cifar DIR --photos DIR [--out benchmarks/results/data_speed.json]

`--cifar` holds CIFAR-100, `--photos` a folder of `train/` and `val/`. Each pair is timed in turns, and the median
of the ratios counts: a machine busy with something else slows both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from coterie import PCL, PeerNet
from coterie.compat import import_torchvision
from coterie.data.batch import BatchRequest, normalise
from coterie.data.cifar import cifar100
from coterie.data.folder import folder
from coterie.data.rng import draws
from coterie.models import factory
from coterie.runs.directory import environment

VIEWS, BATCH, WORKERS = 3, 128, 2


class PerView(Dataset):
    """The usual way: open, decode and transform the image again for each view."""

    def __init__(self, opened: Callable[[int], Image.Image], size: int, transform: Callable) -> None:
        self.opened, self.size, self.transform = opened, size, transform

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [self.transform(self.opened(index)) for _ in range(VIEWS)]


def ratio(name: str, usual: Callable[[], int], ours: Callable[[], int], turns: int) -> dict[str, object]:
    """Images per second of both in turns (each returns how many it made), and the median of their ratios."""
    usual(), ours()  # start workers, fill caches
    rates = []
    for _ in range(turns):
        pair = []
        for run in (usual, ours):
            started = time.perf_counter()
            pair.append(run() / (time.perf_counter() - started))
        rates.append(pair)
    ratios = sorted(b / a for a, b in rates)
    result = {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "usual_images_per_second": statistics.median(a for a, _ in rates),
        "ours_images_per_second": statistics.median(b for _, b in rates),
    }
    print(name, json.dumps(result), flush=True)
    return result


def small_images(root: str, turns: int) -> dict[str, object]:
    """CIFAR's shape: all views by one indexing, against PIL and torchvision in a DataLoader."""
    v1 = import_torchvision("torchvision.transforms")
    data = cifar100(root=root)
    data.load()
    steps = [v1.RandomCrop(32, 4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(data.mean, data.std)]
    pixels = np.stack([np.asarray(data.original(i)) for i in range(5 * BATCH)])
    usual_set = PerView(lambda i: Image.fromarray(pixels[i]), len(pixels), v1.Compose(steps))
    loader = DataLoader(usual_set, BATCH, num_workers=WORKERS, persistent_workers=True)
    batches = [np.arange(i, i + BATCH) for i in range(0, 40 * BATCH, BATCH)]
    result = ratio(
        "small images",
        lambda: sum(len(views[0]) for views in loader),
        lambda: sum(len(labels) for _, labels in data.stream(batches, VIEWS, 0, 0)),
        turns,
    )
    method = PCL(PeerNet(factory("resnet32", 100, 3), VIEWS, "stage3", example=torch.randn(2, 3, 32, 32)))
    shares = []
    for _ in range(3):
        started = time.perf_counter()
        views, labels = data.views(batches[0], VIEWS, 0, 0)
        built = time.perf_counter()
        method(views, labels, 0)["loss"].backward()
        method.after_step()
        shares.append((built - started) / (time.perf_counter() - started))
    return {**result, "share_of_a_resnet32_pcl_step": statistics.median(shares)}


def before(data: cifar100, images: np.ndarray, seed: int, epoch: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Make views as up to commit c53d2cd: NumPy cuts them on the host from images and mirror images."""
    _, height, width = data.shape
    random, padding = draws(seed, epoch, images, VIEWS, 4), data.padding
    pixels = data.load_batch(BatchRequest("train", images)).pixels[0].numpy()
    padded = np.pad(pixels, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    flip = (random[..., 2] < 0.5).astype(np.int64)
    top, left = np.moveaxis((random[..., :2] * (2 * padding + 1)).astype(np.int64), -1, 0)
    left = np.where(flip, 2 * padding - left, left)
    mirrored = np.stack([padded, padded[..., ::-1]])
    crops = np.lib.stride_tricks.sliding_window_view(mirrored, (height, width), axis=(3, 4))
    views = crops.transpose(0, 1, 3, 4, 2, 5, 6)[flip, np.arange(len(images)), top, left]
    labels = torch.from_numpy(data.labels["train"][images])
    return list(normalise(torch.from_numpy(views), data.mean, data.std)), labels


def before_and_after(root: str, turns: int) -> dict[str, object]:
    """The views of sets in memory: cut by NumPy on the host, against cut by torch on the device, here the CPU."""
    data = cifar100(root=root)
    data.load()
    batches = [np.arange(i, i + BATCH) for i in range(0, 40 * BATCH, BATCH)]
    (old, _), (new, _) = before(data, batches[0], 0, 0), data.views(batches[0], VIEWS, 0, 0)
    assert all(map(torch.equal, old, new))
    result = ratio(
        "before and after",
        lambda: sum(len(before(data, images, 0, 0)[1]) for images in batches),
        lambda: sum(len(labels) for _, labels in data.stream(batches, VIEWS, 0, 0)),
        10 * turns,  # they are short
    )
    places = 3 * VIEWS * BATCH  # top, left and flip of each view; all are int64, as the images' numbers
    sent = {"floats_of_each_view": 4 * VIEWS * BATCH * int(np.prod(data.shape)), "numbers": 8 * (BATCH + places)}
    return {**result, "bytes_sent_to_a_gpu_per_batch": sent}


def photographs(root: Path, turns: int) -> dict[str, object]:
    """224 px: decode once and make the views, against loading the same file for each view."""
    v1 = import_torchvision("torchvision.transforms")
    data = folder(root=str(root), workers=WORKERS)
    data.load()
    steps = [
        v1.RandomResizedCrop(224),
        v1.RandomHorizontalFlip(),
        v1.ToTensor(),
        v1.Normalize(data.mean, data.std),
    ]
    count = min(256, data.train_size)
    opened = lambda i: Image.open(data.path("train", i)).convert("RGB")  # noqa: E731
    loader = DataLoader(
        PerView(opened, count, v1.Compose(steps)), 32, num_workers=WORKERS, persistent_workers=True
    )
    batches = [np.arange(i, min(i + 32, count)) for i in range(0, count, 32)]
    width, height = data.original(0).size
    result = ratio(
        f"photographs, the first {width}x{height}",
        lambda: sum(len(views[0]) for views in loader),
        lambda: sum(len(labels) for _, labels in data.stream(batches, VIEWS, 0, 0)),
        turns,
    )
    return {"first_image": [width, height], **result}


def memory(root: str) -> dict[str, float]:
    """Megabytes that one and two processes hold together beyond what they held before the set was loaded."""

    def hold(pipe: multiprocessing.connection.Connection) -> None:
        before = _proportional()
        data = cifar100(root=root)
        data.load()
        for start in range(0, 50000, 1000):  # touch every page
            data.views(np.arange(start, start + 1000), 1, 0, 0)
        pipe.send(None)
        pipe.recv()  # until all processes hold it
        pipe.send(_proportional() - before)

    peaks = {}
    context = multiprocessing.get_context("fork")
    for count in (1, 2):
        pipes = [context.Pipe() for _ in range(count)]
        processes = [context.Process(target=hold, args=(theirs,)) for _, theirs in pipes]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            ours.recv()
        for ours, _ in pipes:
            ours.send(None)
        peaks[f"{count}_processes"] = sum(ours.recv() for ours, _ in pipes)
    peaks["data_set"] = 60000 * 3074 / 2**20
    print("memory", json.dumps(peaks), flush=True)
    return peaks


def _proportional() -> float:
    """This process's share of resident memory (PSS: a page that two share counts half for each), in MB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def enlarged(root: Path, target: Path) -> Path:
    """The same photographs at 500x375, as most of ImageNet's are stored."""
    for file in sorted(root.glob("*/*/*"))[:320] + sorted(root.glob("val/*/*"))[:40]:
        place = target / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.open(file).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC).save(place, quality=90)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", required=True)
    parser.add_argument("--photos", required=True, type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "data_speed.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = environment(seed=0)
    for private in ("command", "directory", "host"):
        del about[private]
    result: dict[str, object] = {"environment": about, "memory_mb": memory(options.cifar)}
    result["before_and_after"] = before_and_after(options.cifar, options.turns)
    result["small_images"] = small_images(options.cifar, options.turns)
    result["photographs"] = photographs(options.photos, options.turns)
    with tempfile.TemporaryDirectory() as scratch:
        result["photographs_500x375"] = photographs(enlarged(options.photos, Path(scratch)), options.turns)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
