"""The model card: what a person, and the Hugging Face Hub, should know about an exported file."""

from __future__ import annotations

from typing import Any

import yaml

from .. import __version__
from .metadata import Metadata

CARD = """---
{front}---

# {title}

{model} with {classes} classes, trained on `{data}` with Coterie's {method}
method ({epochs} epochs, seed {seed}). {what}

| on the {split} images of `{data}` | |
|---|---|
{scores}

## Input

Batches of shape `(N, {channels}, {height}, {width})`, float32: {steps}.

## Output

{output}{temperature}

Classes in order: {names}.

## The same network

{verified}{quantized}

## Use

```
coterie predict {file} IMAGE|FOLDER|-
```

Provenance: {provenance}. Exported by coterie {version}.
"""


def model_card(metadata: Metadata, file: str) -> str:
    """Markdown with the front matter that the Hub reads."""
    m, run, checked = metadata, metadata.provenance, metadata.verified
    channels, height, width = m.shape
    output = "Logits `(N, classes)`; their softmax gives probabilities."
    if m.ensemble is not None:
        output = (
            "`logits` `(N, classes)` of the ensemble and `peers` `(N, peers, classes)`, the logits of each peer."
        )
    scores = {
        "error": ("error", "{:.2f} %"),
        "balanced error": ("balanced_error", "{:.2f} %"),
        "top-5 error": ("top5_error", "{:.2f} %"),
        "negative log-likelihood": ("nll", "{:.4f}"),
        "expected calibration error": ("ece", "{:.4f}"),
        "Brier score": ("brier", "{:.4f}"),
    }
    rows = [
        f"| {text} | {form.format(m.scores[key])} |" for text, (key, form) in scores.items() if key in m.scores
    ]
    quantized = ""
    if m.quantized is not None:
        q = m.quantized
        quantized = (
            f"\n\nQuantised to int8 with {q['calibration_images']} training images: "
            f"error {q['error_float32']:.2f} % before, {q['error_int8']:.2f} % after, "
            f"on {q['test_images']:,} test images."
        )
    return CARD.format(
        front=yaml.safe_dump(_front_matter(m), sort_keys=False, allow_unicode=True),
        title=f"{m.model['name']} ({m.predictor})",
        model=f"`{m.model['name']}`",
        classes=len(m.classes),
        data=run["data"],
        method=run["method"],
        epochs=run["epochs"],
        seed=run["seed"],
        what=f"All {m.ensemble['peers']} peers and their ensemble." if m.ensemble else "A single network.",
        scores="\n".join(rows),
        channels=channels,
        height=height,
        width=width,
        steps=_steps(m),
        split=_SPLITS[m.scores.get("split", "test")],
        output=output,
        temperature=(
            f" Divide logits by {m.temperature:.4f} first (calibration); the scores above are those before it."
            if m.temperature != 1
            else ""
        ),
        names=", ".join(map(_code, m.classes)),
        verified=(
            f"Compared with the trained network on {checked['images']} test images and {checked['edge_inputs']} "
            f"edge inputs, run by {checked['runtime']}: "
            f"largest difference of a logit {checked['max_difference']:.2e}, "
            f"labels agree on {100 * checked['label_agreement']:.2f} %."
        ),
        quantized=quantized,
        file=file,
        provenance=", ".join(f"{key} {value}" for key, value in run.items() if value is not None),
        version=__version__,
    )


def _code(name: str) -> str:
    """A name in Markdown as it is; one with a backtick needs two around it."""
    return f"`` {name} ``" if "`" in name else f"`{name}`"


_SPLITS = {"test": "test", "val": "held-out"}


def _steps(m: Metadata) -> str:
    """How a picture is prepared."""
    _, height, width = m.shape
    if m.input["mean"] is None:
        return f"as the data set `{m.provenance['data']}` makes them in its own code"
    if m.input["resize"] is None:
        first = f"the picture resized to {width} x {height}"
    else:
        short = m.input["resize"]
        first = f"the picture's shorter side resized to {short} pixels, the centre {width} x {height} cut out"
    if m.input.get("filter") == "box":
        first += " (a pixel is the average of those it covers)"
    mean, std = m.input["mean"], m.input["std"]
    return f"{first}; values scaled to 0...1, then\n`(x - mean) / std` with mean `{mean}` and std `{std}`"


def _front_matter(m: Metadata) -> dict[str, Any]:
    data, error = m.provenance["data"], m.scores.get("error")
    front: dict[str, Any] = {
        "library_name": "coterie",
        "pipeline_tag": "image-classification",
        "tags": ["coterie", "online-distillation", "image-classification", m.provenance["method"].lower()],
        "datasets": [data],
        "metrics": ["accuracy"],
    }
    if error is not None:
        result = {
            "task": {"type": "image-classification"},
            "dataset": {"name": data, "type": data, "split": _SPLITS[m.scores.get("split", "test")]},
            "metrics": [{"type": "accuracy", "value": round(1 - error / 100, 6)}],
        }
        front["model-index"] = [{"name": f"{m.model['name']}-{m.predictor}", "results": [result]}]
    return front
