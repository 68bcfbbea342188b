"""Build the networks that become peers: call the factory, make a dry run, draw new weights, share modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, origin, reason, warn
from .in_place import trial_copy
from .trace import Split, Trace, evaluating, shared_parameters

Factory = Callable[[], nn.Module]


def make_network(maker: Factory | nn.Module) -> nn.Module:
    """Call a factory, or copy a module."""
    if not callable(maker):
        raise InputError(f"A PeerNet is made from a network or a function that makes one, not from {maker!r}.")
    model = copy.deepcopy(maker) if isinstance(maker, nn.Module) else maker()
    if not isinstance(model, nn.Module):
        raise InputError(f"The factory returned {type(model).__name__}, not a torch.nn.Module.")
    return model


def example_for(model: nn.Module, shape: tuple[int, int, int] | None = None) -> Tensor:
    """Return two images of this shape, else of the network's (timm's `default_cfg`), else 3x32x32 or 3x224x224."""
    declared = getattr(model, "default_cfg", None) or {}
    sizes = [declared["input_size"]] if "input_size" in declared else [(3, 32, 32), (3, 224, 224)]
    sizes = sizes if shape is None else [shape]
    reference = next(model.parameters(), torch.zeros(()))
    for size in sizes:
        example = torch.randn(2, *size, device=reference.device, dtype=reference.dtype)
        try:
            with evaluating(model):
                model(example)
        except (RuntimeError, ValueError, AssertionError):
            continue
        return example
    refused = ", ".join("x".join(map(str, size)) for size in sizes)
    raise InputError(f"{type(model).__name__} takes no image of {refused}: pass a batch of inputs as `example`.")


def trace_logits(model: nn.Module, example: Tensor) -> Trace:
    """Make the dry run of a network; refuse one that fails or gives anything but logits, also in training."""
    try:
        trace = Trace(model, example)
    except Exception as error:  # whatever a user's forward may raise
        size = "x".join(map(str, example.shape[1:]))
        place = f" ({own})" if (own := origin(error)) else ""
        raise InputError(
            f"{type(model).__name__} fails on a batch of {size} images{place}: {type(error).__name__}: "
            f"{reason(error)}"
        ) from error
    _check_logits(model, trace.output, example)
    with trial_copy(model, example) as (trained, images):
        trained.train()
        try:
            output = trained(images)
        except Exception:  # it may want a device or processes that it does not have yet
            return trace
    _check_logits(model, output, images, " in training")
    return trace


def _check_logits(model: nn.Module, output: Any, images: Tensor, when: str = "") -> None:
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != len(images):
        raise InputError(
            f"{type(model).__name__} must return logits of shape (batch, classes), but gave "
            f"{_kind(output)}{when}: wrap it in a module whose forward returns the logits alone."
        )


def _kind(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    if isinstance(output, dict):
        return f"a dict with {', '.join(map(str, output))}"
    return f"a {type(output).__name__}" + (f" of {len(output)}" if isinstance(output, (tuple, list)) else "")


def same_classes(traces: list[Trace]) -> int:
    """Return how many classes all of these networks have; refuse different numbers."""
    classes = [trace.output.shape[1] for trace in traces]
    if len(set(classes)) > 1:
        raise InputError(f"Peers must have the same number of classes, not {', '.join(map(str, classes))}.")
    return int(classes[0])


def reinitialise(model: nn.Module, split: Split | None) -> None:
    """Draw new weights for every layer of the branch that knows how to."""
    kept = {part for name in split.modules for part in model.get_submodule(name).modules()} if split else set()
    for module in model.modules():
        for reset in ("reset_parameters", "_reset_parameters"):  # attention has the latter
            if module not in kept and callable(draw := getattr(module, reset, None)):
                draw()
                break


def warn_of_equal_weights(models: list[nn.Module], split: Split | None) -> None:
    """Warn of weights that no layer knows how to draw anew: they are the same in all peers."""
    if len(models) == 1:
        return
    first, second = models[:2]
    shared = set(map(id, shared_parameters(first, split))) if split else set()
    own = [(name, p) for name, p in first.named_parameters() if id(p) not in shared and p.dim() > 1]
    equal = [name for name, p in own if torch.equal(p, second.get_parameter(name))]
    if equal:
        more = f" and {len(equal) - 3} more" if len(equal) > 3 else ""
        warn(
            f"{', '.join(equal[:3])}{more} cannot be drawn anew and start equal in all peers: "
            "give a function that makes the network."
        )


def share_modules(first: nn.Module, other: nn.Module, split: Split) -> None:
    """Give `other` the very modules, parameters and buffers that `first` has before the cut."""
    twins: dict[int, nn.Module] = {}
    for name in split.modules:
        shared, replaced = (list(model.get_submodule(name).modules()) for model in (first, other))
        if len(shared) != len(replaced):
            raise InputError(
                f"The factory makes networks of different structure: '{name}' is not always the same."
            )
        twins |= zip(map(id, replaced), shared, strict=True)
    for module in list(other.modules()):
        for child, part in module._modules.items():  # by what they are: a module may have several names
            module._modules[child] = twins.get(id(part), part)
    for name in split.owners:
        source, target = first.get_submodule(name), other.get_submodule(name)
        target._parameters.update(source._parameters)
        target._buffers.update(source._buffers)
