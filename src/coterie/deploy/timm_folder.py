"""Write a network of timm as the folder that `timm.create_model("local-dir:FOLDER")` and the Hub load."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..compat import import_torchvision
from ..errors import Failure, InputError, reason
from ..files import write
from ..models.metadata import Metadata, encode_weights
from .card import write_card
from .exported import ExportedNetwork, torch_runner
from .verify import write_verified

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"


def write_timm_folder(network: nn.Module, folder: Path, metadata: Metadata, images: list[Tensor]) -> Path:
    """Write config.json, model.safetensors and the card, verified by timm itself; return the card."""
    name = metadata.model["name"]
    if not name.startswith("timm:") or metadata.model["options"].get("small_stem"):
        what = "timm's network with another stem" if name.startswith("timm:") else "no network of timm"
        raise InputError(f"{name} is {what}: `format` timm is for networks that timm itself makes.")
    part = folder.resolve().with_name(folder.resolve().name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        write_verified(
            lambda file, about: _write(network, file, about),
            network,
            part,
            metadata,
            images,
            lambda file: _open(file, metadata),
        )
        folder.mkdir(exist_ok=True)
        write(folder / CARD_FILE, write_card(metadata, WEIGHTS_FILE, "timm"))
        for file in (WEIGHTS_FILE, CONFIG_FILE):
            (part / file).replace(folder / file)
    except OSError as error:
        raise Failure(f"{folder} could not be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(part)
    return folder / CARD_FILE


def _write(network: nn.Module, folder: Path, metadata: Metadata) -> None:
    (folder / WEIGHTS_FILE).write_bytes(encode_weights(network.state_dict(), metadata))
    for sized in (True, False):  # only some networks are made for a size of images
        config = json.dumps(timm_config(network, metadata, sized), indent=2) + "\n"
        (folder / CONFIG_FILE).write_text(config, encoding="utf-8")
        try:
            _create(folder)
            return
        except TypeError as error:
            if not sized or "img_size" not in str(error):
                raise InputError(f"timm cannot make this network ({reason(error)}).") from None


def _create(folder: Path) -> nn.Module:
    network: nn.Module = import_torchvision("timm").create_model(f"local-dir:{folder}", pretrained=True)
    return network


def _open(folder: Path, metadata: Metadata) -> ExportedNetwork:
    timm = import_torchvision("timm")
    return ExportedNetwork(metadata, torch_runner(_create(folder).eval()), f"timm {timm.__version__}")


def timm_config(network: nn.Module, metadata: Metadata, sized: bool) -> dict[str, Any]:
    """Return timm's description of a network: what makes it, and how its pictures are prepared."""
    shape, steps = metadata.shape, metadata.input
    options = {key: value for key, value in metadata.model["options"].items() if key != "pretrained"}
    if sized:
        options.setdefault("img_size", shape[1] if shape[1] == shape[2] else list(shape[1:]))
    own = getattr(network, "pretrained_cfg", {})
    prepared: dict[str, Any] = {
        "num_classes": len(metadata.classes),
        "input_size": list(shape),
        "crop_pct": 1.0 if steps["resize"] is None else min(shape[1:]) / steps["resize"],
        "crop_mode": "squash" if steps["resize"] is None else "center",
        "interpolation": steps.get("filter", "bilinear"),
        **{key: own[key] for key in ("first_conv", "classifier") if own.get(key) is not None},
    }
    if steps["mean"] is not None:
        prepared |= {"mean": steps["mean"], "std": steps["std"]}
    return {
        "architecture": metadata.model["name"].removeprefix("timm:").partition(".")[0],
        "num_classes": len(metadata.classes),
        "label_names": metadata.classes,
        "model_args": options,
        "pretrained_cfg": prepared,
    }
