"""Which modules everything passes through: no path from the image to the logits leads around them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .trace import evaluating


def bottlenecks(model: nn.Module, example: Tensor, names: list[str]) -> list[str]:
    """Return those of the named modules whose input is all that the rest of the network sees of the image.

    A shortcut around a module, or a second tensor carried past it, is a path from the image to the logits that
    does not enter it. The input of each module is marked by a node in the autograd graph of one forward pass; a
    module is kept if the logits do not depend on the image without its mark.
    """
    marks: dict[str, Any] = {}

    def mark(name: str, module: nn.Module, args: tuple[Any, ...]) -> Any:
        if name in marks or not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        marked = args[0].clone()
        marks[name] = marked.grad_fn
        return (marked, *args[1:])

    with evaluating(model), torch.enable_grad(), ExitStack() as undo:
        for name in names:
            undo.enter_context(model.get_submodule(name).register_forward_pre_hook(partial(mark, name)))
        for p in model.parameters():
            if p.requires_grad:  # so that only what depends on the image is marked
                undo.callback(p.requires_grad_(False).requires_grad_, True)
        image = example.detach().clone().requires_grad_().clone()
        start = image.grad_fn
        end = model(image).sum().grad_fn
    return [name for name in names if name in marks and not _leads_around(marks[name], start, end)]


def _leads_around(mark: Any, start: Any, end: Any) -> bool:
    """Tell whether a path of the graph leads from its end to its start without this node."""
    seen = {mark}
    nodes = [end]
    while nodes:
        node = nodes.pop()
        if node is start:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [following for following, _ in node.next_functions]
    return False
