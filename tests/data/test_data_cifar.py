"""CIFAR's files: both layouts, damaged and hostile ones; the real release is `slow`."""

from __future__ import annotations

import hashlib
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.compat import import_torchvision
from coterie.data.cifar import Cifar, cifar100
from coterie.deploy.pictures import prepare_picture
from coterie.errors import InputError
from tests.helpers.common import refused, shared_data
from tests.helpers.photographs import small_photographs


def make_cifar(root: Path) -> type[Cifar]:
    """A CIFAR-100 of 20 and 10 images on disk in the binary layout; the class knows these files' checksums."""
    random = np.random.default_rng(0)
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    (folder / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)))
    digests = {}
    for name, count in (("train.bin", 20), ("test.bin", 10)):
        records = random.integers(0, 256, (count, 3074), dtype=np.uint8)
        records[:, 0], records[:, 1] = 1, np.arange(count) % 100
        (folder / name).write_bytes(records.tobytes())
        digests[name] = hashlib.sha1(records.tobytes()).hexdigest()

    class tiny(cifar100):
        files = digests

    return tiny


def make_python_release(binary: Path, folder: Path) -> dict[str, str]:
    """Write the same images in the python layout; return the MD5 of each file."""
    folder.mkdir(parents=True)
    names = (binary / "fine_label_names.txt").read_text().split()
    files = {"meta": {"fine_label_names": names}}
    for name in ("train", "test"):
        records = np.fromfile(binary / f"{name}.bin", np.uint8).reshape(-1, 3074)
        files[name] = {"data": records[:, 2:], "fine_labels": records[:, 1].tolist()}
    digests = {}
    for name, value in files.items():
        raw = pickle.dumps(value, protocol=2)
        (folder / name).write_bytes(raw)
        digests[name] = hashlib.md5(raw).hexdigest()
    return digests


@pytest.fixture
def python_release(tmp_path, monkeypatch):
    """The folder of a small python release, whose checksums torchvision takes for the official ones."""
    make_cifar(tmp_path / "made")
    folder = tmp_path / "data" / "cifar-100-python"
    digests = make_python_release(tmp_path / "made" / "cifar-100-binary", folder)
    release = import_torchvision("torchvision.datasets").CIFAR100
    monkeypatch.setattr(release, "train_list", [["train", digests["train"]]])
    monkeypatch.setattr(release, "test_list", [["test", digests["test"]]])
    monkeypatch.setattr(release, "meta", {**release.meta, "md5": digests["meta"]})
    return folder


def test_a_release_is_read_from_its_parent_or_itself(tmp_path):
    tiny = make_cifar(tmp_path)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (20, 3074), dtype=np.uint8)[:, 2:].reshape(20, 3, 32, 32)
    for root in (tmp_path, next(tmp_path.iterdir())):
        data = tiny(root=str(root), augment=[])
        data.load()
        assert data.classes[7] == "class7" and data.shape == (3, 32, 32)
        assert data.labels["train"].tolist() == list(range(20)) and data.test_size == 10
        view = data.views(np.arange(20), 1, 0, 0)[0][0].double()
        mean, std = (torch.tensor(v).view(3, 1, 1).double() for v in (data.mean, data.std))
        assert torch.allclose((view * std + mean) * 255, torch.from_numpy(pixels).double(), atol=1e-3)
    small = tiny(root=str(tmp_path), size=16)
    small.load()
    assert small.shape == (3, 16, 16) and small.padding == 2
    assert small.views(np.arange(3), 2, 0, 0)[0][1].shape == (3, 3, 16, 16)
    # A picture of the original size is prepared for deployment as training has seen it.
    whole = tiny(root=str(tmp_path))
    whole.load()
    prepared = [prepare_picture(whole.original(i, "test"), small.preprocessing()) for i in range(whole.test_size)]
    assert torch.equal(torch.stack(prepared), next(small.test_batches(100))[0])


def test_the_python_release_is_the_same_set(tmp_path, python_release):
    binary, folders = make_cifar(tmp_path / "binary"), (python_release.parent, python_release)
    expected = binary(root=str(tmp_path / "binary"))
    expected.load()
    for root in folders:
        data = cifar100(root=str(root))
        data.load()
        assert data.classes == expected.classes and data.fingerprint() == expected.fingerprint()
        assert data.labels["train"].tolist() == expected.labels["train"].tolist()
        for views, others in zip(
            data.views(np.arange(20), 2, 0, 0)[0], expected.views(np.arange(20), 2, 0, 0)[0], strict=True
        ):
            assert torch.equal(views, others)
        assert torch.equal(next(data.test_batches(10))[0], next(expected.test_batches(10))[0])


def test_a_changed_byte_is_refused(tmp_path):
    tiny = make_cifar(tmp_path)
    file = tmp_path / "cifar-100-binary" / "train.bin"
    for raw in (file.read_bytes()[:-1], file.read_bytes() + b"x", b"", b"\x01" + file.read_bytes()[1:-1] + b"x"):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=f"{file} is not the released file: its SHA1 differs; fetch it again"):
            tiny(root=str(tmp_path)).load()


class Hostile:
    def __reduce__(self):
        return (Path.touch, (Path("hostile-was-here"),))


@pytest.mark.parametrize("name", ["meta", "train", "test"])
def test_a_pickle_without_the_official_checksum_is_never_opened(python_release, monkeypatch, name):
    monkeypatch.chdir(python_release)
    file = python_release / name
    for raw in (pickle.dumps({"data": Hostile()}), file.read_bytes()[:-1], b""):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=f"{file} is not the released file: its MD5 differs; fetch it again"):
            cifar100(root=str(python_release)).load()
    assert not (python_release / "hostile-was-here").exists()
    file.unlink()
    if name != "meta":
        with pytest.raises(InputError, match=f"{file} is missing"):
            cifar100(root=str(python_release)).load()


def test_missing_files_say_what_to_do(tmp_path):
    message = refused("train", "--data", "cifar10", "--data.root", tmp_path / "no", "--out", tmp_path / "run")
    assert "coterie data cifar10" in message and "cifar-10-binary.tar.gz" in message
    assert not (tmp_path / "run").exists()
    tiny = make_cifar(tmp_path)
    (tmp_path / "cifar-100-binary" / "test.bin").unlink()
    with pytest.raises(InputError, match=r"test\.bin is missing"):
        tiny(root=str(tmp_path)).load()


def test_a_label_that_is_no_class_is_refused_even_with_the_right_checksum(tmp_path):
    tiny = make_cifar(tmp_path)
    file = tmp_path / "cifar-100-binary" / "train.bin"
    raw = bytearray(file.read_bytes())
    raw[3074 + 1] = 100
    file.write_bytes(raw)
    tiny.files = {**tiny.files, "train.bin": hashlib.sha1(raw).hexdigest()}
    with pytest.raises(InputError, match="The train set has a label 100, but there are only 100 classes"):
        tiny(root=str(tmp_path)).load()


def load_records(root: Path, names: bytes, raw: bytes) -> Cifar:
    """Load a CIFAR-100 whose two sets are the same records of 3,074 bytes."""
    folder = root / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_bytes(names)
    for file in ("train.bin", "test.bin"):
        (folder / file).write_bytes(raw)

    class part(cifar100):
        files = dict.fromkeys(["train.bin", "test.bin"], hashlib.sha1(raw).hexdigest())

    data = part(root=str(root))
    data.load()
    return data


def show_photographs(data: Cifar) -> bool:
    """Whether neighbouring pixels resemble each other, as they do only if rows and colours are in their place."""
    pixels = torch.cat([batch for batch, _ in data.test_batches(50)])
    across, down = pixels[..., 1:] - pixels[..., :-1], pixels[..., 1:, :] - pixels[..., :-1, :]
    return bool(max(across.abs().mean(), down.abs().mean()) < 0.5 * pixels.std())


def test_photographs_in_the_binary_layout(tmp_path):
    pixels = small_photographs(100)
    records = np.concatenate([np.tile(np.uint8([[1, 7]]), (100, 1)), pixels.reshape(100, -1)], axis=1)
    data = load_records(tmp_path, "\n".join(f"class{i}" for i in range(100)).encode(), records.tobytes())
    assert show_photographs(data) and data.labels["train"].tolist() == [7] * 100
    assert all((np.asarray(data.original(i, "test")) == pixels[i].transpose(1, 2, 0)).all() for i in range(100))


@pytest.mark.slow
def test_real_cifar100(tmp_path):
    """The first member of images in the shared release, read as our reader reads it."""
    with tarfile.open(shared_data("cifar-100-binary.tar.xz"), "r|xz") as tar:
        for member in tar:
            name = Path(member.name).name
            if name == "fine_label_names.txt":
                names = tar.extractfile(member).read()
            if name.endswith(".bin"):
                raw = tar.extractfile(member).read(100 * 3074)
                break
    data = load_records(tmp_path, names, raw)
    assert len(data.classes) == 100 and {"apple", "worm"} <= set(data.classes)
    pixels = torch.cat([batch for batch, _ in data.test_batches(50)])
    # Mean and deviation of 100 photographs are near those of the set.
    assert pixels.mean().abs() < 0.25 and 0.8 < pixels.std() < 1.2 and show_photographs(data)
