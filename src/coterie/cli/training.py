"""Commands that train and evaluate: demo, train, evaluate."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, printable
from ..trust import trusting
from .calling import print_json

if TYPE_CHECKING:
    from ..config.options import Data  # read by jsonargparse too; it imports every data set


def demo(out: str = "coterie-demo", seeds: int = 3) -> None:
    """Train a network on handwritten digits, alone and with peers, and compare the two.

    Args:
        out: the directory to write to.
        seeds: the number of trainings of each.
    """
    from .demo import run_demo

    run_demo(Path(out), seeds)


def train(arguments: list[str]) -> None:
    """Train into a run directory; the same command again continues."""
    from ..config import options
    from ..config.parsing import parse
    from ..training.loop import train_recipe

    parser = options.parser()
    parser.add_argument("--out", type=str, help="the run directory (required).")
    parser.add_argument("--trust", type=bool, default=False, help="run code that a teacher's run names.")
    config = parse(parser, arguments)
    if config.out is None:
        raise InputError("--out is missing: name the directory for this run.")
    recipe = options.from_namespace(parser, config)
    with trusting(config.trust):
        train_recipe(recipe, Path(config.out), recipe.method_class.__name__)
    if os.environ.get("RANK", "0") == "0":  # torchrun starts many
        evaluate = f"`coterie evaluate {shlex.quote(config.out)}` shows every predictor"
        print(printable(f"{config.out}: trained; {evaluate}."))


def evaluate(
    run: str,
    data: Data | None = None,
    calibrate: bool = False,
    costs: bool = False,
    trust: bool = False,
    json: bool = False,
) -> None:
    """Score every predictor of a run: errors, likelihood, calibration, costs.

    Args:
        run: the run directory.
        data: another data set with the same classes to test on, instead of the run's own.
        calibrate: fit a temperature on the run's held-out images (else on half of the test images).
        costs: measure size and speed of plain network, student and ensemble; kept in the run's costs.json.
        trust: run the code that the run names, although it was not trained by you on this machine.
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
