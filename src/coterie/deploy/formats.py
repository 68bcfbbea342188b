"""The formats of an export: which one a file's name means, and how a network and its metadata become a file."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError, reason
from ..methods.base import Ensemble
from ..models.metadata import METADATA_KEY, Metadata, encode_weights

ExportFormat = Literal["safetensors", "onnx", "pt2", "pth", "timm", "executorch"]
Writer = Callable[[Path, Metadata], None]

ENDINGS: dict[str, ExportFormat] = {
    ".safetensors": "safetensors",
    ".onnx": "onnx",
    ".pt2": "pt2",
    ".pth": "pth",
    ".pt": "pth",
    ".pte": "executorch",
}
"""The format that the ending of a file means; `timm` is a folder."""

LARGEST_ONNX = 1536 * 2**20
"""Bytes of weights beyond which torch writes them into a second file."""


def choose_format(file: Path | None, format: ExportFormat | None) -> ExportFormat:
    """Return the format of an export by the ending of its file; refuse a `format` that contradicts it.

    Without an ending it is safetensors.
    """
    if file is None or not file.suffix:
        return format or "safetensors"
    meant = ENDINGS.get(file.suffix.lower())
    if format is None and meant is None:
        raise InputError(f"{file} has none of the endings {', '.join(ENDINGS)}: give `format`.")
    if format is not None and meant not in (None, format):
        raise InputError(f"{file} has the ending of {meant}, but `format` is {format}: change one of them.")
    return format or meant or "safetensors"


class EnsembleWithPeers(nn.Module):
    """An ensemble that also returns its peers' logits, whose disagreement is a measure of uncertainty."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.method = ensemble.method

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        peers = self.method.net(images)
        logits = self.method.ensemble(peers)
        assert logits is not None
        return logits, peers.logits.transpose(0, 1)


def make_writer(network: nn.Module, example: Tensor, kind: ExportFormat) -> Writer:
    """Return a function that writes the network in this format with some metadata; the network is traced once."""
    if kind == "safetensors":
        return lambda file, metadata: _write_weights(network, file, metadata)
    if kind == "pth":
        return lambda file, metadata: _write_state_dict(network, file)
    if kind == "executorch":
        return _executorch_writer(network, example[:1])
    batch = ({0: torch.export.Dim("batch")},)  # its size is free
    with quiet_exporters(), torch.no_grad():
        if kind == "pt2":
            program = torch.export.export(network, (example,), dynamic_shapes=batch, strict=False)
            _forget_source(program)
            return lambda file, metadata: _write_program(program, file, metadata)
        require_onnx("onnx", "onnxscript")
        onnx = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            dynamic_shapes=batch,
            input_names=["images"],
            output_names=["logits", "peers"] if isinstance(network, EnsembleWithPeers) else ["logits"],
            verbose=False,
        )
    assert onnx is not None
    for node in onnx.model.graph:
        node.metadata_props.clear()  # as above
    return lambda file, metadata: _write_onnx(onnx, file, metadata)


def _forget_source(program: torch.export.ExportedProgram) -> None:
    """Remove what a program holds of the code that was traced: paths of the machine that exported."""
    for node in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)
    program.example_inputs = None


def _executorch_writer(network: nn.Module, image: Tensor) -> Writer:
    """Return a writer of an ExecuTorch program for one image at a time, computed by XNNPACK."""
    if importlib.util.find_spec("executorch") is None:
        raise InputError("`format` executorch needs executorch: pip install executorch.")
    with quiet_exporters(), torch.no_grad():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        program = torch.export.export(network, (image,), strict=False)
        _forget_source(program)
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()

    def write(file: Path, metadata: Metadata) -> None:
        file.write_bytes(lowered.buffer)

    return write


def _write_weights(network: nn.Module, file: Path, metadata: Metadata) -> None:
    file.write_bytes(encode_weights(file_weights(network), metadata))


def _write_state_dict(network: nn.Module, file: Path) -> None:
    """Write the weights alone: a plain state dict has no place for metadata."""
    weights = {name: weight.detach().cpu().contiguous().clone() for name, weight in network.state_dict().items()}
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    file.write_bytes(buffer.getvalue())


def file_weights(network: nn.Module) -> dict[str, Tensor]:
    """Return every weight of the user's class, even tied ones; of an ensemble, what the peers share once."""
    state: dict[str, Tensor] = network.state_dict(keep_vars=True)
    if not isinstance(network, EnsembleWithPeers):
        return state
    first: dict[int, str] = {}
    for name, tensor in state.items():
        first.setdefault(id(tensor), name)
    return {name: state[name] for name in first.values()}


def _write_program(program: torch.export.ExportedProgram, file: Path, metadata: Metadata) -> None:
    buffer = io.BytesIO()
    with quiet_exporters():
        torch.export.save(program, buffer, extra_files={METADATA_KEY: metadata.to_json()})
    file.write_bytes(buffer.getvalue())


def _write_onnx(program: Any, file: Path, metadata: Metadata) -> None:
    weights = (value.const_value for value in program.model.graph.initializers.values())
    if sum(weight.nbytes for weight in weights if weight is not None) > LARGEST_ONNX:
        raise InputError("These weights are too large for one ONNX file: choose pt2 or safetensors as `format`.")
    program.model.metadata_props[METADATA_KEY] = metadata.to_json()
    with quiet_exporters():
        program.save(str(file), external_data=False)


def require_onnx(*packages: str) -> None:
    """Raise an InputError that names the remedy where optional packages are absent."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}.")


@contextlib.contextmanager
def exporter_errors(metadata: Metadata) -> Iterator[None]:
    """Turn what an exporter raises, or the user's own code that it traces, into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        size = "x".join(map(str, metadata.shape))
        name = metadata.model["name"]
        raise InputError(f"{name} cannot be exported for images of {size}: {reason(error)}") from None


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """Suppress the exporters' warnings about their own internals."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        logging.disable(max(disabled, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(disabled)
