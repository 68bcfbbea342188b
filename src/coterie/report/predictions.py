"""Predictions and exports as text: a table that grows with the pictures, JSON, CSV."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..errors import InputError, printable

if TYPE_CHECKING:
    from ..deploy.export import Exported
    from ..deploy.predict import Prediction


def show(predictions: Iterable[Prediction], form: Literal["table", "json", "csv"]) -> None:
    """Print each prediction as it comes; what could not be read is named on the standard error, and counted."""
    write = {"table": _row, "json": _json, "csv": _csv}[form]
    read = skipped = 0
    problem = ""  # the last one, told once it is known not to be the only thing there was
    started = said = time.monotonic()
    quiet = sys.stdout.isatty()  # there the rows themselves show how far it is
    for prediction in predictions:
        _tell(problem)
        problem = prediction.problem or ""
        if prediction.problem is None:
            write(prediction, read == 0)
            read += 1
        else:
            skipped += 1
        now = time.monotonic()
        if not quiet and now - said > 2:
            said = now
            print(f"{read:,} pictures, {read / (now - started):,.0f} per second", file=sys.stderr)
    if read == 0 and skipped <= 1:
        raise InputError(problem or "No picture was named, or is in the folder.")
    _tell(problem)
    if read == 0:
        raise InputError(f"None of {skipped} pictures could be read.")
    if form == "json":
        print("\n]")
    if skipped:
        print(f"{read:,} labelled, {skipped:,} skipped", file=sys.stderr)


def _tell(problem: str) -> None:
    if problem:
        print(f"skipped: {printable(problem)}", file=sys.stderr)


def _row(prediction: Prediction, first: bool) -> None:
    guesses = "  ".join(f"{label} {100 * p:.1f} %" for label, p in prediction.top)
    apart = "" if prediction.disagreement is None else f"  (peers apart {prediction.disagreement:.3f})"
    print(f"{printable(prediction.image)}  {guesses}{apart}")


def _json(prediction: Prediction, first: bool) -> None:
    print("[" if first else ",")
    print("  " + json.dumps(prediction.as_dict()), end="")


def _csv(prediction: Prediction, first: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    ensemble = prediction.disagreement is not None
    if first:
        ranks = range(1, len(prediction.top) + 1)
        columns = [column for k in ranks for column in (f"label{k}", f"probability{k}")]
        writer.writerow(["image", *columns, *(["disagreement"] if ensemble else [])])
    name = prediction.image.encode(errors="surrogateescape").decode(errors="replace")  # what is not UTF-8
    cells = [cell for label, p in prediction.top for cell in (label, f"{p:.6f}")]
    writer.writerow([name, *cells, *([f"{prediction.disagreement:.6f}"] if ensemble else [])])


def describe_export(done: Exported) -> str:
    """What was written, and the proof."""
    m = done.metadata
    v = m.verified
    lines = [
        f"{done.file}: {m.predictor} of {m.model['name']}, {done.file.stat().st_size:,} bytes",
        f"{v['runtime']}: largest difference of a logit {v['max_difference']:.2e}, labels agree on "
        f"{100 * v['label_agreement']:.2f} % ({v['images']} test images, {v['edge_inputs']} edge inputs)",
    ]
    if m.quantized is not None:
        q = m.quantized
        lines.append(
            f"int8: error {q['error_int8']:.2f} % ({q['error_float32']:.2f} % before) "
            f"on {q['test_images']:,} test images"
        )
    if "calibrated" in m.scores:
        c = m.scores["calibrated"]
        lines.append(
            f"temperature {m.temperature:.3f}: calibration error {c['after']['ece']:.4f} "
            f"({c['before']['ece']:.4f} before) on {c['scored_on']}; "
            f"it was fit on {c['fit_on']}"
        )
    return "\n".join([*lines, f"{done.card}: model card"])
