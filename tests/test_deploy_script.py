"""The script of docs/deploy.md: the weights in the user's own class, where Coterie cannot be imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch

from coterie.export import export
from coterie.models import initialise, resnet
from coterie.run import restored

DOCS = Path(__file__).parents[1] / "docs" / "deploy.md"


def test_the_script_in_the_docs_runs_without_coterie(pcl_run: Path, tmp_path: Path) -> None:
    script = re.search(r"<!-- script: .*?-->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert script and "import coterie" not in script[1] and "from coterie" not in script[1]
    (tmp_path / "deploy.py").write_text(script[1])
    # "Your own class": plain PyTorch files, made part of nothing.
    for module, name in ((resnet, "my_network.py"), (initialise, "initialise.py")):
        source = Path(module.__file__).read_text()
        (tmp_path / name).write_text(source.replace("from .", "from "))
    export(pcl_run, "safetensors", output=tmp_path / "student.safetensors", calibrated=True)

    recipe, method, _ = restored(pcl_run)
    names = [tmp_path / f"{i}.png" for i in range(8)]
    for i, name in enumerate(names):
        recipe.data.original(i, "test").save(name)

    blocked = "import sys, runpy; sys.modules['coterie'] = None; sys.path.insert(0, '.'); del sys.argv[0]; "
    run = [sys.executable, "-I", "-c", blocked + "runpy.run_path(sys.argv[0], run_name='__main__')"]
    check = subprocess.run(
        [*run[:3], "import sys; sys.modules['coterie'] = None; import coterie"], capture_output=True
    )
    assert check.returncode == 1 and b"ModuleNotFoundError" in check.stderr

    arguments = ["deploy.py", "student.safetensors", *(n.name for n in names)]
    result = subprocess.run([*run, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    temperature = export(pcl_run, output=tmp_path / "again.safetensors", calibrated=True).metadata.temperature
    with torch.no_grad():
        p = (method.deploy()(next(recipe.data.test_batches(8))[0]) / temperature).softmax(1)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[1] for line in lines] == [str(int(k)) for k in p.argmax(1)]
    torch.testing.assert_close(torch.tensor([float(line[2]) for line in lines]), p.amax(1), atol=2e-6, rtol=1e-5)
