"""A run as a Python object: train one, load one, and use its records and networks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from ..config.options import OPTIONS, PARTS, from_options, with_options
from ..config.recipe import PrecisionName, TrackerName
from ..config.schedule import Schedule
from ..config.specs import labels_in
from ..data import Data
from ..data.mix import Mix
from ..data.rng import seed_all
from ..data.targets import TaskName
from ..deploy.export import export_run
from ..deploy.formats import ExportFormat
from ..errors import InputError, printable, warn
from ..files import given_path
from ..methods import Method
from ..names import unknown_option
from ..report.command_tables import score_columns
from ..report.page import write_report
from ..report.table import keyed_table, to_html
from ..runs.evaluate_run import evaluate_run
from ..runs.reader import Record, Result, read_run
from ..runs.rebuild import load_student, restored
from ..training.loop import train_recipe
from ..trust import trusting

if TYPE_CHECKING:
    import pandas

Split = Dataset[Any] | tuple[Tensor, Tensor]
"""Items (image, label), or tensors of all images and of all labels."""
Options = Mapping[str, Any]
AnyDataSet = str | Path | Data | tuple[Split, Split] | list[Split] | Options
"""A name, a directory, a `Data`, a pair of data sets, or a class path with its arguments."""
SCORES = {"error": 2, "top5_error": 2, "nll": 3, "ece": 4, "brier": 4}
"""The scores in the table of a run, with their numbers of decimals."""


class Run:
    """A run directory with its records and networks.

    Args:
        path: the directory.
        trust: run Python code that the run names, even if you did not train the run on this machine.
        objects: options of the run that were Python objects and that no file can hold, such as
            `model=make_model`.
    """

    def __init__(self, path: str | Path, *, trust: bool = False, **objects: Any) -> None:
        self.path = given_path(path, "path").resolve()
        self._name, self._trust, self._objects = str(path), trust, objects
        if not (self.path / "config.yaml").is_file():
            raise InputError(f"{path} is not a run directory: it has no config.yaml.")
        config = self.config
        for name in objects:
            if name not in OPTIONS:
                raise unknown_option(name, OPTIONS)
            if not labels_in(config.get(name)):
                raise InputError(f"`{name}` is read from {self.path / 'config.yaml'}: leave it out.")

    def _read(self) -> Result:
        return read_run(self.path)

    @property
    def config(self) -> dict[str, Any]:
        """Return the options of the run."""
        return self._read().config

    @property
    def metrics(self) -> list[Record]:
        """Return one record for each evaluation: loss terms, scores of every predictor, times."""
        return self._read().records

    @property
    def finished(self) -> bool:
        """Return whether the training is complete: all epochs, or stopped by `patience`."""
        return self._read().finished

    @property
    def error(self) -> float:
        """Return the error of the network to deploy, in per cent, at the last evaluation.

        With several labels an image it is 100 - mAP. With `select` best it is that of the best evaluation, on the
        held-out images that selected it.
        """
        result = self._read()
        if not result.records:
            raise InputError(f"{self.path} has no record yet: train it first.")
        record = result.deployed_record
        return float(record["predictors"][record["deployed"]]["error"])

    def student(self) -> nn.Module:
        """Return the trained network to deploy: an object of your class, with your keys, in evaluation mode."""
        with trusting(self._trust):
            return load_student(self.path, self._objects)

    def predictors(self) -> dict[str, nn.Module]:
        """Return every network of the run by name: peer1, ..., mean1, ..., ensemble."""
        with trusting(self._trust):
            _, method, _ = restored(self.path, self._objects)
        return {name: network.eval() for name, network in method.predictors().items()}

    def evaluate(self, data: AnyDataSet | None = None, calibrate: bool = False) -> dict[str, Any]:
        """Score every predictor on the run's test images, or on other data with the same classes.

        Args:
            data: the other data.
            calibrate: fit a temperature for each predictor.
        """
        other = None if data is None else from_options({"data": data}).data
        with trusting(self._trust):
            return evaluate_run(self.path, other, calibrate, self._objects)

    def export(
        self,
        file: str | Path,
        format: ExportFormat | None = None,
        predictor: str | None = None,
        quantize: Literal["int8"] | None = None,
        calibrate: bool = False,
        size: int | None = None,
    ) -> Path:
        """Export a network to a file, verified in the runtime that loads it; return the file.

        Args:
            file: the file to write; its extension sets the format: .safetensors, .onnx, .pt2, .pth, .pt or .pte.
            format: the format, if the extension does not set it; `timm` writes a folder.
            predictor: the network to export: peer2, mean1, ensemble, ...; by default the one to deploy.
            quantize: write 8-bit weights and activations (ONNX only).
            calibrate: store a temperature that is fitted on the run's held-out images.
            size: height and width of the images, if they differ from those of the training.
        """
        if quantize not in (None, "int8"):
            raise InputError(f"`quantize` is 'int8' or None, not {quantize!r}.")
        int8, path = quantize == "int8", given_path(file, "file")
        with trusting(self._trust):
            return export_run(self.path, format, predictor, path, int8, calibrate, size, self._objects).file

    def report(self, file: str | Path = "report.html") -> Path:
        """Write an HTML report of the run; return the file."""
        path = given_path(file, "file")
        write_report([self.path], path)
        return path

    def to_pandas(self) -> pandas.DataFrame:
        """Return the records as a table with a column for each number, such as `predictors.mean1.error`."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas() needs pandas: install it with `pip install pandas`.") from None
        return pandas.json_normalize(self.metrics)

    def __repr__(self) -> str:
        result = self._read()
        error = f", error {self.error:.2f} %" if result.records else ""
        if result.records and "map" in result.last["predictors"][result.last["deployed"]]:
            error = f", mAP {100 - self.error:.2f} %"
        error += f" ({result.outcome})" if result.outcome else ""
        epochs = f"{result.trained} of {result.epochs} epochs"
        return printable(f"Run('{self._name}': {result.method}, {result.setting}, {epochs}{error})")

    def _repr_html_(self) -> str:
        """Return the scores of every predictor at the evaluation of the weights to deploy, for a notebook."""
        result = self._read()
        record: Record = result.deployed_record if result.records else {"predictors": {}, "deployed": ""}
        rows = [
            {"name": f"{name} (deployed)" if name == record["deployed"] else name, **scores}
            for name, scores in record["predictors"].items()
        ]
        return str(to_html(keyed_table(repr(self), score_columns(rows), rows), sortable=False))


_TRAINING = threading.RLock()


@contextmanager
def seed_for_training(seed: int) -> Iterator[None]:
    """Seed all random numbers; the caller's go on afterwards as if nothing had been trained.

    They belong to the process: of two trainings in threads, neither would give the same weights again.
    """
    if not _TRAINING.acquire(blocking=False):
        raise InputError(
            "Another thread of this process is training: train one after another, or in processes of their own."
        )
    try:
        with seed_all(seed):
            yield
    finally:
        _TRAINING.release()


def load(path: str | Path, *, trust: bool = False, **objects: Any) -> Run:
    """Load a run from its directory.

    Args:
        path: the directory.
        trust: run Python code that the run names, even if you did not train the run on this machine.
        objects: options of the run that were Python objects and that no file can hold, such as
            `model=make_model`.
    """
    return Run(path, trust=trust, **objects)


def train(
    *,
    out: str | Path,
    method: str | type[Method] | Callable[..., Method] | Options = "PCL",
    method_options: Options | None = None,
    model: str | Callable[..., nn.Module] | nn.Module = "resnet32",
    data: AnyDataSet = "digits",
    data_options: Options | None = None,
    task: TaskName | Literal["auto"] = "auto",
    peers: int | str = 3,
    cut: str | None = None,
    epochs: int = 300,
    evaluate_every: int = 1,
    batch: int = 128,
    optimizer: str | type[Optimizer] | Callable[[Iterable[Any]], Optimizer] | Options = "SGD",
    optimizer_options: Options | None = None,
    schedule: str | Schedule | Callable[[Optimizer], LRScheduler] | type[Schedule] | Options = "Steps",
    schedule_options: Options | None = None,
    warmup: float = 0.0,
    mix: str | Mix | type[Mix] | Callable[..., Mix] | Options | None = None,
    mix_options: Options | None = None,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | str | None = None,
    ramp_up: float = 80 / 300,
    ema_horizon: float = 1000 / 117300,
    ema: bool = False,
    model_options: Options | None = None,
    init: str | Path | None = None,
    branch_noise: float = 0.0,
    checkpoint_activations: bool = False,
    seed: int = 0,
    device: str = "auto",
    precision: PrecisionName = "32",
    compile: bool | Literal["reduce-overhead"] = False,
    accumulate: int = 1,
    clip_norm: float | None = None,
    decay_norm_and_bias: bool = True,
    sync_batch_norm: bool = False,
    select: Literal["last", "best"] = "last",
    patience: int | None = None,
    checkpoint_every: str = "10min",
    track: TrackerName | None = None,
    restart: bool = False,
) -> Run:
    """Train a network into a run directory; the same call again continues the run.

    The options are those of `coterie train`; `coterie train --help` describes them. Where it takes the name of a
    class, you may also pass the class, or a `functools.partial` of it, which has the defaults of the class.

    Args:
        out: the run directory.
        method: the training method: a name, a class, or a partial of one.
        method_options: options of the method.
        model: a name, a function or class that builds a network, or a network.
        data: a name, a directory of images, a `Data`, or a pair (training set, test set) of torch Datasets or of
            tensors (images, labels). uint8 images are augmented; float images are used as they are.
        data_options: options of a data set that is passed by name, as a directory or as a pair: `val_fraction`,
            for example, or `mean` and `std` of a pair.
        task: 'multi_label' for images with any number of labels, which a pair gives as zeros and ones (N, C).
        optimizer: a name, a class of torch.optim, or a partial of one.
        optimizer_options: options of the optimiser.
        schedule: a name, `coterie.Steps(...)`, `coterie.Cosine(...)`, or a partial of a torch scheduler.
        schedule_options: options of a schedule that is passed by name.
        mix: a name, `coterie.CutMix(...)` or `coterie.MixUp(...)`.
        mix_options: options of a mix that is passed by name.
        restart: train from the start; the old contents of `out` are moved to a directory next to it.
    """
    options = dict(locals())  # first of all: nothing but the arguments
    for part in PARTS:
        options[part] = with_options(part, options[part], options.pop(f"{part}_options"))
    path, restart = given_path(options.pop("out"), "out"), options.pop("restart")
    options["model_options"] = dict(model_options or {})
    recipe = from_options(options)
    labels = ", ".join(f"`{name}` {' '.join(labels_in(recipe.config[name]))}" for name in recipe.objects)
    config = path / "config.yaml"
    first = os.environ.get("RANK", "0") == "0"
    if first and not restart and config.exists() and read_run(path).finished:
        warn(f"{path} was finished before: nothing is trained.")
    if first and labels and not config.exists():
        warn(f"{labels} cannot be written to {config}: only the same script or notebook can continue this run.")
    with seed_for_training(recipe.seed):
        train_recipe(recipe, path, recipe.method_class.__name__, restart)
    return Run(path, trust=True, **recipe.objects)  # its code was named by this call
