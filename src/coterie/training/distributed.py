"""The processes of one training: who each of them is, which images it takes, what they tell each other."""

from __future__ import annotations

import importlib
import os
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ..data import Data
from ..data.sampler import Indices, Piece, rank_slice, split_batch
from ..errors import Failure, InputError, reason
from ..methods import Method
from ..methods.trial import trial_step

T = TypeVar("T")


@dataclass
class World:
    """All processes as one of them sees it; alone, every word is spoken to itself.

    control: a group for words between the processes; it never waits for a GPU.
    """

    device: torch.device
    rank: int = 0
    size: int = 1
    control: dist.ProcessGroup | None = None

    def pieces(self, batch: Indices, accumulate: int = 1) -> list[Piece]:
        """Return this process's share of a global batch, in at most `accumulate` pieces."""
        return split_batch(batch, self.size, self.rank, accumulate)

    def accepts(self, method: Method, accumulate: int) -> None:
        """Refuse to cut up the batches of a method whose terms are no means over single images."""
        if method.couples_batch and (self.size > 1 or accumulate > 1):
            raise InputError(
                f"{type(method).__name__} compares the images of a batch with each other: train it in one process "
                "without --accumulate."
            )

    def share(self, size: int) -> slice:
        """Return this process's part of a list."""
        return rank_slice(size, self.size, self.rank)

    def seed(self, seed: int, step: int) -> None:
        """Make what is drawn in a step, as by dropout, depend on seed, step and process alone."""
        number = int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1)[0])
        torch.manual_seed(number)
        np.random.seed(number)
        random.seed(number)

    def on_rank_zero(self, job: Callable[[], T]) -> T:
        """Let the first process alone do a job; all get its result, or its error."""
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                answer[0] = job()
            except Exception as error:
                answer[1] = _sendable(error)
        if self.control is not None:
            dist.broadcast_object_list(answer, src=0, group=self.control)
        if answer[1] is not None:
            raise answer[1]
        result: T = answer[0]
        return result

    def gather(self, value: T) -> list[T]:
        """What each process has, by rank."""
        if self.control is None:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.control)
        return found

    def any_rank(self, *flags: bool) -> list[bool]:
        """Each flag, if it is set in any process: all must do the same at the same step."""
        if self.control is None:
            return list(flags)
        votes = torch.tensor(flags, dtype=torch.uint8)
        dist.all_reduce(votes, dist.ReduceOp.MAX, group=self.control)
        return [bool(vote) for vote in votes]

    def parallel(self, method: Method, data: Data) -> nn.Module:
        """The method as all processes run it: gradients are averaged while they are computed."""
        if self.control is None:
            return method
        return DistributedDataParallel(
            method,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=self._has_unused(method, data),
        )

    def _has_unused(self, method: Method, data: Data) -> bool:
        """Whether some parameter gets no gradient, so that nobody must wait for it."""
        return any(p.requires_grad and p.grad is None for p in trial_step(method, data).parameters())

    def maybe_no_sync(self, forward: nn.Module, now: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last backward pass of a step only."""
        if isinstance(forward, DistributedDataParallel) and not now:
            return forward.no_sync()
        return nullcontext()

    def share_buffers(self, method: nn.Module) -> None:
        """Give all processes the first one's buffers: the running statistics that are saved and evaluated."""
        if self.control is not None:
            for buffer in method.buffers():
                dist.broadcast(buffer, src=0)


def _sendable(error: Exception) -> Exception:
    """The same, or what it says, if other processes cannot be told it: it may hold a file or a connection."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Failure(f"{type(error).__name__}: {reason(error)}")
    return error


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """Be one of the processes that torchrun started, or alone."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        yield World(device)
        return
    if device.type == "cuda":
        device, there = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), torch.cuda.device_count()
        if device.index >= there:
            raise InputError(f"torchrun has started more processes than there are GPUs here ({there}).")
        torch.cuda.set_device(device)
    store, rank, size = next(rendezvous("env://"))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        # On one machine torchrun keeps its store when it restarts: do not look for the dead at their old address.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    try:
        yield World(device, rank, size, dist.new_group(backend="gloo"))
    finally:
        dist.destroy_process_group()


def synchronise_batch_norm(method: nn.Module, device: torch.device) -> None:
    """Let batch-norm see the global batch. Layers stay the same objects: peers share them, taps sit on them."""
    if device.type != "cuda":
        raise InputError("--sync-batch-norm needs a GPU: torch has synchronised batch-norm for GPUs only.")
    for module in method.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = _synchronised(type(module))
            module.process_group = None  # type: ignore[assignment]


def _synchronised(kind: type[_BatchNorm]) -> type[nn.SyncBatchNorm]:
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
        return nn.SyncBatchNorm
    if kind.__module__.startswith("timm.") and kind.__name__ == "BatchNormAct2d":  # with an activation inside
        found: type[nn.SyncBatchNorm] = importlib.import_module("timm.layers").SyncBatchNormAct
        return found
    raise InputError(f"--sync-batch-norm cannot know what {kind.__name__} does beside batch-norm: leave it out.")
