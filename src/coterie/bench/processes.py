"""A subject in a process of its own: what is set or held for a whole process is then its alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from ..errors import Failure
from .timing import settle

Build = Callable[[], Callable[[], Any]]


@contextmanager
def in_subprocess(build: Build) -> Iterator[Callable[[], Any]]:
    """What a (picklable) builder makes over there: each call waits for one call there, and returns its value.

    Processes are forked from one that has imported torch and used nothing of it, which is quick and safe.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["coterie.bench.bench"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, build))
    process.start()
    theirs.close()

    def call() -> Any:
        try:
            ours.send(None)
            return ours.recv()
        except (EOFError, OSError):
            process.join()
            raise Failure(f"A process that measures died (exit code {process.exitcode}): see above.") from None

    try:
        yield call
    finally:
        ours.close()
        process.join()


def _serve(pipe: Connection, build: Build) -> None:
    torch.manual_seed(0)
    run = build()
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        value = run()
        settle()
        pipe.send(value)
