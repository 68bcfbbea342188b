"""Open a file of a network, in any of the formats, to run it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import methods, models
from ..errors import Failure, InputError
from ..files import check_regular
from ..methods.base import Ensemble
from ..models.bounds import bounded_by
from ..models.metadata import METADATA_KEY, Metadata, parse_metadata, read_metadata
from ..models.weights import check_weights, name_network, read_weights
from ..peers.net import PeerNet
from .deadline import within_deadline
from .formats import EnsembleWithPeers, file_weights, quiet_exporters, require_onnx
from .onnx_file import has_external_data

Outputs = tuple[Tensor, Tensor | None]
"""Logits (B, C), and of an ensemble also those of its peers (B, m, C)."""


@dataclass
class ExportedNetwork:
    """A file's network, ready to run batches of prepared images."""

    metadata: Metadata
    run: Callable[[Tensor], Outputs]
    runtime: str


def open_exported(file: Path, model: str | None = None, trust: bool = False) -> ExportedNetwork:
    """Open a file of `coterie export`, or a run's student.safetensors; its content tells the format.

    Args:
        file: safetensors, ONNX or pt2; or a run directory, for its student.safetensors.
        model: the network of a safetensors file, where it is the user's own code.
        trust: open a pt2 file, which can run code of whoever wrote it.
    """
    if file.is_dir():
        file = _student_of(file)
    try:
        check_regular(file)
        with file.open("rb") as stream:
            start = stream.read(9)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist.") from None
    except ValueError as error:
        raise InputError(f"{file} cannot be read: {error}.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    if start[:4] == b"PK\x03\x04":
        if file.suffix.lower() in (".pth", ".pt"):
            raise InputError(
                f"{file} holds weights alone, without classes and preparation: export the network as safetensors, "
                "onnx or pt2."
            )
        if not trust:
            raise InputError(
                f"{file} is a .pt2 program, and loading one can run code of whoever wrote it: add `trust` if you "
                "trust them; ONNX and safetensors files need no trust."
            )
        return _open_program(file)
    if start[4:6] == b"ET":
        raise InputError(
            f"{file} is a program for ExecuTorch, without classes and preparation: export the network as "
            "safetensors, onnx or pt2."
        )
    if start[8:] == b"{":
        return _open_weights(file, model)
    if start[:1] == b"\x80":
        raise InputError(
            f"{file} is a pickle, which could run code when loaded: export the network with `coterie export`."
        )
    return _open_onnx(file)


def _student_of(folder: Path) -> Path:
    """Return the student.safetensors of a finished run."""
    if (file := folder / "student.safetensors").is_file():
        return file
    if (folder / "config.yaml").exists():
        raise InputError(f"The run {folder} is not finished, so that it has no {file.name}: train it to its end.")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} is a folder for timm: timm.create_model('local-dir:{folder}') loads it.")
    raise InputError(f"{folder} is no run directory: name one, or a file that `coterie export` wrote.")


def _open_weights(file: Path, model: str | None) -> ExportedNetwork:
    metadata = read_metadata(file) or parse_metadata(None, file)
    name = name_network(file, metadata, model, "model")
    weights = read_weights(file)
    with bounded_by(file, weights, metadata.ensemble["peers"] if metadata.ensemble else 1):
        network = within_deadline(lambda: _build_network(file, metadata, name), f"Building the network of {file}")
    check_weights(file, weights, file_weights(network), name)
    network.load_state_dict(weights, strict=False)  # modules that peers share have several names
    return ExportedNetwork(metadata, torch_runner(network.eval()), f"torch {torch.__version__}")


def open_state_dict(file: Path, metadata: Metadata, network: nn.Module) -> ExportedNetwork:
    """Open a plain state dict by the class of the network that was exported: its file holds weights alone."""
    empty = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in empty.parameters():
            parameter.fill_(float("nan"))
    empty.load_state_dict(torch.load(file, map_location="cpu", weights_only=True), strict=True)
    return ExportedNetwork(metadata, torch_runner(empty.eval()), f"torch {torch.__version__}")


def open_executorch(file: Path, metadata: Metadata) -> ExportedNetwork:
    """Open an ExecuTorch program, which takes one image at a time."""
    from importlib.metadata import version

    with quiet_exporters():
        from executorch.runtime import Runtime

    program = Runtime.get().load_program(file)
    method = program.load_method("forward")

    def run(images: Tensor) -> Outputs:
        # The next call writes into the same memory.
        each = [[out.clone() for out in method.execute([image[None].contiguous()])] for image in images]
        logits, *peers = (torch.cat(outputs) for outputs in zip(*each, strict=True))
        return logits, peers[0] if peers else None

    return ExportedNetwork(metadata, run, f"executorch {version('executorch')}")


def _build_network(file: Path, metadata: Metadata, name: str) -> nn.Module:
    channels, height, width = metadata.shape
    options = metadata.model["options"]
    makes = [
        models.factory(each, len(metadata.classes), channels, options, (height, width), fresh=False)
        for each in name.split(",")
    ]
    ensemble = metadata.ensemble
    if ensemble is None:
        return makes[0]()
    method = methods.available().get(ensemble["method"])
    if method is None:
        raise InputError(
            f"{file} is an ensemble of the method '{ensemble['method']}', which is not one of Coterie's: "
            "export it as onnx or pt2."
        )
    make = makes if len(makes) > 1 else makes[0]
    net = PeerNet(make, ensemble["peers"], ensemble["cut"], example=torch.randn(2, *metadata.shape))
    try:
        return EnsembleWithPeers(Ensemble(method(net, **ensemble["options"])))
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"The ensemble in {file} cannot be made: {error}.") from None


def _open_program(file: Path) -> ExportedNetwork:
    extra = {METADATA_KEY: ""}  # torch fills a dictionary that is not empty
    try:
        with quiet_exporters(), file.open("rb") as stream:
            network = torch.export.load(stream, extra_files=extra).module()
    except Exception as error:  # torch raises whatever it meets
        raise InputError(f"{file} is damaged: {type(error).__name__} when torch loads it.") from None
    metadata = parse_metadata(extra[METADATA_KEY], file)
    return ExportedNetwork(metadata, torch_runner(network), f"torch.export {torch.__version__}")


def _open_onnx(file: Path) -> ExportedNetwork:
    require_onnx("onnxruntime")
    import onnxruntime

    try:
        content = file.read_bytes()
        if has_external_data(content):
            raise InputError(
                f"{file} keeps weights in other files, which could be any files of this machine: save it with its "
                "weights inside."
            )
        with quiet_exporters():
            session = within_deadline(lambda: open_session(content), f"Loading {file}")
        text, name = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY), session.get_inputs()[0].name
    except (InputError, Failure):
        raise
    except Exception:  # onnxruntime's errors have no common class of their own
        raise InputError(
            f"{file} is no safetensors, onnx or pt2 file, or it is damaged: `coterie export` writes them."
        ) from None

    def run(images: Tensor) -> Outputs:
        outputs = [torch.from_numpy(array) for array in session.run(None, {name: images.numpy()})]
        return outputs[0], outputs[1] if len(outputs) > 1 else None

    return ExportedNetwork(parse_metadata(text, file), run, f"onnxruntime {onnxruntime.__version__}")


def open_session(content: bytes, spin: bool = True) -> Any:
    """Open an ONNX program with as many threads as torch has, and without onnxruntime's warnings.

    Without `spin` a session's threads leave the cores to others between two calls.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")  # the one that is checked before
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def torch_runner(network: nn.Module) -> Callable[[Tensor], Outputs]:
    """Return a function that runs a network without gradients."""

    def run(images: Tensor) -> Outputs:
        with torch.no_grad():
            outputs = network(images)
        return outputs if isinstance(outputs, tuple) else (outputs, None)

    return run
