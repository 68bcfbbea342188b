"""Which modules everything passes through: all paths from the image to the logits, counted in one graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .trace import evaluating


def bottlenecks(model: nn.Module, example: Tensor, names: list[str]) -> list[str]:
    """Return those of the named modules whose input is all that the rest of the network sees of the image.

    A shortcut around a module, or a second tensor carried past it, is a path from the image to the logits that
    does not enter it. The input of each module is marked by a node in the autograd graph of one forward pass; a
    module is kept if as many paths lead through its mark as there are in all.
    """
    marks: dict[str, Any] = {}
    handles = []
    for name in names:

        def mark(module: nn.Module, args: tuple[Any, ...], name: str = name) -> Any:
            if name in marks or not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
                return None
            marked = args[0].clone()
            marks[name] = marked.grad_fn
            return (marked, *args[1:])

        handles.append(model.get_submodule(name).register_forward_pre_hook(mark))
    frozen = [p for p in model.parameters() if p.requires_grad]
    try:
        with evaluating(model), torch.enable_grad():
            for p in frozen:
                p.requires_grad_(False)  # so that paths begin at the image alone
            image = example.detach().clone().requires_grad_().clone()
            end = model(image).sum().grad_fn
    finally:
        for p in frozen:
            p.requires_grad_(True)
        for handle in handles:
            handle.remove()
    order = _topological(end)
    from_end: dict[Any, int] = dict.fromkeys(order, 0)
    from_end[end] = 1
    for node in order:
        for following, _ in node.next_functions:
            if following is not None:
                from_end[following] += from_end[node]
    to_image: dict[Any, int] = {}
    for node in reversed(order):
        onwards = [following for following, _ in node.next_functions if following is not None]
        to_image[node] = sum(to_image[following] for following in onwards) if onwards else 1
    total = to_image[end]
    return [n for n in names if n in marks and from_end.get(marks[n], 0) * to_image.get(marks[n], 0) == total]


def _topological(end: Any) -> list[Any]:
    """Return the graph's nodes, each before those it depends on; without recursion, as networks are deep."""
    order: list[Any] = []
    seen = {end}
    stack = [(end, iter(end.next_functions))]
    while stack:
        node, following = stack[-1]
        for child, _ in following:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append((child, iter(child.next_functions)))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]
