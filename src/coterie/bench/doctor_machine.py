"""What `coterie doctor` says of a machine: versions, devices, drivers, memory, disk; no name of user or host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from ..config.recipe import Recipe
from ..runs.environment import environment
from .checks import Outcome, Skipped

FACTS = (
    *("coterie", "commit", "date", "python", "torch", "torchvision", "timm", "numpy", "cuda"),
    *("system", "processor", "cores", "threads", "memory"),
)
"""What is taken from the environment of a run; its host, directory and command are not."""

LEAST_DISK = 2**30


def describe_machine() -> dict[str, Any]:
    """Return versions and hardware as plain values."""
    facts = environment(0)
    return {
        **{name: facts[name] for name in FACTS},
        "cudnn": torch.backends.cudnn.version(),
        "driver": nvidia_driver(),
        "compiler": Path(compiler).name if (compiler := find_compiler()) else None,
        "disk_free": shutil.disk_usage(Path.cwd()).free,
        "devices": [describe_device(device) for device in find_devices()],
    }


def find_devices(name: str | None = None) -> list[torch.device]:
    """Return the device of this name, or else the CPU and every accelerator that torch finds."""
    if name is not None:
        return [Recipe(device=name).torch_device()]
    devices = [torch.device("cpu")]
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and torch.accelerator.is_available():
        count = torch.accelerator.device_count()
        kind = accelerator.type
        devices += [torch.device(f"{kind}:{i}" if count > 1 else kind) for i in range(count)]
    return devices


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return a device's name, memory and, for CUDA, compute capability."""
    facts: dict[str, Any] = {"device": str(device)}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        capability = f"{properties.major}.{properties.minor}"
        facts |= {"name": properties.name, "memory": properties.total_memory, "capability": capability}
    elif device.type == "mps":
        facts |= {"memory": torch.mps.recommended_max_memory()}
    return facts


def find_compiler() -> str | None:
    """Return the C++ compiler that `--compile` on a CPU would use."""
    return next((path for name in ("g++", "clang++", "cl") if (path := shutil.which(name))), None)


def nvidia_driver() -> str | None:
    """Return the version of NVIDIA's driver, None where there is none."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.splitlines()[0].strip() if result.returncode == 0 and result.stdout.strip() else None


def check_versions(machine: dict[str, Any]) -> Outcome:
    names = ("coterie", "python", "torch", "torchvision", "timm", "numpy")
    commit = f", commit {machine['commit'][:12]}" if machine["commit"] else ""
    return Outcome("pass", ", ".join(f"{name} {machine[name]}" for name in names) + commit)


def check_hardware(machine: dict[str, Any]) -> Outcome:
    gigabytes = {"memory": machine["memory"] / 2**30, "disk_free": machine["disk_free"] / 2**30}
    message = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{gigabytes['memory']:.1f} GB memory, {gigabytes['disk_free']:.1f} GB free disk, {machine['system']}"
    )
    if machine["disk_free"] < LEAST_DISK:
        return Outcome("fail", f"Only {gigabytes['disk_free']:.2f} GB of disk are free: make room.", gigabytes)
    return Outcome("pass", message, gigabytes)


def check_gpus(machine: dict[str, Any]) -> Outcome:
    """Name the GPUs; fail where there is one that torch cannot use."""
    version = f"torch {machine['torch']}"
    gpus = [device for device in machine["devices"] if device["device"] != "cpu"]
    if gpus:
        named = [
            f"{gpu['device']}: {gpu.get('name', 'GPU')}, {gpu.get('memory', 0) / 2**30:.1f} GB" for gpu in gpus
        ]
        driver = f"; driver {machine['driver']}" if machine["driver"] else ""
        return Outcome("pass", "; ".join(named) + driver)
    if machine["driver"] is not None:
        return Outcome(
            "fail",
            f"NVIDIA's driver {machine['driver']} is here, but {version} finds no GPU: install the build of torch "
            "for your CUDA version (pytorch.org/get-started), or update the driver.",
        )
    raise Skipped(f"no GPU found by torch (torch.cuda.is_available() is false; {version})")
