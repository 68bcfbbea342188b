"""The three formats: a network and its metadata become a file, and a file becomes something that predicts."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .. import methods, models
from ..errors import InputError, reason
from ..methods.base import Ensemble
from ..peers.net import PeerNet
from .audit import audit
from .metadata import KEY, Metadata, from_json

Format = Literal["safetensors", "onnx", "pt2"]
Outputs = tuple[Tensor, Tensor | None]
"""Logits (B, C), and of an ensemble also those of its peers (B, m, C)."""


@dataclass
class Loaded:
    """An exported file ready to predict: batches of prepared images to `Outputs`."""

    metadata: Metadata
    run: Callable[[Tensor], Outputs]
    runtime: str


class WithPeers(nn.Module):
    """An ensemble that also returns what its peers say, whose disagreement is a measure of uncertainty."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.method = ensemble.method

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        peers = self.method.net(images)
        logits = self.method.ensemble(peers)
        assert logits is not None
        return logits, peers.logits.transpose(0, 1)


# ---- writing


def writer(network: nn.Module, example: Tensor, kind: Format) -> Callable[[Path, Metadata], None]:
    """A function that writes the network in this format with given metadata; tracing happens once, here."""
    if kind == "safetensors":
        return lambda file, metadata: _save_weights(network, file, metadata)
    with _quiet(), torch.no_grad():
        if kind == "pt2":
            program = torch.export.export(network, (example,), dynamic_shapes=_dynamic(network), strict=False)
            for node in program.graph.nodes:  # they hold paths of the machine that exported
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
                    node.meta.pop(key, None)
            program.example_inputs = None
            return lambda file, metadata: _save_program(program, file, metadata)
        need_onnx("onnx", "onnxscript")
        names = ["logits", "peers"] if isinstance(network, WithPeers) else ["logits"]
        onnx = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            dynamic_shapes=_dynamic(network),
            input_names=["images"],
            output_names=names,
            verbose=False,
        )
    assert onnx is not None
    for node in onnx.model.graph:
        node.metadata_props.clear()  # as above
    return lambda file, metadata: _save_onnx(onnx, file, metadata)


def _dynamic(network: nn.Module) -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch")},)


def _save_weights(network: nn.Module, file: Path, metadata: Metadata) -> None:
    from safetensors.torch import save

    weights = {k: v.detach().cpu().contiguous().clone() for k, v in _weights(network).items()}
    file.write_bytes(save(weights, {"format": "pt", KEY: metadata.to_json()}))


def _weights(network: nn.Module) -> dict[str, Tensor]:
    """Every key of the user's class, even of tied weights; of an ensemble, what the peers share once."""
    state: dict[str, Tensor] = network.state_dict(keep_vars=True)
    if not isinstance(network, WithPeers):
        return state
    first: dict[int, str] = {}
    for name, tensor in state.items():
        first.setdefault(id(tensor), name)
    return {name: state[name] for name in first.values()}


def _save_program(program: torch.export.ExportedProgram, file: Path, metadata: Metadata) -> None:
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(program, buffer, extra_files={KEY: metadata.to_json()})
    file.write_bytes(buffer.getvalue())


LARGEST_ONNX = 1536 * 2**20
"""Bytes of weights beyond which torch writes them into a second file."""


def _save_onnx(program: Any, file: Path, metadata: Metadata) -> None:
    weights = (value.const_value for value in program.model.graph.initializers.values())
    if sum(weight.nbytes for weight in weights if weight is not None) > LARGEST_ONNX:
        raise InputError("These weights are too large for one ONNX file: take --format pt2 or safetensors.")
    program.model.metadata_props[KEY] = metadata.to_json()
    with _quiet():
        program.save(str(file), external_data=False)


# ---- loading


def load(file: Path, model: str | None = None) -> Loaded:
    """Load any of the three, told apart by their content, without running code that is in them.

    `model` names the network where a safetensors file's own is the user's code: only the user can say that it
    may be run.
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(9)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    if start[:4] == b"PK\x03\x04":
        return _load_program(file)
    if start[8:] == b"{":
        return _load_weights(file, model)
    if start[:1] == b"\x80":
        raise InputError(
            f"{file} is a pickle, which could run code when loaded: export the network with `coterie export`."
        )
    return _load_onnx(file)


def _load_weights(file: Path, model: str | None) -> Loaded:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    try:
        with safe_open(file, framework="pt") as stream:
            text = (stream.metadata() or {}).get(KEY)
        metadata = from_json(text, file)
        network = _rebuild(metadata, file, model)
        expected, weights = _weights(network), load_file(file)
        if expected.keys() != weights.keys():
            odd = sorted(expected.keys() ^ weights.keys())
            raise RuntimeError(f"{len(odd)} weights are missing or too many, {odd[0]} among them.")
        network.load_state_dict(weights, strict=False)  # shapes are checked, and shared modules have two names
    except SafetensorError as error:
        raise InputError(f"{file} is damaged: {error}.") from None
    except RuntimeError as error:
        name = model or metadata.model["name"]
        raise InputError(f"The weights in {file} do not fit {name}: {reason(error)}") from None
    return Loaded(metadata, _torch_runner(network.eval()), f"torch {torch.__version__}")


def _rebuild(metadata: Metadata, file: Path, model: str | None) -> nn.Module:
    """The network that the metadata names, from Coterie's, timm's or torchvision's code, or as the user says."""
    name, options = metadata.model["name"], metadata.model["options"]
    known = r"((timm|torchvision):)?\w[\w.-]*"
    if model is None and not re.fullmatch(rf"{known}(,{known})*", name):
        raise InputError(
            f"{file} holds the weights of '{name}', code that is not in the file: if you trust that code, pass "
            f"--model {name}; an onnx or pt2 export needs no code."
        )
    channels, height, width = metadata.shape
    makes = [
        models.factory(each, len(metadata.classes), channels, options, (height, width), fresh=False)
        for each in (model or name).split(",")
    ]
    told = metadata.ensemble
    if told is None:
        return makes[0]()
    method = methods.available().get(told["method"])
    if method is None:
        raise InputError(
            f"{file} is an ensemble of the method '{told['method']}', which is not one of Coterie's: "
            "export it as onnx or pt2."
        )
    make = makes if len(makes) > 1 else makes[0]
    net = PeerNet(make, told["peers"], told["cut"], example=torch.randn(2, *metadata.shape))
    try:
        return WithPeers(Ensemble(method(net, **told["options"])))
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"The ensemble in {file} cannot be made: {error}.") from None


def _load_program(file: Path) -> Loaded:
    from torch.export.pt2_archive._package import load_pt2

    content = file.read_bytes()
    audit(file, content)
    try:
        with _quiet():
            archive = load_pt2(io.BytesIO(content))  # not torch.export.load: see `audit`
            network = archive.exported_programs["model"].module()
    except Exception as error:  # torch raises whatever it meets
        raise InputError(f"{file} is damaged: {type(error).__name__} when torch loads it.") from None
    metadata = from_json(archive.extra_files.get(KEY), file)
    return Loaded(metadata, _torch_runner(network), f"torch.export {torch.__version__}")


def _load_onnx(file: Path) -> Loaded:
    need_onnx("onnxruntime")
    import onnxruntime

    # From bytes: a hostile file that points at other files of this machine as its weights finds none.
    try:
        with _quiet():
            session = onnxruntime.InferenceSession(file.read_bytes(), session_options(), ["CPUExecutionProvider"])
        text, name = session.get_modelmeta().custom_metadata_map.get(KEY), session.get_inputs()[0].name
    except Exception:  # onnxruntime's errors have no common class of their own
        raise InputError(
            f"{file} is no safetensors, onnx or pt2 file, or it is damaged: `coterie export` writes them."
        ) from None
    metadata = from_json(text, file)

    def run(images: Tensor) -> Outputs:
        outputs = [torch.from_numpy(array) for array in session.run(None, {name: images.numpy()})]
        return outputs[0], outputs[1] if len(outputs) > 1 else None

    return Loaded(metadata, run, f"onnxruntime {onnxruntime.__version__}")


def session_options() -> Any:
    """onnxruntime with as many threads as torch has, and without its warnings on our terminal."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    return options


def _torch_runner(network: nn.Module) -> Callable[[Tensor], Outputs]:
    def run(images: Tensor) -> Outputs:
        with torch.no_grad():
            outputs = network(images)
        return outputs if isinstance(outputs, tuple) else (outputs, None)

    return run


def need_onnx(*packages: str) -> None:
    """Refuse, with the remedy, where the optional packages are absent."""
    import importlib.util

    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}.")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn about their own internals, which tells a user nothing."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "torch.export", "onnxscript")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
