"""Commands that train and evaluate: demo, train, evaluate."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, printable
from ..trust import trusting
from .calling import print_json
from .options import OUT_TEXT, RESTART_TEXT, SEEDS_TEXT, TRUST_TEXT

if TYPE_CHECKING:
    from ..config.options import Data  # read by jsonargparse too; it imports every data set
    from ..config.recipe import Recipe


def demo(out: str = "coterie-demo", seeds: int = 3) -> None:
    """Train a network on handwritten digits, alone and with peers, and compare the two.

    Args:
        out: the output directory.
        seeds: number of runs of each network.
    """
    from .demo import run_demo

    run_demo(Path(out), seeds)


def train(arguments: list[str]) -> None:
    """Train a network into a run directory; repeat the command to continue it."""
    from ..config import options
    from ..config.parsing import parse
    from ..runs.reader import read_run
    from ..training.loop import train_recipe

    parser = options.parser()
    parser.add_argument("--out", type=str, help=OUT_TEXT)
    parser.add_argument("--seeds", type=int, help=SEEDS_TEXT)
    parser.add_argument("--restart", type=bool, default=False, help=RESTART_TEXT)
    parser.add_argument("--trust", type=bool, default=False, help=TRUST_TEXT)
    config = parse(parser, arguments)
    if config.out is None:
        raise InputError("--out is missing: name the directory for this run.")
    recipe = options.from_namespace(parser, config)
    if config.seeds is not None:
        if config.restart:
            raise InputError("--restart is for one run: leave out --seeds, and name the run by --out and --seed.")
        _train_seeds(recipe, config.seeds, Path(config.out))
        return
    with trusting(config.trust):
        train_recipe(recipe, Path(config.out), recipe.method_class.__name__, config.restart)
    if os.environ.get("RANK", "0") == "0":  # torchrun starts many
        outcome = read_run(Path(config.out)).outcome
        trained = f"trained ({outcome})" if outcome else "trained"
        evaluate = f"`coterie evaluate {shlex.quote(config.out)}` shows every predictor"
        print(printable(f"{config.out}: {trained}; {evaluate}."))


def _train_seeds(recipe: Recipe, seeds: int, out: Path) -> None:
    """Train several seeds, and print their table."""
    from ..experiments.runner import raise_failed
    from ..experiments.train_seeds import seed_jobs, seeds_table, train_seeds
    from ..report.table import print_table

    if "RANK" in os.environ:
        raise InputError(
            "--seeds trains each seed in a process of its own: leave torchrun out, or leave out --seeds."
        )
    jobs = seed_jobs(recipe, seeds, out)
    failed = train_seeds(jobs, out)
    print_table(seeds_table(jobs, out))
    print(printable(f"`coterie report {shlex.quote(str(out))}` writes the page with all curves."))
    raise_failed(failed)


def evaluate(
    run: str,
    data: Data | None = None,
    calibrate: bool = False,
    costs: bool = False,
    trust: bool = False,
    json: bool = False,
) -> None:
    """Compute the scores of every predictor of a run: errors, likelihood, calibration, costs.

    Args:
        run: the run directory.
        data: another data set with the same classes to evaluate on.
        calibrate: fit a temperature on the run's held-out images (or, without any, on half of the test images).
        costs: measure size and latency of the plain network, the student and the ensemble, and store them in
            costs.json of the run.
        trust: run Python code that the run names, even if you did not train the run on this machine.
        json: print JSON.
    """
    from ..deploy.latency import measure_run_costs
    from ..report.command_tables import print_evaluation
    from ..runs.evaluate_run import evaluate_run

    with trusting(trust):
        result = evaluate_run(Path(run), data, calibrate)
        if costs:
            result["costs"] = measure_run_costs(Path(run))
    print_json(result) if json else print_evaluation(result)
