"""Commands for what is deployed: export, push, predict."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ..errors import InputError, printable
from ..trust import trusting
from .calling import print_json


def export(
    run: str,
    format: Literal["safetensors", "onnx", "pt2", "pth", "timm", "executorch"] | None = None,
    predictor: str | None = None,
    output: str | None = None,
    quantize: Literal["int8"] | None = None,
    calibrate: bool = False,
    size: int | None = None,
    trust: bool = False,
    json: bool = False,
) -> None:
    """Write a run's network to a file, and check that the file computes the same.

    Args:
        run: the run directory.
        format: weights for your own class (safetensors, pth), a program for ONNX Runtime, torch or phones (onnx,
            pt2, executorch), or a folder that timm loads; by default what the ending of the output means, else
            safetensors.
        predictor: mean1, peer2, ensemble, ...; by default the one to deploy.
        output: the file to write (-o), for timm the folder; by default RUN/PREDICTOR.FORMAT.
        quantize: 8-bit weights and activations, for ONNX; the loss of accuracy is measured.
        calibrate: store a temperature that corrects over-confident probabilities, fit on held-out images.
        size: side of the images, if it differs from the training's; the network must accept it.
        trust: run the code that the run names, although it was not trained by you on this machine.
        json: print JSON.
    """
    from dataclasses import asdict

    from ..deploy.export import export_run
    from .predictions import describe_export

    file = Path(output) if output else None
    with trusting(trust):
        result = export_run(Path(run), format, predictor, file, quantize is not None, calibrate, size)
    if json:
        print_json({"file": str(result.file), "card": str(result.card), **asdict(result.metadata)})
    else:
        print(describe_export(result))


def push(source: str, repo: str, private: bool = False, json: bool = False) -> None:
    """Upload an exported file, or a timm folder, with its card to the Hugging Face Hub.

    Args:
        source: what `coterie export` wrote.
        repo: the repository, NAME or OWNER/NAME; it is made if it does not exist.
        private: make it visible to its owner alone.
        json: print JSON.
    """
    from ..deploy.push import push as upload

    address = upload(Path(source), repo, private)
    print_json({"address": address}) if json else print(printable(address))


def predict(
    file: str,
    images: list[str],
    top: int | None = None,
    batch: int = 64,
    model: str | None = None,
    trust: bool = False,
    json: bool = False,
    csv: bool = False,
) -> None:
    """Print labels with probabilities for images, from an exported file or a run.

    Args:
        file: a file that `coterie export` wrote, or a run directory, for its network to deploy.
        images: pictures, folders of them, or - for names from the standard input, one per line.
        top: how many labels to print, by default 5; a network for several labels an image prints all above their
            thresholds instead.
        batch: pictures that go through the network together.
        model: the network of a safetensors file, where it is your own code.
        trust: open a .pt2 file, which can run code of whoever wrote it; other formats need no trust.
        json: print JSON.
        csv: print CSV.
    """
    from ..deploy.exported import open_exported
    from ..deploy.predict import predict_pictures
    from .predictions import print_predictions

    if json and csv:
        raise InputError("--json and --csv exclude each other: choose one.")
    exported = open_exported(Path(file), model, trust)
    print_predictions(
        predict_pictures(exported, images, top, batch), "json" if json else "csv" if csv else "table"
    )
