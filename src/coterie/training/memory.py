"""Memory of this process: how much it holds, and an allocator that keeps what is freed."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import Literal

import torch

# <malloc.h>
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Make glibc take large blocks from its heap and never return the heap while this process lives.

    By default it maps each large tensor by itself and unmaps it when freed, and the system has to clear new pages
    for the next one: over 100,000 page faults in a step of PCL with resnet32 on a batch of 128. Memory that is
    kept is used by the next step. Returns whether the allocator accepted it; others than glibc's are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, -1) == 1)


def max_memory(device: torch.device) -> int:
    """Return the largest number of bytes held so far: on the GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return process_memory("VmHWM")


def process_memory(field: Literal["VmHWM", "VmRSS"]) -> int:
    """Return the bytes that this process holds (VmRSS), or held at most (VmHWM), as Linux counts them.

    `ru_maxrss` is the second choice: on Linux it survives `exec`, so that a process which a large one started
    would begin with its peak. Elsewhere it is right, but gives the peak alone; a system that has neither gives 0.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
