"""A float32 ONNX file becomes an int8 one, its ranges learnt from training images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from .formats import need_onnx
from .metadata import KEY, Metadata

IMAGES = 256
"""Training images that the activations' ranges are learnt from."""


def quantise(source: Path, target: Path, batches: Iterator[Tensor]) -> None:
    """Static quantisation (QDQ): int8 weights per channel, int8 activations; the last layer stays float32."""
    need_onnx("onnx", "onnxruntime")
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            images = next(batches, None)
            return None if images is None else {"images": images.numpy()}

    with tempfile.TemporaryDirectory() as folder:
        folded = Path(folder) / "folded.onnx"  # batch-norm folded into the convolutions
        quant_pre_process(source, folded, skip_symbolic_shape=True)
        quantization.quantize_static(
            folded,
            target,
            Reader(),
            nodes_to_exclude=_last_layers(folded),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
        )


def _last_layers(file: Path) -> list[str]:
    """The classifiers, back from the outputs: 256 levels would make logits of different classes equal."""
    import onnx

    graph = onnx.load(file).graph
    makers = {output: node for node in graph.node for output in node.output}
    wanted, found = [output.name for output in graph.output], []
    while wanted:
        node = makers.get(wanted.pop())
        if node is not None:
            found.append(node.name)
            if node.op_type not in ("Gemm", "MatMul", "Conv"):
                wanted += node.input
    return found


def set_metadata(file: Path, metadata: Metadata) -> None:
    """Replace the metadata of an ONNX file."""
    import onnx

    model = onnx.load(file)
    del model.metadata_props[:]
    model.metadata_props.add(key=KEY, value=metadata.to_json())
    onnx.save(model, file)
