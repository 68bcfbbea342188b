"""The script of docs/deploy.md: the weights in the user's own class, where Coterie cannot be imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
from PIL import Image

from coterie import models
from coterie.deploy import pictures
from coterie.deploy.export import export_run
from coterie.deploy.formats import make_writer
from coterie.models import init, resnet
from coterie.runs.rebuild import restored
from tests.helpers.deployables import metadata

DOCS = Path(__file__).parents[2] / "docs" / "deploy.md"


def _script(folder: Path, *arguments: str) -> str:
    """What the script prints, in a folder with a network of the user's and without Coterie."""
    script = re.search(r"<!-- script: .*?-->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert script and "import coterie" not in script[1] and "from coterie" not in script[1]
    (folder / "deploy.py").write_text(script[1])
    # "Your own class": plain PyTorch files, made part of nothing.
    for module, name in ((resnet, "my_network.py"), (init, "init.py")):
        source = Path(module.__file__).read_text()
        (folder / name).write_text(source.replace("from .", "from "))
    blocked = "import sys, runpy; sys.modules['coterie'] = None; sys.path.insert(0, '.'); del sys.argv[0]; "
    run = [sys.executable, "-I", "-c", blocked + "runpy.run_path(sys.argv[0], run_name='__main__')"]
    result = subprocess.run([*run, "deploy.py", *arguments], capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_script_in_the_docs_runs_without_coterie(pcl_run: Path, tmp_path: Path) -> None:
    export_run(pcl_run, "safetensors", output=tmp_path / "student.safetensors", calibrate=True)

    recipe, method, _ = restored(pcl_run)
    names = [tmp_path / f"{i}.png" for i in range(8)]
    for i, name in enumerate(names):
        recipe.data.original(i, "test").save(name)

    blocked = "import sys; sys.modules['coterie'] = None; import coterie"
    check = subprocess.run([sys.executable, "-I", "-c", blocked], capture_output=True)
    assert check.returncode == 1 and b"ModuleNotFoundError" in check.stderr
    printed = _script(tmp_path, "student.safetensors", *(n.name for n in names))
    temperature = export_run(pcl_run, output=tmp_path / "again.safetensors", calibrate=True).metadata.temperature
    with torch.no_grad():
        p = (method.deploy()(next(recipe.data.test_batches(8))[0]) / temperature).softmax(1)
    lines = [line.split() for line in printed.splitlines()]
    assert [line[1] for line in lines] == [str(int(k)) for k in p.argmax(1)]
    torch.testing.assert_close(torch.tensor([float(line[2]) for line in lines]), p.amax(1), atol=2e-6, rtol=1e-5)


def test_the_script_prepares_pictures_that_are_not_square(tmp_path: Path) -> None:
    """Straight to the size, and turned as the camera says, as `coterie predict` does."""
    network = models.factory("resnet8", 4, 3)().eval()
    about = metadata("resnet8", 4, (3, 12, 8))
    about.input["resize"] = None
    make_writer(network, torch.randn(2, 3, 12, 8), "safetensors")(tmp_path / "w.safetensors", about)
    turned = Image.Exif()
    turned[0x0112] = 6
    pixels = torch.randint(0, 256, (8, 12, 3), dtype=torch.uint8).numpy()
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
    result = _script(tmp_path, "w.safetensors", "a.png")
    with torch.no_grad():
        p = network(pictures.load_picture(tmp_path / "a.png", about.input)[None]).softmax(1)[0]
    assert result.split()[-1] == f"{p.max():.6f}"
