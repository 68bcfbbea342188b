"""CIFAR's files: both layouts, real ones where they are, damaged and hostile ones always."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.cifar import Cifar, cifar10, cifar100
from coterie.data.unpickle import unpickle
from coterie.deploy.images import prepare
from coterie.errors import InputError
from tests.helpers.common import refused, shared_data


class Python2(pickle._Pickler):
    """Writes byte strings as Python 2 did, in which the official files were made."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_string


def python2(value: object) -> bytes:
    stream = io.BytesIO()
    Python2(stream, protocol=2).dump(value)
    return stream.getvalue()


def make_cifar(root: Path, layout: str) -> type[Cifar]:
    """A CIFAR-100 of 20 and 10 images on disk; the class knows these files' checksums."""
    random = np.random.default_rng(0)
    records = {
        "train": random.integers(0, 256, (20, 3074), dtype=np.uint8),
        "test": random.integers(0, 256, (10, 3074), dtype=np.uint8),
    }
    for part in records.values():
        part[:, 0], part[:, 1] = 1, np.arange(len(part)) % 100

    class tiny(cifar100):
        per_file = {"train.bin": 20, "test.bin": 10}

    if layout == "binary":
        folder = root / "cifar-100-binary"
        folder.mkdir(parents=True)
        for name, part in records.items():
            (folder / f"{name}.bin").write_bytes(part.tobytes())
        (folder / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)))
        tiny.train_files = {"train.bin": hashlib.sha1(records["train"].tobytes()).hexdigest()}
        tiny.test_files = {"test.bin": hashlib.sha1(records["test"].tobytes()).hexdigest()}
    else:
        folder = root / "cifar-100-python"
        folder.mkdir(parents=True)
        digests = {}
        files = {name: {b"data": r[:, 2:], b"fine_labels": r[:, 1].tolist()} for name, r in records.items()}
        files["meta"] = {b"fine_label_names": [f"class{i}".encode() for i in range(100)]}
        for name, value in files.items():
            raw = python2(value)
            (folder / name).write_bytes(raw)
            digests[name] = hashlib.md5(raw).hexdigest()
        tiny.python_files = {name: digests[name] for name in ("train", "test")}
        tiny.python_meta = ("meta", digests["meta"], "fine_label_names")
    return tiny


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_both_layouts_read_alike_and_from_their_parent_or_themselves(tmp_path, layout):
    tiny = make_cifar(tmp_path, layout)
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
    prepared = [prepare(whole.original(i, "test"), small.preprocessing()) for i in range(whole.test_size)]
    assert torch.equal(torch.stack(prepared), next(small.test_batches(100))[0])


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_a_changed_byte_is_refused(tmp_path, layout):
    tiny = make_cifar(tmp_path, layout)
    file = next(tmp_path.glob("*/train*"))
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    with pytest.raises(InputError, match="differs"):
        tiny(root=str(tmp_path)).load()


def test_missing_files_say_what_to_do(tmp_path):
    message = refused("train", "--data", "cifar10", "--data.root", tmp_path / "no", "--out", tmp_path / "run")
    assert "coterie data cifar10" in message and "cifar-10-binary.tar.gz" in message
    assert not (tmp_path / "run").exists()
    tiny = make_cifar(tmp_path, "binary")
    (tmp_path / "cifar-100-binary" / "test.bin").unlink()
    with pytest.raises(InputError, match=r"test\.bin is missing"):
        tiny(root=str(tmp_path)).load()


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 70000), extra=st.binary(max_size=40), label=st.integers(0, 255))
def test_damaged_binary_files_are_refused_in_a_sentence(tmp_path_factory, cut, extra, label):
    """Truncated, oversized, wrong label bytes, even if somebody has made the checksum right."""
    root = tmp_path_factory.mktemp("cifar")
    tiny = make_cifar(root, "binary")
    file = root / "cifar-100-binary" / "train.bin"
    whole = file.read_bytes()
    raw = bytearray((whole + extra)[: len(whole) + len(extra) - cut if cut else None])
    if len(raw) > 3076:
        raw[3074 + 1] = label
    file.write_bytes(raw)
    tiny.train_files = {"train.bin": hashlib.sha1(raw).hexdigest()}
    data = tiny(root=str(root))
    if len(raw) == len(whole) and label < 100:
        data.load()
        assert data.labels["train"][1] == label
    else:
        with pytest.raises(InputError):
            data.load()


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil-was-here"),))


@pytest.mark.parametrize(
    "raw",
    [
        pickle.dumps({b"data": Evil()}),
        pickle.dumps(Evil(), protocol=0),
        b"cos\nsystem\n(S'touch evil-was-here'\ntR.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        pickle.dumps({b"data": np.array([Evil()], dtype=object)}),
        python2({b"data": np.zeros(3)}),
        python2({b"data": np.asfortranarray(np.zeros((2, 3), np.uint8))}),
        pickle.dumps([1, 2]),
        b"r\xff\xff\xff\x7f.",  # a memo of two thousand million places
        b"\x96\x00\x00\x00\x00\x00\x00\x00\x10.",  # a byte array of 2^60 bytes
        b"",
    ],
)
def test_hostile_pickles_run_nothing(tmp_path, monkeypatch, raw):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_bytes(raw)
    with pytest.raises(InputError, match="is not a CIFAR file"):
        unpickle(tmp_path / "train")
    assert [file.name for file in tmp_path.iterdir()] == ["train"]


VALID = python2({b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"labels": [0, 1]})


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200), st.tuples(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=3))
    )
)
def test_any_bytes_are_a_dictionary_or_a_sentence(tmp_path_factory, given_bytes):
    if isinstance(given_bytes, tuple):
        place, change = given_bytes
        given_bytes = VALID[:place] + change + VALID[place + len(change) :]
    file = tmp_path_factory.getbasetemp() / "fuzzed"
    file.write_bytes(given_bytes)
    try:
        assert isinstance(unpickle(file), dict)
    except InputError as error:
        assert str(file) in str(error)


def test_wrong_values_in_a_python_file_are_refused(tmp_path):
    for i, batch in enumerate(
        [
            {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0]},
            {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, "x"]},
            {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 2**70]},
            {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 300]},
            {b"data": np.zeros((2, 30), np.uint8), b"fine_labels": [0, 1]},
            {b"fine_labels": [0, 1]},
        ]
    ):
        tiny = make_cifar(tmp_path / str(i), "python")
        raw = python2(batch)
        (tmp_path / str(i) / "cifar-100-python" / "train").write_bytes(raw)
        tiny.python_files = {**tiny.python_files, "train": hashlib.md5(raw).hexdigest()}
        with pytest.raises(InputError, match=r"fetch it again|has a label 300"):
            tiny(root=str(tmp_path / str(i))).load()


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
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_bytes(names)
    for file in ("train.bin", "test.bin"):
        (folder / file).write_bytes(raw)

    class part(cifar100):
        per_file = {"train.bin": 100, "test.bin": 100}
        train_files = {"train.bin": hashlib.sha1(raw).hexdigest()}
        test_files = {"test.bin": hashlib.sha1(raw).hexdigest()}

    data = part(root=str(tmp_path))
    data.load()
    assert len(data.classes) == 100 and {"apple", "worm"} <= set(data.classes)
    pixels = torch.cat([batch for batch, _ in data.test_batches(50)])
    # Photographs: mean and deviation of 100 of them are near those of the set, and neighbours resemble each other.
    assert pixels.mean().abs() < 0.25 and 0.8 < pixels.std() < 1.2
    assert (pixels[..., 1:] - pixels[..., :-1]).abs().mean() < 0.5 * pixels.std()


def test_the_constants_are_those_of_torchvision():
    from coterie.compat import import_torchvision

    datasets = import_torchvision("torchvision.datasets")
    for ours, theirs in ((cifar10, datasets.CIFAR10), (cifar100, datasets.CIFAR100)):
        assert list(ours.python_files.items()) == [tuple(x) for x in theirs.train_list + theirs.test_list]
        assert ours.python_meta == (theirs.meta["filename"], theirs.meta["md5"], theirs.meta["key"])
        assert ours.python == theirs.base_folder
