"""What a run's directory holds: nothing yet, a part, all of it, or something that cannot be gone on with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from ..runs.reader import Result, class_name, read_run
from .job import Job

Kind = Literal["missing", "partial", "done", "damaged"]


@dataclass(frozen=True)
class State:
    kind: Kind
    result: Result
    note: str = ""
    """What is wrong, for a damaged run; why it stopped, for one that failed."""

    @property
    def epochs(self) -> int:
        return self.result.trained


def state(out: Path, job: Job, weights: bool = False) -> State:
    """Of a job's directory. With `weights` a finished run must hold its network too, as a teacher must.

    The metrics alone make a finished run: results can be kept and shown without weights.
    """
    path = out / job.name
    if not path.is_dir() or not any(path.iterdir()):
        return State("missing", Result(path), failure(out, job))
    result = read_run(path)
    if wrong := _damage(job, result):
        return State("damaged", result, wrong)
    student, checkpoint = path / "student.safetensors", path / "checkpoint.pt"
    if result.trained < job.epochs or (checkpoint.exists() and not student.exists()):
        return State("partial", result, failure(out, job))
    if weights and not student.exists():
        return State("damaged", result, "it holds no weights, and another run needs them")
    return State("done", result)


def _damage(job: Job, result: Result) -> str:
    """Why this cannot be a run of this job, or nothing."""
    config = result.config
    if not config:
        return "its config.yaml cannot be read"
    for name, value in {"seed": job.seed, **job.options}.items():
        if (stored := _stored(config, name)) != value:
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
    """An option's value in a config.yaml, by its flag: `method` is a class's name, `method.weight` an argument."""
    head, _, rest = option.partition(".")
    found = config.get(head)
    if rest:
        return found.get("init_args", {}).get(rest) if isinstance(found, dict) else None
    return class_name(found) if isinstance(found, dict) else found


def log_file(out: Path, job: Job) -> Path:
    return out / "logs" / f"{job.name}.log"


def failure_file(out: Path, job: Job) -> Path:
    return out / "logs" / f"{job.name}.failed"


def failure(out: Path, job: Job) -> str:
    """Why the last attempt at a job failed, if it did."""
    file = failure_file(out, job)
    return file.read_text().strip() if file.is_file() else ""
