"""Look into an ONNX file, before a runtime loads it, for weights that it keeps in other files."""

from __future__ import annotations

from collections.abc import Iterator

# Written by hand: onnxruntime is enough to run a file, and does not bring the package onnx.
FIELDS: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
}
"""The fields of each message of onnx.proto, by number, in which a tensor can stand."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a TensorProto: where its data is, and whether it is in another file."""
DEEPEST = 100
"""Levels of messages; protobuf reads no more either."""


def has_external_data(content: bytes) -> bool:
    """Tell whether an ONNX file keeps data in other files; raise a ValueError where it is no ONNX file."""
    return _is_external(memoryview(content), "ModelProto", DEEPEST)


def _is_external(message: memoryview, kind: str, depth: int) -> bool:
    if depth == 0:
        raise ValueError("too deep")
    if kind == "TensorProto":
        return any(n == EXTERNAL_DATA or (n == DATA_LOCATION and value) for n, value in _fields(message))
    kinds = FIELDS[kind]
    return any(
        _is_external(value, kinds[number], depth - 1)
        for number, value in _fields(message)
        if number in kinds and isinstance(value, memoryview)
    )


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a protobuf message; of fixed-size numbers, the bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire not in (1, 2, 5):
            raise ValueError("an unknown kind of field")
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            size, place = _varint(message, place)
        if place + size > len(message):
            raise ValueError("a field ends after its message")
        yield number, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the place after it."""
    value = 0
    for i, byte in enumerate(message[place : place + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value & (2**64 - 1), place + i + 1
    raise ValueError("a number without an end")
