"""What a run's directory holds: nothing yet, a part, all of it, or something that cannot be continued."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from ..config.options import PARTS
from ..runs.directory import LOCK
from ..runs.reader import Result, class_name, read_run
from .job import Job


@dataclass(frozen=True)
class RunState:
    """How far a run has come, and what its directory holds."""

    kind: Literal["missing", "partial", "done", "damaged"]
    result: Result
    note: str = ""
    """What is wrong, for a damaged run; why it stopped, for one that failed."""

    @property
    def epochs(self) -> int:
        return self.result.trained


def run_state(out: Path, job: Job, weights: bool = False) -> RunState:
    """Read a job's directory. With `weights` a finished run must hold its network too, as a teacher must.

    The metrics alone make a finished run: results can be kept and shown without weights.
    """
    path = out / job.name
    if not path.is_dir() or not any(path.iterdir()):
        return RunState("missing", Result(path), _last_failure(out, job))
    result = read_run(path)
    if damage := _damage(job, result):
        return RunState("damaged", result, damage)
    student = path / "student.safetensors"
    if not result.finished or not (student.exists() or _without_weights(path, result)):
        return RunState("partial", result, _last_failure(out, job))
    if weights and not student.exists():
        return RunState("damaged", result, "it holds no weights, and another run needs them")
    return RunState("done", result)


def _without_weights(path: Path, result: Result) -> bool:
    """Tell whether a finished run is kept without its weights, rather than killed before they were written."""
    killed_before_first_save = len(result.records) == 1 and (path / LOCK).exists()
    return not killed_before_first_save and not any(path.glob("checkpoint*"))


def _damage(job: Job, result: Result) -> str:
    """Return why this cannot be a run of this job, or nothing."""
    if not result.config:
        return "its config.yaml cannot be read"
    config = {"select": "last", **result.config}
    for name, value in {"seed": job.seed, "select": "last", **job.options}.items():
        if (stored := _stored(config, name)) != (class_name(value) if name in PARTS else value):
            return f"its config.yaml has {name} {stored}, not {value}"
    if result.trained > job.epochs:
        return f"its metrics.jsonl has {result.trained} epochs, not {job.epochs}"
    if [record["epoch"] for record in result.records] != job.evaluated[: len(result.records)]:
        return "its metrics.jsonl has a gap"
    student = result.path / "student.safetensors"
    if student.exists():
        try:
            with safe_open(student, framework="numpy"):
                pass
        except (SafetensorError, OSError):
            return "its student.safetensors cannot be read"
    return ""


def _stored(config: dict[str, Any], option: str) -> Any:
    """Return an option's value by its flag: `method` is a class's name, `method.weight` an argument."""
    head, _, argument = option.partition(".")
    value = config.get(head)
    if argument:
        return value.get("init_args", {}).get(argument) if isinstance(value, dict) else None
    return class_name(value) if option in PARTS else value


def log_file(out: Path, job: Job) -> Path:
    return out / "logs" / f"{job.name}.log"


def failure_file(out: Path, job: Job) -> Path:
    return out / "logs" / f"{job.name}.failed"


def _last_failure(out: Path, job: Job) -> str:
    """Return why the last attempt at a job failed, if it did."""
    file = failure_file(out, job)
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""
