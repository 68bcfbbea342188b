"""A float32 ONNX file becomes an int8 one, its ranges learnt from training images, its error measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..config.recipe import Recipe
from ..data.sampler import epoch_order
from ..errors import InputError
from ..methods.task import task_named
from ..metrics.evaluate import AnyScores, new_scores
from ..models.metadata import METADATA_KEY, Metadata
from .exported import ExportedNetwork, open_exported
from .formats import Writer, exporter_errors
from .verify import compare_outputs, resize_images, write_verified

CALIBRATION_IMAGES = 256
"""Training images that the activations' ranges are learnt from."""

LARGEST_LOSS = 5.0
"""Percent points of error that int8 may cost before the export is refused as broken."""


def write_int8(
    write: Writer, network: nn.Module, file: Path, recipe: Recipe, metadata: Metadata, images: list[Tensor]
) -> None:
    """Write a verified float32 file, then an int8 one from it, whose loss of accuracy is measured."""
    wide = file.with_name(file.name + ".float32")
    try:
        write_verified(write, network, wide, metadata, images)
        with exporter_errors(metadata):
            quantize_onnx(wide, file, calibration_batches(recipe, metadata))
        set_metadata(file, metadata)
        before, after = (_test_scores(open_exported(each), recipe, metadata) for each in (wide, file))
    finally:
        wide.unlink(missing_ok=True)
    error_before, error_after = before.result()["error"], after.result()["error"]
    if error_after - error_before > LARGEST_LOSS:
        raise InputError(
            f"int8 raises the error from {error_before:.2f} to {error_after:.2f} %: this network does not survive "
            "it, leave out `quantize`; nothing was replaced."
        )
    metadata.quantized = {
        "calibration_images": min(CALIBRATION_IMAGES, recipe.data.train_size),
        "test_images": after.count,
        "error_float32": error_before,
        "error_int8": error_after,
    }
    metadata.scores |= {"split": "test", **after.result()}  # of this file, not of the float32 one
    # int8 has learnt the ranges of real images: inputs far outside of them are cut off.
    metadata.verified = compare_outputs(network, open_exported(file), images, edges=False)
    set_metadata(file, metadata)


def quantize_onnx(source: Path, target: Path, batches: Iterator[Tensor]) -> None:
    """Quantise statically (QDQ): int8 weights per channel, int8 activations; the last layer stays float32."""
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
    """Return the classifiers, back from the outputs: 256 levels would make logits of different classes equal."""
    import onnx

    graph = onnx.load(file).graph
    producers = {output: node for node in graph.node for output in node.output}
    tensors, layers = [output.name for output in graph.output], []
    while tensors:
        node = producers.get(tensors.pop())
        if node is not None:
            layers.append(node.name)
            if node.op_type not in ("Gemm", "MatMul", "Conv"):
                tensors += node.input
    return layers


def calibration_batches(recipe: Recipe, metadata: Metadata) -> Iterator[Tensor]:
    """Yield training images: the test set stays unseen until it measures."""
    images = epoch_order(recipe.seed, 0, recipe.data.train_size)[:CALIBRATION_IMAGES]
    for start in range(0, len(images), 64):
        views, _ = recipe.data.views(images[start : start + 64], 1, recipe.seed, 0)
        yield resize_images(views[0], metadata)


def _test_scores(exported: ExportedNetwork, recipe: Recipe, metadata: Metadata) -> AnyScores:
    scores = new_scores(task_named(metadata.task))
    for images, labels in recipe.data.test_batches(64):
        scores.add(exported.run(resize_images(images, metadata))[0], labels)
    return scores


def set_metadata(file: Path, metadata: Metadata) -> None:
    """Replace the metadata of an ONNX file."""
    import onnx

    model = onnx.load(file)
    del model.metadata_props[:]
    model.metadata_props.add(key=METADATA_KEY, value=metadata.to_json())
    onnx.save(model, file)
