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
    """Export a trained network to a file, and check that the file gives the same outputs.

    Args:
        run: the run directory.
        format: weights for your own class (safetensors, pth), a program for ONNX Runtime, torch or phones (onnx,
            pt2, executorch), or a folder for timm; by default given by the extension of the output file, or
            safetensors.
        predictor: the network to export: peer2, mean1, ensemble, ...; by default the one to deploy.
        output: the file to write (-o), or the folder for timm; by default RUN/PREDICTOR.FORMAT.
        quantize: write 8-bit weights and activations (ONNX only), and measure the loss of accuracy.
        calibrate: store a temperature that corrects over-confident probabilities, fitted on held-out images.
        size: height and width of the images, if they differ from those of the training.
        trust: run Python code that the run names, even if you did not train the run on this machine.
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
    """Upload an exported file or timm folder with its model card to the Hugging Face Hub.

    Args:
        source: the file or folder that `coterie export` wrote.
        repo: the repository, NAME or OWNER/NAME; it is created if it does not exist.
        private: create a private repository.
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
    """Predict the labels of images with an exported file or a run.

    Args:
        file: a file that `coterie export` wrote, or a run directory.
        images: image files, folders of images, or - to read names from standard input, one per line.
        top: number of labels to print, by default 5; for a multi-label network, all labels above their thresholds
            are printed.
        batch: number of images per batch.
        model: the network of a safetensors file, if it is your own Python code.
        trust: open a .pt2 file although loading it can run code; other formats do not need this.
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
