"""Networks of timm, torchvision and of the user's own, by name; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import coterie as package
from coterie import models
from coterie.errors import InputError
from coterie.peers.cost import parameters
from coterie.peers.init import init_from
from tests.helpers.common import TinyNet, printed, refused

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


def python(code: str) -> str:
    """Run in a fresh process; returns what it printed."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_networks_get_classes_channels_and_size_from_the_data() -> None:
    for name in ("timm:test_vit", "timm:test_resnet", "torchvision:squeezenet1_1"):
        model = models.factory(name, 7, 1, size=(48, 48))().eval()
        assert model(torch.randn(2, 1, 48, 48)).shape == (2, 7)


def test_torchvision_networks_give_logits_in_training_too() -> None:
    model = models.factory("torchvision:googlenet", 5, 3)().train()
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 5)


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "resnet18"])
def test_small_stem_keeps_the_resolution_of_small_images(name: str) -> None:
    model = models.factory(name, 10, 1, {"small_stem": True})().eval()
    sizes: list[torch.Size] = []
    model.layer1.register_forward_pre_hook(lambda module, args: sizes.append(args[0].shape))
    model(torch.randn(2, 1, 32, 32))
    assert sizes == [(2, 64, 32, 32)]
    assert model.conv1.weight.shape == (64, 1, 3, 3)


def test_small_stem_is_refused_where_there_is_none_to_change() -> None:
    with pytest.raises(InputError, match="small_stem is for the ResNets"):
        models.factory("timm:test_vit", 10, 3, {"small_stem": True})()


def test_own_model_from_a_file_and_from_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    network = models.factory(f"{EXAMPLE}:make_model", 4, 1)()
    assert network(torch.randn(2, 1, 16, 16)).shape == (2, 4)
    monkeypatch.chdir(EXAMPLE.parents[1])
    again = models.factory("tests.helpers.common:TinyNet", 4, 1)()  # takes neither name: its own defaults
    assert again.head.out_features == 5
    assert models.factory("tests.helpers.common:TinyNet", 4, 1, {"classes": 4})().head.out_features == 4


def test_example_runs_and_gives_the_users_own_class_back() -> None:
    result = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "deployed: OwnNet, 24,346 parameters" in result.stdout


def test_torchvision_and_timm_import_beside_a_cpu_only_torch_in_a_fresh_process() -> None:
    code = """
import sys
import coterie.models
from coterie.compat import import_torchvision
assert not {"timm", "torchvision"} & set(sys.modules), "imported before they were used"
broken = False
try:
    import torchvision
except RuntimeError as error:
    broken = "torchvision::nms" in str(error)
timm = import_torchvision("timm")
torchvision = import_torchvision("torchvision")
import torchvision, timm, torch
from torchvision.transforms import v2
assert v2.RandomHorizontalFlip(1.0)(torch.arange(3).view(1, 1, 3)).flatten().tolist() == [2, 1, 0]
assert timm.create_model("test_resnet", num_classes=3)(torch.randn(1, 3, 64, 64)).shape == (1, 3)
print("healed" if broken else "whole")
"""
    cpu_only = not torch.backends.cuda.is_built()
    assert python(code).strip() == ("healed" if cpu_only else "whole")


def test_another_error_of_an_import_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.compat import import_torchvision

    (tmp_path / "broken_package.py").write_text("raise RuntimeError('something else')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="something else"):
        import_torchvision("broken_package")


FACTORIES = """
import torch
from torch import nn

class Wrong(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.body, self.fc = kind, nn.Conv2d(1, 4, 3), nn.Linear(4, 10)
    def forward(self, x):
        h = self.body(x)
        z = self.fc(h.mean((2, 3)))
        return {"tuple": (z, z), "dict": {"logits": z, "aux": z}, "map": h, "classes": z[:, :3]}[self.kind]

def fails(): raise FileNotFoundError("no\\nweights here")
def nothing(): return "a string"
def gives_tuple(): return Wrong("tuple")
def gives_dict(): return Wrong("dict")
def gives_map(): return Wrong("map")
def other_classes(): return Wrong("classes")
instance = Wrong("tuple")
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails", ["could not be built", "FileNotFoundError: no weights here"]),
        ("nothing", ["returned str", "torch.nn.Module"]),
        ("gives_tuple", ["logits", "a tuple of 2", "wrap it"]),
        ("gives_dict", ["logits", "a dict with logits, aux", "wrap it"]),
        ("gives_map", ["logits", "(2, 4, 6, 6)", "wrap it"]),
        ("other_classes", ["gives 3 classes", "the data has 10"]),
        ("instance", ["is not a factory"]),
        ("fail", ["no factory in", "did you mean 'fails'"]),
    ],
)
def test_bad_factories_are_refused_in_one_sentence(name: str, words: list[str], tmp_path: Path) -> None:
    from coterie.config.options import from_options

    file = tmp_path / "nets.py"
    file.write_text(FACTORIES)
    options = {"model": f"{file}:{name}", "cut": "fc", "data": "digits", "epochs": 1}
    with pytest.raises(InputError) as error:
        from_options(options).build()
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_command_refuses_a_failing_factory_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(FACTORIES)
    out = tmp_path / "run"
    words = refused("train", "--model", "nets.py:fails", "--data", "digits", "--out", out, cwd=tmp_path)
    assert words == "nets.py:fails could not be built: FileNotFoundError: no weights here"
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet33", "did you mean 'resnet32'"),
        ("timm:resnet181", "did you mean 'resnet"),
        ("torchvision:resnet17", "did you mean 'resnet"),
        ("nowhere.module:make", "There is no module 'nowhere.module'"),
        ("missing.py:make", "There is no file missing.py"),
    ],
)
def test_unknown_names_are_refused(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        models.factory(name, 10, 3)()


def test_option_a_network_does_not_take_is_named() -> None:
    with pytest.raises(InputError, match=r"resnet32 could not be built.*'depth'"):
        models.factory("resnet32", 10, 3, {"depth": 3})()


def test_pretrained_without_a_hub_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"pretrained weights of timm:test_vit could not be had.*`init`"):
        models.factory("timm:test_vit", 10, 3, {"pretrained": True})()


def test_what_needs_no_starting_weights_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.config.options import from_options
    from coterie.deploy.latency import measure_costs
    from coterie.experiments.estimate import measure_speed

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    data = {"class_path": "digits", "init_args": {"limit": 2}}
    options = {"model": "timm:test_resnet", "model_options": {"pretrained": True}, "data": data, "batch": 10}
    recipe = from_options({**options, "method": "Baseline", "epochs": 1})
    assert measure_speed(recipe, 1).step > 0
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no onnx: torch says it as well
    costs = measure_costs(recipe, recipe.build(fresh=False), seconds=0.01)
    assert costs["plain"]["parameters"] == costs["student"]["parameters"]
    assert "test_resnet" in printed("cuts", "timm:test_resnet", "--model_options.pretrained", "true", "--json")[0]
    with pytest.raises(InputError, match="could not be had"):
        recipe.build()


def weights_file(folder: Path, classes: int = 5) -> tuple[Path, nn.Module]:
    from safetensors.torch import save_file

    trained = TinyNet(classes)
    with torch.no_grad():
        trained.stage1[1].running_mean.fill_(0.25)
    save_file(trained.state_dict(), folder / "w.safetensors")
    return folder / "w.safetensors", trained


def test_init_gives_every_peer_the_weights_of_the_file(tmp_path: Path) -> None:
    file, trained = weights_file(tmp_path)
    net = package.PeerNet(TinyNet, 3, "stage2")
    init_from(net, file)
    for peer in net.peers:
        assert all(torch.equal(w, trained.state_dict()[k]) for k, w in peer.state_dict().items())
    assert net.peers[0].stage1 is net.peers[2].stage1
    assert net.peers[0].stage2[0].weight is not net.peers[2].stage2[0].weight


def test_init_from_other_classes_starts_the_classifier_anew_and_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, trained = weights_file(tmp_path, classes=9)
    net = package.PeerNet(TinyNet, 2, "stage2")
    init_from(net, file)
    assert "head.bias, head.weight start anew" in capsys.readouterr().out
    assert torch.equal(net.peers[1].stage2[0].weight, trained.stage2[0].weight)
    assert torch.equal(net.peers[0].head.weight, net.peers[1].head.weight)


def test_branch_noise_moves_all_branches_but_the_first(tmp_path: Path) -> None:
    file, trained = weights_file(tmp_path)
    net = package.PeerNet(TinyNet, 3, "stage2")
    init_from(net, file, noise=0.1)
    first, second, third = (peer.stage2[0].weight for peer in net.peers)
    assert torch.equal(first, trained.stage2[0].weight) and not torch.equal(second, third)
    assert ((second - first).std() / first.std()).item() == pytest.approx(0.1, rel=0.2)
    assert torch.equal(net.peers[0].stem.weight, trained.stem.weight)


def test_init_that_does_not_fit_is_refused_by_the_names_that_differ(tmp_path: Path) -> None:
    file, _ = weights_file(tmp_path)
    with pytest.raises(InputError, match=r"does not fit the network: stem\.weight is"):
        init_from(package.PeerNet(lambda: TinyNet(width=4), 2, "stage2"), file)
    with pytest.raises(InputError, match="does not fit the network: it lacks"):
        init_from(package.PeerNet(models.factory("resnet8", 5, 3), 2, "stage3"), file)
    with pytest.raises(InputError, match="There is no weights file"):
        init_from(package.PeerNet(TinyNet, 2, "stage2"), tmp_path / "nothing")
    (tmp_path / "text").write_text("not weights")
    with pytest.raises(InputError, match="not a safetensors file"):
        init_from(package.PeerNet(TinyNet, 2, "stage2"), tmp_path / "text")


def test_recipe_starts_from_the_file_and_the_run_stands_without_it(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from coterie.config.options import from_options

    trained = models.factory("resnet8", 10, 1)()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    options = {"model": "resnet8", "data": "digits", "epochs": 1, "init": str(tmp_path / "w.safetensors")}
    method = from_options(options).build()
    for name in ("peer1", "peer3", "mean2"):
        own = method.predictors()[name].state_dict()
        assert all(torch.equal(own[k], w) for k, w in trained.state_dict().items())
    (tmp_path / "w.safetensors").unlink()
    with pytest.raises(InputError, match="There is no weights file"):
        from_options(options).build()
    assert parameters(from_options(options).build(fresh=False).net.peers[0]) == parameters(trained)
