"""Networks of others: `timm:NAME`, `torchvision:NAME`, `package.module:factory`, `file.py:factory`, `resnet18`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from ..compat import import_torchvision
from ..errors import InputError, unknown
from ..trust import allow_imports_from_here

__all__ = ["resnet18"]

CHANNELS = ("in_channels", "in_chans")
SIZES = ("img_size", "image_size")
"""What factories call the number of channels and the height and width of an image."""
Size = tuple[int, int] | None


def from_timm(
    name: str, num_classes: int, in_channels: int, size: Size, small_stem: bool = False, **options: Any
) -> nn.Module:
    """Build a network of timm, for the size of the images if it takes one."""
    _check_name("timm", name)
    timm = import_torchvision("timm")
    names = timm.list_models()
    if name.partition(".")[0] not in names:
        raise unknown("timm network", name, names)
    if options.get("pretrained"):
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # our one sentence says it
    options = {"num_classes": num_classes, "in_chans": in_channels, **options}
    if size is not None and "img_size" not in options:
        try:
            return adapt(timm.create_model(name, img_size=_side(size), **options), in_channels, small_stem)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    return adapt(timm.create_model(name, **options), in_channels, small_stem)


def from_torchvision(
    name: str, num_classes: int, in_channels: int, size: Size, small_stem: bool = False, **options: Any
) -> nn.Module:
    """Build a network of torchvision, without auxiliary heads, which give more than logits in training."""
    _check_name("torchvision", name)
    models = import_torchvision("torchvision").models
    names = models.list_models(module=models)
    if name not in names:
        raise unknown("torchvision network", name, names)
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": True, **options}
    if size is not None and size[0] == size[1] and name.startswith("vit_"):
        options = {"image_size": size[0], **options}
    return adapt(models.get_model(name, num_classes=num_classes, **options), in_channels, small_stem)


def _check_name(source: str, name: str) -> None:
    if not name:
        raise InputError(f"A name is missing after {source}: write one there, such as {source}:resnet18.")


def resnet18(num_classes: int = 1000, in_channels: int = 3, small_stem: bool = False) -> nn.Module:
    """torchvision's ResNet-18, cut before layer3 as in the paper (the last two stages per peer)."""
    network = from_torchvision("resnet18", num_classes, in_channels, None, small_stem)
    network.default_cut = "layer3"  # type: ignore[assignment]
    network.default_cfg = {"input_size": (3, 32, 32) if small_stem else (3, 224, 224)}  # type: ignore[assignment]
    return network


def adapt(network: nn.Module, in_channels: int, small_stem: bool) -> nn.Module:
    """Fit the first convolution to the images' channels; `small_stem` makes a ResNet's fit for small images.

    The small stem is a 3x3 convolution of stride 1 and no max-pool, as CIFAR's ResNets have it.
    """
    if small_stem:
        stem = getattr(network, "conv1", None)
        last = [m for m in stem.modules() if isinstance(m, nn.Conv2d)][-1:] if stem is not None else []
        if not last or not hasattr(network, "maxpool"):
            raise InputError("small_stem is for the ResNets of timm and torchvision; leave it out here.")
        network.conv1 = nn.Conv2d(in_channels, last[0].out_channels, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
        return network
    name, first = next(((n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d)), ("", None))
    if first is not None and first.in_channels != in_channels and first.groups == 1:
        shape: dict[str, Any] = {key: getattr(first, key) for key in ("kernel_size", "stride", "padding")}
        convolution = nn.Conv2d(in_channels, first.out_channels, **shape, bias=first.bias is not None)
        network.set_submodule(name, convolution)
    return network


def call_factory(
    make: Callable[..., Any], num_classes: int, in_channels: int, size: Size, **options: Any
) -> nn.Module:
    """Build the network of a user's function or class, with classes, channels and size if it takes them."""
    accepted = inspect.signature(make).parameters
    arguments: dict[str, Any] = {"num_classes": num_classes, **dict.fromkeys(CHANNELS, in_channels)}
    if size is not None:
        arguments |= dict.fromkeys(SIZES, _side(size))
    network = make(**{k: v for k, v in arguments.items() if k in accepted}, **options)
    if not isinstance(network, nn.Module):
        name = getattr(make, "__name__", type(make).__name__)
        raise InputError(f"{name} returned {type(network).__name__}, not a torch.nn.Module.")
    return network


def _side(size: tuple[int, int]) -> int | tuple[int, int]:
    """Return the one side of a square: some factories take nothing else."""
    return size[0] if size[0] == size[1] else size


def import_factory(name: str) -> Callable[..., Any]:
    source, _, attribute = name.rpartition(":")
    module = _from_file(Path(source)) if source.endswith(".py") else _from_package(source)
    make = getattr(module, attribute, None)
    if make is None:
        names = [n for n, item in vars(module).items() if callable(item) and not n.startswith("_")]
        raise unknown(f"factory in {source}", attribute, names)
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(f"{name} is not a factory: name a function or class that makes a new network.")
    return make


def _from_file(file: Path) -> Any:
    if not file.is_file():
        raise InputError(f"There is no file {file}.")
    name = f"coterie_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules.get(name)
    if module is None or module.__file__ != spec.origin:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # registered, so that it can be pickled
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _from_package(name: str) -> Any:
    allow_imports_from_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise InputError(f"There is no module '{name}' to import a network from.") from None
        raise
