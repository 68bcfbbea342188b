"""Several processes compute what one computes: gradients, mean peers, scores; a killed one is restarted."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from coterie import methods
from coterie.data.folder import folder
from coterie.data.sampler import split_batch
from coterie.errors import Failure, InputError
from coterie.methods import Method
from coterie.metrics.evaluate import evaluate
from coterie.models import factory
from coterie.training.distributed import World, _picklable, join, synchronise_batch_norm
from coterie.training.loop import train_recipe
from tests.helpers.common import linux_only
from tests.helpers.engine import add_plain, ended, fork_ranks, outcome, recipe, same, train_into


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


CPU = torch.device("cpu")
BATCHES = [16, 13, 3, 2]
"""Even shares, uneven ones, and two so small that the second process has nothing that counts."""


def test_every_image_in_one_piece() -> None:
    for size in (1, 2, 3, 8):
        for accumulate in (1, 2, 5):
            for n in (1, 2, 3, 16, 17, 128):
                batch = np.random.default_rng(n).permutation(n)
                pieces = [split_batch(batch, size, rank, accumulate) for rank in range(size)]
                assert all(1 <= len(mine) <= accumulate for mine in pieces)
                counted = [piece for mine in pieces for piece in mine if piece.size]
                assert np.array_equal(np.concatenate([piece.images for piece in counted]), batch)
                assert all(piece.size == len(piece.images) >= min(2, n) for piece in counted)
                assert sum(piece.weight for mine in pieces for piece in mine) == pytest.approx(size)
    parts = [World(CPU, rank, 3).share(797) for rank in range(3)]
    assert [i for part in parts for i in range(797)[part]] == list(range(797))


def _names() -> list[str]:
    """Return every method whose batches may be split, new ones included; KD needs a teacher."""
    return [name for name, method in methods.available().items() if name != "KD" and not method.couples_batch]


class _Holding(Exception):
    """An error as libraries raise them: with two arguments, holding an object that cannot be pickled."""

    def __init__(self, what: str, file: Any) -> None:
        super().__init__(what)
        self.file = file


def test_an_error_that_cannot_be_pickled_is_sent_as_its_message() -> None:
    with Path(__file__).open() as file:
        error = _picklable(_Holding("no such project", file))
    assert isinstance(error, Failure) and str(error) == "_Holding: no such project"
    kept = InputError("as it is")
    assert _picklable(kept) is kept


def test_readers_are_divided_among_the_processes_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.data.streaming.cores", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert folder("nowhere").workers == 2


def _gradients(world: World, name: str, accumulate: int = 1, unused: bool = False) -> dict[str, Any]:
    """Return the gradients of a step on a batch of every kind, the mean peers, and the scores."""
    run_recipe = recipe(method=name, model_options={"dropout": 0.0, "unused": unused})
    method = run_recipe.build()
    forward, optimizer = world.parallel(method, run_recipe.data), run_recipe.build_optimizer(method)
    gradients, start = [], 0
    method.train()
    for module in method.modules():  # a head may have a batch-norm of its own, as ONE's gate
        if isinstance(module, _BatchNorm):
            module.eval()
    for n in BATCHES:
        pieces = split_batch(np.arange(start, start + n), world.size, world.rank, accumulate)
        start += n
        for piece in pieces:
            views, labels = run_recipe.data.views(piece.images, method.views, 0, 0)
            with world.maybe_no_sync(forward, sync=piece is pieces[-1]):
                terms = forward(views if len(views) > 1 else views[0], labels, 50)
                (terms["loss"] * piece.weight).backward()
        gradients.append({k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None})
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
    world.share_buffers(method)
    test = run_recipe.data.test_batches(100, world.share(run_recipe.data.test_size))
    scores = evaluate(method, test, CPU, world.gather)
    return {"gradients": gradients, "state": copy.deepcopy(method.state_dict()), "scores": scores}


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    """Every method on a batch-norm-free network; the gradients to 1e-6, the mean peers equal on both ranks."""

    def job() -> None:
        with join(CPU) as world:
            gradients = {f"{name} {k}": _gradients(world, name, accumulate=k) for name in _names() for k in (1, 2)}
            gradients["unused"] = _gradients(world, "PCL", unused=True)
            torch.save(gradients, tmp_path / f"rank{world.rank}.pt")

    assert ended(*fork_ranks(2, job)) == [0, 0]
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    expected = _gradients(World(CPU), "PCL", unused=True)["gradients"]
    torch.testing.assert_close(ranks[0]["unused"]["gradients"], expected, rtol=1e-5, atol=1e-6)
    for name in _names():
        alone = _gradients(World(CPU), name)
        for key in (f"{name} 1", f"{name} 2"):
            for expected, got in zip(alone["gradients"], ranks[0][key]["gradients"], strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
            assert same(ranks[0][key]["state"], ranks[1][key]["state"]), key
            assert ranks[0][key]["scores"] == ranks[1][key]["scores"]


def test_sharded_evaluation_is_exact(tmp_path: Path) -> None:
    """Three processes, the last without images; the same method as it is evaluated alone."""

    def job() -> None:
        with join(CPU) as world:
            run_recipe = recipe(method="PCL")
            method = run_recipe.build()
            images = torch.cat([images for images, _ in run_recipe.data.test_batches(100)])[:8]
            labels = torch.cat([labels for _, labels in run_recipe.data.test_batches(100)])[:8]
            part = [slice(0, 5), slice(5, 8), slice(8, 8)][world.rank]
            batches = [(images[part], labels[part])] if len(labels[part]) else []
            got = evaluate(method, batches, CPU, world.gather)
            alone = evaluate(method, [(images, labels)], CPU)
            for name, score in alone["predictors"].items():
                assert got["predictors"][name] == pytest.approx(score, rel=1e-6, abs=1e-9)
            assert got["diversity"] == pytest.approx(alone["diversity"], rel=1e-6)
            assert got["agreement"] == alone["agreement"]

    assert ended(*fork_ranks(3, job)) == [0, 0, 0]


def _close(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one["terms"] == pytest.approx(other["terms"], rel=1e-4)
        assert one["step"] == other["step"] and one["lr"] == other["lr"]
        for name, scores in one["predictors"].items():
            assert scores["nll"] == pytest.approx(other["predictors"][name]["nll"], rel=1e-4)


@pytest.mark.parametrize("every", [1, 2])
def test_the_number_of_processes_may_change(tmp_path: Path, every: int) -> None:
    """One process, stopped in mid-epoch; two, stopped; three to the end: the numbers of one from start to end."""
    options = {"model_options": {"dropout": 0.0}, "evaluate_every": every}
    train_recipe(recipe(**options), tmp_path / "whole")
    out = tmp_path / "out"

    def until(steps: int) -> Callable[[], None]:
        """Train, and send the last process alone a signal in its nth step: all must stop after it."""

        def job() -> None:
            original, left = Method.after_step, [steps]

            def after_step(self: Method) -> None:
                original(self)
                left[0] -= 1
                if left[0] == 0 and os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
                    os.kill(os.getpid(), signal.SIGUSR1)

            Method.after_step = after_step  # type: ignore[method-assign]  # in a process of its own
            train_recipe(recipe(**options), out)

        return job

    assert ended(*fork_ranks(1, until(2))) == [75]
    assert ended(*fork_ranks(2, until(3))) == [75, 75]
    assert torch.load(out / "checkpoint.pt", weights_only=True)["step"] == 2 + 3
    assert ended(*fork_ranks(3, train_into(out, **options))) == [0, 0, 0]
    _close(outcome(out)[1], outcome(tmp_path / "whole")[1])


def test_a_method_that_compares_images_refuses_split_batches(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MCL compares the images of a batch with each other"):
        train_recipe(recipe(method="MCL", accumulate=2), tmp_path / "out")
    with pytest.raises(InputError, match="train it in one process"):
        World(CPU, 0, 2).check_method(recipe(method="MCL").build(), 1)


def test_one_refusal_ends_all(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert ended(*fork_ranks(2, train_into(tmp_path))) == [2, 2]


@contextmanager
def _torchrun(out: Path, *arguments: str, restarts: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Start two processes under torchrun; yield once they have saved twice."""
    options = ["--model", "resnet8", "--data.limit", "5", "--batch", "16", "--peers", "2", "--epochs", "3"]
    options += ["--checkpoint-every", "0s", *arguments]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    agent = subprocess.Popen(
        [*torchrun, "--max-restarts", str(restarts), "-m", "coterie", "train", *options, "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        until = time.monotonic() + 120
        while not (out / "checkpoint.previous.pt").exists():
            assert agent.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        yield agent
    finally:
        agent.terminate()  # it ends its workers, too
        agent.wait(60)


@linux_only
def test_torchrun_restarts_a_killed_worker(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with _torchrun(out, restarts=2) as agent:
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        second = [p for p in children if "\0RANK=1\0" in Path(f"/proc/{p}/environ").read_text()]
        os.kill(int(second[0]), signal.SIGKILL)
        _, stderr = agent.communicate(timeout=240)
    assert agent.returncode == 0, stderr
    continued = json.loads((out / "environment.json").read_text())
    assert continued["processes"] == 2 and len(continued["continued"]) == 1
    whole = tmp_path / "whole"
    data = {"class_path": "digits", "init_args": {"limit": 5}}
    assert ended(
        *fork_ranks(2, train_into(whole, model="resnet8", data=data, epochs=3, ema_horizon=1000 / 117300))
    ) == [0, 0]
    assert same(outcome(out), outcome(whole))


@pytest.mark.slow
def test_torchrun_passes_a_signal_on(tmp_path: Path) -> None:
    with _torchrun(tmp_path / "out", "--epochs", "3000") as agent:
        agent.terminate()
        _, stderr = agent.communicate(timeout=60)
    assert agent.returncode != 0 and stderr.count("coterie: stopped by a signal after step ") == 2, stderr
    step = int(stderr.rpartition("stopped by a signal after step ")[2].partition(";")[0])
    assert torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)["step"] == step


def test_synchronised_batch_norm_keeps_what_else_a_layer_does() -> None:
    """timm's batch-norm with an activation inside; a class of one's own is refused."""
    network = factory("timm:mobilenetv3_small_050", 10, 3)().eval()
    images = torch.randn(2, 3, 32, 32)
    before = network(images)
    synchronise_batch_norm(network, torch.device("cuda"))
    assert all(isinstance(m, torch.nn.SyncBatchNorm) for m in network.modules() if isinstance(m, _BatchNorm))
    torch.testing.assert_close(network(images), before)

    class Scaled(torch.nn.BatchNorm2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    with pytest.raises(InputError, match="cannot know what Scaled does beside batch-norm: leave it out"):
        synchronise_batch_norm(Scaled(2), torch.device("cuda"))
    with pytest.raises(InputError, match="leave out `accumulate`"):
        recipe(model="resnet8", sync_batch_norm=True, accumulate=2)


def test_synchronised_batch_norm_keeps_what_is_shared() -> None:
    with pytest.raises(InputError, match="needs a GPU"):
        synchronise_batch_norm(torch.nn.BatchNorm2d(2), CPU)
    run_recipe = recipe(model="resnet8")
    method, plain = run_recipe.build(), run_recipe.build()
    synchronise_batch_norm(method, torch.device("cuda"))
    kinds = [type(m) for m in method.modules() if isinstance(m, _BatchNorm)]
    assert len(kinds) > 10 and set(kinds) == {torch.nn.SyncBatchNorm}
    first, second = method.net.peers
    assert first.stage1 is second.stage1 and first.stem is second.stem
    views, labels = run_recipe.data.views(np.arange(4), method.views, 0, 0)
    assert same(method(views, labels, 3), plain(views, labels, 3))  # without a group it is batch-norm
