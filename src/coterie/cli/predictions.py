"""Predictions and exports as text: rows that grow with the pictures, JSON, CSV."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..errors import InputError, printable

if TYPE_CHECKING:
    from ..deploy.export import ExportResult
    from ..deploy.predict import Prediction


def print_predictions(predictions: Iterable[Prediction], form: Literal["table", "json", "csv"]) -> None:
    """Print each prediction as it comes; name on the standard error what could not be read, and count it."""
    write = {"table": _print_row, "json": _print_json, "csv": _print_csv}[form]
    labelled = skipped = 0
    problem = ""  # the last one: printed once it is known not to be the only picture's, which ends the command
    started = reported = time.monotonic()
    for prediction in predictions:
        _print_skipped(problem)
        problem = prediction.problem or ""
        if prediction.problem is None:
            write(prediction, labelled == 0)
            labelled += 1
        else:
            skipped += 1
        now = time.monotonic()
        if not sys.stdout.isatty() and now - reported > 2:  # on a terminal the rows themselves show the progress
            reported = now
            print(f"{labelled:,} pictures, {labelled / (now - started):,.0f} per second", file=sys.stderr)
    if labelled == 0 and skipped <= 1:
        raise InputError(problem or "No picture was named, or is in the folder.")
    _print_skipped(problem)
    if labelled == 0:
        raise InputError(f"None of {skipped} pictures could be read.")
    if form == "json":
        print("\n]")
    if skipped:
        print(f"{labelled:,} labelled, {skipped:,} skipped", file=sys.stderr)


def _print_skipped(problem: str) -> None:
    if problem:
        print(f"skipped: {printable(problem)}", file=sys.stderr)


def _print_row(prediction: Prediction, first: bool) -> None:
    labels = "  ".join(f"{label} {100 * p:.1f} %" for label, p in prediction.top) or "no label"
    apart = "" if prediction.disagreement is None else f"  (peers apart {prediction.disagreement:.3f})"
    print(printable(f"{prediction.image}  {labels}{apart}"))


def _print_json(prediction: Prediction, first: bool) -> None:
    print("[" if first else ",")
    print("  " + json.dumps(prediction.as_dict()), end="")


def _print_csv(prediction: Prediction, first: bool) -> None:
    """Print two columns for each label; where images have several, all labels in one and all probabilities."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    ensemble = prediction.disagreement is not None
    if first:
        ranks = range(1, len(prediction.top) + 1)
        columns = [column for k in ranks for column in (f"label{k}", f"probability{k}")]
        columns = ["labels", "probabilities"] if prediction.several else columns
        writer.writerow(["image", *columns, *(["disagreement"] if ensemble else [])])
    name = prediction.image.encode(errors="surrogateescape").decode(errors="replace")  # what is not UTF-8
    cells = [cell for label, p in prediction.top for cell in (printable(label), f"{p:.6f}")]
    if prediction.several:
        cells = [";".join(cells[::2]), ";".join(cells[1::2])]
    apart = [f"{prediction.disagreement:.6f}"] if ensemble else []
    writer.writerow([printable(name), *cells, *apart])


def describe_export(result: ExportResult) -> str:
    """Return lines that say what was written, and how it was verified."""
    m = result.metadata
    v = m.verified
    lines = [
        f"{result.file}: {m.predictor} of {m.model['name']}, {result.file.stat().st_size:,} bytes",
        f"{v['runtime']}: largest difference of a logit {v['max_difference']:.2e}, labels agree on "
        f"{100 * v['label_agreement']:.2f} % ({v['images']} test images, {v['edge_inputs']} edge inputs)",
    ]
    if "selected" in m.provenance:
        lines.append(f"weights {m.provenance['selected']}")
    if m.quantized is not None:
        q = m.quantized
        error = "100 - mAP" if m.task == "multi_label" else "error"
        lines.append(
            f"int8: {error} {q['error_int8']:.2f} % ({q['error_float32']:.2f} % before) "
            f"on {q['test_images']:,} test images"
        )
    if m.task == "multi_label":
        fitted = f"fitted on {m.thresholds_from}" if m.thresholds else "0.5 for every class, as none were held out"
        lines.append(f"labels are the classes above their thresholds: {fitted}")
    if "calibrated" in m.scores:
        c = m.scores["calibrated"]
        lines.append(
            f"temperature {m.temperature:.3f}: calibration error {c['after']['ece']:.4f} "
            f"({c['before']['ece']:.4f} before) on {c['scored_on']}; "
            f"it was fit on {c['fit_on']}"
        )
    return "\n".join(map(printable, [*lines, f"{result.card}: model card"]))
