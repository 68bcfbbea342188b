"""The model card: what a person, and the Hugging Face Hub, should know about an exported file."""

from __future__ import annotations

from .. import __version__
from ..errors import printable
from ..models.metadata import Metadata

TEMPLATE = """---
{{ card_data }}
---

# {{ m.model.name }} ({{ m.predictor }})

`{{ m.model.name }}` with {{ m.classes | length }} classes, trained on `{{ run.data }}` with Coterie's
{{ run.method }} method ({{ run.epochs }} epochs, seed {{ run.seed }}).
{%- if run.selected %} These are the weights {{ run.selected }}.{% endif %}
{%- if m.ensemble %} All {{ m.ensemble.peers }} peers and their ensemble.{% else %} A single network.{% endif %}
{%- if scores %}

On the {{ split }} images of `{{ run.data }}`:

{% for name, value in scores.items() -%}
- {{ name }}: {{ value }}
{% endfor -%}
{%- if run.selected %}
The same images selected the weights, so that these scores are a little too good.
{% endif -%}
{%- endif %}

## Input

Batches of shape `({{ (["N"] + m.shape | list) | join(", ") }})`, float32: {{ preparation }}.
{%- if code %} As torchvision code:

```python
{{ code }}
```
{%- endif %}

## Output

{% if m.ensemble -%}
`logits` `(N, classes)` of the ensemble and `peers` `(N, peers, classes)`, the logits of each peer.
{%- else -%}
Logits `(N, classes)`{{ "." if several else "; their softmax gives probabilities." }}
{%- endif %}
{%- if several %} An image may have several labels: the sigmoid of a logit is the probability of its class.
{%- endif %}
{%- if m.temperature != 1 %} Divide logits by {{ "%.4f" | format(m.temperature) }} first (calibration); the scores
above are those before it.{% endif %}
{%- if several %} A class is a label of the image where its probability is above its threshold: {{ thresholds }}.
{%- endif %}

Classes in order: {{ classes }}.

## The same network

Compared with the trained network on {{ m.verified.images }} test images and {{ m.verified.edge_inputs }} edge
inputs, run by {{ m.verified.runtime }}: largest difference of a logit
{{ "%.2e" | format(m.verified.max_difference) }}, labels agree on
{{ "%.2f" | format(100 * m.verified.label_agreement) }} %.
{%- if m.quantized %}

Quantised to int8 with {{ m.quantized.calibration_images }} training images:
{{ "100 - mAP" if several else "error" }}
{{ "%.2f" | format(m.quantized.error_float32) }} % before, {{ "%.2f" | format(m.quantized.error_int8) }} % after,
on {{ "{:,}".format(m.quantized.test_images) }} test images.
{%- endif %}

## Use

{{ use }}

Provenance: {{ provenance }}. Exported by coterie {{ version }}.
"""

SPLITS = {"test": "test", "val": "held-out"}
"""What to call the images of the splits that networks are scored on."""
SCORES = {
    "map": ("mAP", "{:.2f} %"),
    "macro_f1": ("macro F1 at a threshold of 0.5", "{:.2f} %"),
    "micro_f1": ("micro F1 at a threshold of 0.5", "{:.2f} %"),
    "error": ("error", "{:.2f} %"),
    "balanced_error": ("balanced error", "{:.2f} %"),
    "top5_error": ("top-5 error", "{:.2f} %"),
    "nll": ("negative log-likelihood", "{:.4f}"),
    "ece": ("expected calibration error", "{:.4f}"),
    "brier": ("Brier score", "{:.4f}"),
}


def write_card(metadata: Metadata, file: str, format: str | None = None) -> str:
    """Return the card of a file in this format: Markdown with the front matter that the Hub reads."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    run, scores = metadata.provenance, metadata.scores
    split = SPLITS[scores.get("split", "test")]
    results = None
    several = metadata.task == "multi_label"
    if several:
        scores = {key: value for key, value in scores.items() if key != "error"}  # which is 100 - mAP
    measure = "mAP" if several else "accuracy"
    if "error" in metadata.scores:
        accuracy = EvalResult(
            task_type="image-classification",
            dataset_name=run["data"],
            dataset_type=run["data"],
            dataset_split=split,
            metric_type=measure,
            metric_value=round(1 - metadata.scores["error"] / 100, 6),
        )
        results = [accuracy]
    card_data = ModelCardData(
        library_name="timm" if format == "timm" else "coterie",
        pipeline_tag="image-classification",
        tags=["coterie", "online-distillation", "image-classification", run["method"].lower()],
        datasets=[run["data"]],
        metrics=[measure],
        model_name=f"{metadata.model['name']}-{metadata.predictor}",
        eval_results=results,
    )
    card = ModelCard.from_template(
        card_data,
        template_str=TEMPLATE,
        m=metadata,
        run=run,
        split=split,
        several=several,
        thresholds=_describe_thresholds(metadata),
        scores={name: form.format(scores[key]) for key, (name, form) in SCORES.items() if key in scores},
        preparation=_describe_input(metadata),
        classes=", ".join(map(_code, metadata.classes)),
        provenance=", ".join(f"{key} {value}" for key, value in run.items() if value is not None),
        code=torchvision_code(metadata),
        use=_usage(file, format),
        version=__version__,
    )
    return printable(str(card), lines=True)


def _describe_thresholds(metadata: Metadata) -> str:
    """Say above which probability each class is a label."""
    if metadata.thresholds is None:
        return "0.5 for every class, for no images were held out to fit it on"
    values = ", ".join(
        f"{_code(name)} {value:.4f}" for name, value in zip(metadata.classes, metadata.thresholds, strict=True)
    )
    return f"{values} (the highest F1 on {metadata.thresholds_from})"


def _code(name: str) -> str:
    """Return a name as Markdown code; one with a backtick needs two around it."""
    return f"`` {name} ``" if "`" in name else f"`{name}`"


def _usage(file: str, format: str | None) -> str:
    """Return the code that loads a file, as Markdown."""
    predict = f"```\ncoterie predict {file} IMAGE|FOLDER|-{' --trust' if format == 'pt2' else ''}\n```"
    if format == "pth":
        return f'```python\nnetwork.load_state_dict(torch.load("{file}", weights_only=True))\n```'
    if format == "executorch":
        return f'```python\nRuntime.get().load_program("{file}").load_method("forward").execute([image])\n```'
    if format == "timm":
        create = 'network = timm.create_model("local-dir:FOLDER", pretrained=True).eval()  # or "hf-hub:REPO"'
        return f"```python\n{create}\n```\n\n{predict}"
    return predict


def torchvision_code(metadata: Metadata) -> str:
    """Return a torchvision transform that makes an input of a PIL image, or nothing where that is unknown."""
    steps, (channels, height, width) = metadata.input, metadata.shape
    if steps["mean"] is None or channels not in (1, 3):
        return ""
    size = str(steps["resize"]) if steps["resize"] is not None else f"({height}, {width})"
    resize = [f"v2.Resize({size}, antialias=True)"]
    if steps["resize"] is not None:
        resize.append(f"v2.CenterCrop(({height}, {width}))")
    to_tensor = ["v2.ToImage()"]
    if steps.get("filter") == "box":  # Pillow alone has it
        resize[0] = f"v2.Resize({size}, v2.InterpolationMode.BOX)"
        lines = resize + to_tensor
    else:
        lines = to_tensor + resize
    lines = [
        "v2.RGB()" if channels == 3 else "v2.Grayscale()",
        *lines,
        "v2.ToDtype(torch.float32, scale=True)",
        f"v2.Normalize({steps['mean']}, {steps['std']})",
    ]
    body = "".join(f"    {line},\n" for line in lines)
    return f"import torch\nfrom torchvision.transforms import v2\n\ntransform = v2.Compose([\n{body}])"


def _describe_input(metadata: Metadata) -> str:
    """Say how a picture is prepared."""
    steps, (_, height, width) = metadata.input, metadata.shape
    if steps["mean"] is None:
        return f"as the data set `{metadata.provenance['data']}` makes them in its own code"
    size = f"{width} x {height}"
    resized = f"the picture resized to {size}"
    if steps["resize"] is not None:
        resized = f"the picture's shorter side resized to {steps['resize']} pixels, the centre {size} cut out"
    if steps.get("filter") == "box":
        resized += " (a pixel is the average of those it covers)"
    mean, std = steps["mean"], steps["std"]
    return f"{resized}; values scaled to 0...1, then\n`(x - mean) / std` with mean `{mean}` and std `{std}`"
