"""The processes of one training: rank and world size, their shares of a batch, collective operations."""

from __future__ import annotations

import importlib
import itertools
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
from ..data.sampler import rank_slice
from ..errors import Failure, InputError, reason
from ..methods import Method
from ..methods.trial import trial_step

T = TypeVar("T")
TRAININGS = itertools.count()
"""Numbers the trainings of this process."""


@dataclass
class World:
    """The processes of a training as seen from one of them; collective operations are no-ops in a single process.

    device:  the device of this process.
    rank:    the number of this process, from 0.
    size:    the number of processes.
    control: a Gloo process group for Python objects and flags, which never waits for a GPU; None in a single
             process.
    """

    device: torch.device
    rank: int = 0
    size: int = 1
    control: dist.ProcessGroup | None = None

    def check_method(self, method: Method, accumulate: int) -> None:
        """Refuse to split the batches of a method whose terms are not means over single images."""
        if method.couples_batch and (self.size > 1 or accumulate > 1):
            raise InputError(
                f"{type(method).__name__} compares the images of a batch with each other: train it in one process "
                "without `accumulate`."
            )

    def share(self, size: int) -> slice:
        """Return the slice of a list of this length that this process takes."""
        return rank_slice(size, self.size, self.rank)

    def seed(self, seed: int, step: int) -> None:
        """Seed the random generators of a step, as dropout uses them, from seed, step and rank alone."""
        number = int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1)[0])
        torch.manual_seed(number)
        np.random.seed(number)
        random.seed(number)

    def on_rank_zero(self, job: Callable[[], T]) -> T:
        """Run a function on rank 0 only; return its result, or raise its error, in every process."""
        outcome: list[Any] = [None, None]  # the result and the error
        if self.rank == 0:
            try:
                outcome[0] = job()
            except Exception as error:
                outcome[1] = _picklable(error)
        if self.control is not None:
            dist.broadcast_object_list(outcome, src=0, group=self.control)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def gather(self, value: T) -> list[T]:
        """Return the value of each process, by rank."""
        if self.control is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def any_rank(self, *flags: bool) -> list[bool]:
        """Return, for each flag, whether any process sets it: all must act alike at the same step."""
        if self.control is None:
            return list(flags)
        votes = torch.tensor(flags, dtype=torch.uint8)
        dist.all_reduce(votes, dist.ReduceOp.MAX, group=self.control)
        return [bool(vote) for vote in votes]

    def parallel(self, method: Method, data: Data) -> nn.Module:
        """Wrap the method in DistributedDataParallel, which averages gradients during the backward pass."""
        if self.control is None:
            return method
        return DistributedDataParallel(
            method,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=self._has_unused(method, data),
        )

    def _has_unused(self, method: Method, data: Data) -> bool:
        """Tell whether some trained parameter gets no gradient, so that DDP must not wait for it."""
        return any(p.requires_grad and p.grad is None for p in trial_step(method, data).parameters())

    def maybe_no_sync(self, forward: nn.Module, sync: bool) -> AbstractContextManager[None]:
        """Return a context in which gradients are not averaged over processes, unless `sync` is set."""
        if isinstance(forward, DistributedDataParallel) and not sync:
            return forward.no_sync()
        return nullcontext()

    def share_buffers(self, method: nn.Module) -> None:
        """Broadcast the buffers of rank 0, whose running statistics are saved and evaluated."""
        if self.control is not None:
            for buffer in method.buffers():
                dist.broadcast(buffer, src=0)


def _picklable(error: Exception) -> Exception:
    """Return the error, or a Failure with its message if it cannot be pickled: it may hold an open file."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Failure(f"{type(error).__name__}: {reason(error)}")
    return error


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """Join the process group of torchrun; yield a World of one process where torchrun started none."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        yield World(device)
        return
    if device.type == "cuda":
        device, gpus = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), torch.cuda.device_count()
        if device.index >= gpus:
            raise InputError(f"torchrun has started more processes than there are GPUs here ({gpus}).")
        torch.cuda.set_device(device)
    elif device.type != "cpu":
        raise InputError(f"Several processes cannot train on '{device.type}' together: leave torchrun out.")
    if dist.is_initialized():
        raise InputError("A process group exists already: destroy it before the training, which makes its own.")
    store, rank, size = next(rendezvous("env://"))
    # The store keeps the addresses of an earlier training of this script and, if torchrun on one machine restarted
    # it, of dead processes: use a new store prefix for each.
    attempt = (
        os.environ.get("TORCHELASTIC_RESTART_COUNT") if os.environ.get("LOCAL_WORLD_SIZE") == str(size) else 0
    )
    store = dist.PrefixStore(f"attempt {attempt}, training {next(TRAININGS)}", store)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    try:
        yield World(device, rank, size, dist.new_group(backend="gloo"))
    finally:
        dist.destroy_process_group()


def synchronise_batch_norm(method: nn.Module, device: torch.device) -> None:
    """Compute batch-norm over the global batch. Layers stay the same objects: peers share them."""
    if device.type != "cuda":
        raise InputError("`sync_batch_norm` needs a GPU: torch has synchronised batch-norm for GPUs only.")
    for module in method.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = _synchronised(type(module))
            module.process_group = None  # type: ignore[assignment]


def _synchronised(kind: type[_BatchNorm]) -> type[nn.SyncBatchNorm]:
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
        return nn.SyncBatchNorm
    if kind.__module__.startswith("timm.") and kind.__name__ == "BatchNormAct2d":  # with an activation inside
        synchronised: type[nn.SyncBatchNorm] = importlib.import_module("timm.layers").SyncBatchNormAct
        return synchronised
    raise InputError(f"`sync_batch_norm` cannot know what {kind.__name__} does beside batch-norm: leave it out.")
