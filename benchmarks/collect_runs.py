"""Copy the finished runs of a frozen clone's results/ into this repository, with the paths of its machine removed.

    python benchmarks/collect_runs.py ../study

Metrics, configuration and environment are copied, no weights. A run that is here already must be the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import yaml

RESULTS = Path(__file__).parent.parent / "results"
FILES = ("config.yaml", "data.json", "environment.json", "metrics.jsonl", "resolved.json")


def finished(run: Path) -> bool:
    """Tell whether a run has a record of its last epoch."""
    records = run / "metrics.jsonl"
    if not records.is_file() or not records.read_text():
        return False
    last = json.loads(records.read_text().splitlines()[-1])
    return bool(last["epoch"] + 1 == yaml.safe_load((run / "config.yaml").read_text())["epochs"])


def collect(clone: Path, results: Path = RESULTS) -> list[Path]:
    """Copy what is finished in the clone and missing here; return the new run directories."""
    root, new = clone.resolve(), []
    for source in sorted(file.parent for file in (root / "results").glob("**/config.yaml")):
        target = results / source.relative_to(root / "results")
        if not finished(source):
            continue
        if target.exists():
            if (target / "metrics.jsonl").read_bytes() != (source / "metrics.jsonl").read_bytes():
                raise SystemExit(f"{target} has other records than the clone's run.")
            continue
        target.mkdir(parents=True)
        for name in FILES:
            if (source / name).is_file():
                shutil.copy(source / name, target / name)
        environment = json.loads((target / "environment.json").read_text())
        for part in (environment, *environment.get("continued", [])):
            part["directory"] = str(Path(part["directory"]).relative_to(root))
        (target / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")
        protocol = source.parent / "protocol.json"
        if protocol.is_file():
            shutil.copy(protocol, target.parent / protocol.name)
        new.append(target)
    return new


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    for run in collect(parser.parse_args().clone):
        print(run.relative_to(RESULTS.parent))
