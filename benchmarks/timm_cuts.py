"""Cut timm networks of many families into peers and check each: python benchmarks/timm_cuts.py [--only PATTERN].

Every network is cut where its branch has nearest to a third of the multiply-adds, made into three peers, and
- exact:    each peer with equal weights gives exactly the original's logits, one view for all and one per peer;
- once:     on one view every shared module is called as often as in the plain network;
- gradient: the trunk's gradients on one view are the sum of the three peers';
- deploy:   the deployed network loads, strictly, into a new network of its class;
- mean:     a step of PCL changes the mean peers, and their logits are finite.
Results go to benchmarks/results/timm_cuts.json and .md after every network; those with a result are skipped, so
that an interrupted run goes on. `--again` checks them anew.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import time
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

import coterie
from coterie import models
from coterie.compat import import_torchvision
from coterie.errors import InputError
from coterie.peers.build import example_for, trace_logits
from coterie.peers.cuts import list_cuts
from coterie.runs.environment import environment

NETWORKS = {
    "convolutional": """resnet18 resnet26t resnetv2_18 seresnet18 resnext26ts gernet_s
        mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small_050 mobilenet_edgetpu_v2_xs efficientnet_lite0
        tf_efficientnetv2_b0 mixnet_s lcnet_050 ghostnet_050 
        regnetx_002 regnety_002 regnetz_005 densenet121 dpn48b
        hrnet_w18_small selecsls42 darknet17 ese_vovnet19b_slim_dw rexnet_100 repvgg_a0 repghostnet_050
        mobileone_s0 convnext_atto convnextv2_atto inception_next_atto nf_regnet_b0 test_nfnet 
        starnet_s050 fasternet_t0 mambaout_femto repvit_m0_9 test_byobnet efficientvit_b0""",
    "vit": """test_vit test_vit2 test_vit3 vit_tiny_patch16_224 deit_tiny_distilled_patch16_224
        swin_tiny_patch4_window7_224 cait_xxs24_224 xcit_nano_12_p16_224 convit_tiny
        crossvit_tiny_240 pit_ti_224 levit_128s tnt_s_patch16_224 mvitv2_tiny eva02_tiny_patch14_224
        nest_tiny pvt_v2_b0 tiny_vit_5m_224
        efficientvit_m0 gcvit_xxtiny""",
    "hybrid": """mobilevit_xxs mobilevitv2_050 edgenext_xx_small coat_lite_tiny 
        maxvit_rmlp_pico_rw_256 efficientformer_l1 efficientformerv2_s0 fastvit_t8 poolformer_s12 
        visformer_tiny vit_tiny_r_s16_p8_224 botnet26t_256 lambda_resnet26t swiftformer_xs shvit_s1
        """,
    "mlp": "mixer_s32_224 gmlp_ti16_224 resmlp_12_224 gmixer_12_224 ",
}
RESULTS = Path(__file__).parent / "results" / "timm_cuts.json"
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="*", help="names that match this pattern")
    parser.add_argument("--again", action="store_true", help="check those that have a result, too")
    options = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    results = stored.get("networks", {})
    for family, names in NETWORKS.items():
        for name in fnmatch.filter(names.split(), options.only):
            if name in results and not options.again:
                continue
            started = time.perf_counter()
            results[name] = {"family": family, **check(name)}
            print(f"{name}: {results[name]['result']} ({time.perf_counter() - started:.0f} s)", flush=True)
            write(results)
    write(results)


def check(name: str) -> dict[str, object]:
    """All checks of one network: 'good', a refusal in Coterie's words, or what failed."""
    torch.manual_seed(0)
    try:
        declared = import_torchvision("timm").get_pretrained_cfg(name)
        side = declared.input_size[-1] if declared.fixed_input_size else 64
        make = models.factory(f"timm:{name}", CLASSES, 3, size=(side, side))
        model = make()
        example = example_for(model, (3, side, side))
        cut = two_thirds(model, example)
        result: dict[str, object] = {"cut": cut, "input": side}
        result |= check_peers(make, cut, example)
    except InputError as error:
        return {"result": f"refused: {error}"}
    except Exception as error:
        return {"result": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    wrong = [check for check in ("exact", "once", "gradient", "deploy", "mean") if not result[check]]
    return {**result, "result": f"failed: {', '.join(wrong)}" if wrong else "good"}


def two_thirds(model: nn.Module, example: Tensor) -> str:
    """The cut that leaves the branch nearest to a third of the work; where no listed one is near, any good cut."""
    listed = {cut.name: cut.share for cut in list_cuts(model, example[:1])}
    best = min(listed, key=lambda n: abs(listed[n] - 1 / 3), default=None)
    if best is not None and 0.15 < listed[best] < 0.6:
        return best
    good = [split.cut for split in trace_logits(model, example).good_cuts() if split.cut.count(".") <= 1]
    if not good:
        raise InputError("This network has no good cut.")
    return good[len(good) * 2 // 3]


def check_peers(make, cut: str, example: Tensor) -> dict[str, bool]:
    original = make().eval()
    net = coterie.PeerNet(original, 3, cut, example, keep=True).eval()
    assert net.split is not None
    shared = {n: net.peers[0].get_submodule(n) for n in net.split.calls}
    calls: Counter[str] = Counter()
    handles = [m.register_forward_hook(lambda *_, n=n: calls.update([n])) for n, m in shared.items()]
    with torch.no_grad():
        net.peers[0](example)
        plain = calls.copy()
        calls.clear()
        together = net(example).logits
        once = calls == plain
        for handle in handles:
            handle.remove()
        views = [example, example.flip(-1), example.flip(-2)]
        exact = all(torch.equal(z, original(example)) for z in together) and all(
            torch.equal(z, original(view)) for z, view in zip(net(views).logits, views, strict=True)
        )
    gradient = same_gradients(net, original, example)
    method = coterie.PCL(coterie.PeerNet(make, 3, cut, example), beta=0.5)
    optimizer = torch.optim.SGD(method.parameters(), lr=1e-3)
    before = [p.clone() for p in method.mean.average.net.parameters()]
    method.train()
    method(views, torch.tensor([1, 2]), 100)["loss"].backward()
    optimizer.step()
    method.after_step()
    changed = any(not torch.equal(a, b) for a, b in zip(before, method.mean.average.net.parameters(), strict=True))
    method.eval()
    with torch.no_grad():
        logits = method.logits(example)
    mean = changed and all(z.isfinite().all() for z in logits.values()) and "mean3" in logits
    student = method.deploy()
    fresh = make()
    fresh.load_state_dict(student.state_dict(), strict=True)
    with torch.no_grad():
        deploy = type(student) is type(fresh) and torch.allclose(fresh.eval()(example), logits["mean1"], atol=1e-5)
    return {"exact": exact, "once": once, "gradient": gradient, "deploy": deploy, "mean": bool(mean)}


def same_gradients(net: coterie.PeerNet, original: nn.Module, example: Tensor) -> bool:
    """With equal weights three peers on one view give the trunk three times the plain network's gradient."""
    labels = torch.tensor([1, 2])
    nn.functional.cross_entropy(original(example), labels).backward()
    sum(nn.functional.cross_entropy(z, labels) for z in net(example).logits).backward()
    expected = dict(original.named_parameters())
    others = dict(net.peers[1].named_parameters())
    shared = {name: p for name, p in net.peers[0].named_parameters() if p is others[name]}
    if not shared or any((p.grad is None) != (expected[name].grad is None) for name, p in shared.items()):
        return False
    wanted = {name: 3 * expected[name].grad for name, p in shared.items() if p.grad is not None}
    # Some gradients are zero by construction (a constant added to all of softmax's inputs) and hold rounding
    # alone, which is small beside the trunk's largest gradient.
    noise = 1e-6 * max(w.abs().max().item() for w in wanted.values())
    return all(
        torch.allclose(shared[name].grad, w, rtol=1e-3, atol=1e-4 * w.abs().max().item() + noise)
        for name, w in wanted.items()
    )


def write(results: dict[str, dict[str, object]]) -> None:
    order = [name for names in NETWORKS.values() for name in names.split() if name in results]
    about = {
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/timm_cuts.py",
        "coterie": coterie.__version__,
        "commit": environment(0)["commit"],
        "torch": torch.__version__,
        "timm": import_torchvision("timm").__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    good = [name for name in order if results[name]["result"] == "good"]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**about, "networks": {n: results[n] for n in order}}, indent=1) + "\n")
    rows = [
        f"| {n} | {r['family']} | {r.get('cut', '')} | {r['result']} |" for n, r in results.items() if n in order
    ]
    text = [
        "# timm networks as peers",
        "",
        f"{len(good)} of {len(order)} networks pass every check of `{about['command']}`.",
        f"{about['date']}, commit {about['commit']}, timm {about['timm']}, torch {about['torch']}, "
        f"{about['machine']}.",
        "",
        "| network | family | cut | result |",
        "|---|---|---|---|",
        *rows,
    ]
    RESULTS.with_suffix(".md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
