"""A full disk inside torch's zip writer is one sentence, whichever way torch is given the file."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from coterie.errors import Failure
from coterie.files import atomic_path
from tests.helpers.common import not_on_windows

SENTENCE = r"state.pt could not be written \(.+\); what was there before is intact"
STATE = {f"weight{i}": torch.zeros(5000) for i in range(20)}


@not_on_windows
@pytest.mark.parametrize("by_path", [True, False])
def test_a_file_that_must_not_grow(tmp_path: Path, by_path: bool) -> None:
    import resource

    file = tmp_path / "state.pt"
    file.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(Failure, match=SENTENCE), atomic_path(file) as part:
            if by_path:
                torch.save(STATE, part)
            else:
                with part.open("wb") as stream:
                    torch.save(STATE, stream)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"] and file.read_bytes() == b"old"


def test_another_error_of_torch_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shape"), atomic_path(tmp_path / "state.pt"):
        torch.zeros(3).reshape(2)
