"""Draw docs/methods/*.svg: a picture of each method, from one description each. Run it after changing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drawing import Label, Note, Picture, draw
from drawing_arrows import Arrow
from drawing_boxes import Box, box, centre, frame, pill, view

HERE = Path(__file__).parent / "methods"
ALL = (1, 2, 3)
FEATURES = -23
"""The lane above the logits: features that pass them by."""
FRAMED = 38
"""How far a term's name stands from its label y if a frame is between them."""


def branches(
    *names: str, rows: Sequence[float] = (0, 1, 2), trunk: Sequence[str] = (), last: float = 2
) -> list[Box]:
    """A trunk, a branch in each row with its logits; the first branch is deployed."""
    kinds = ["deployed", "trained", "trained"]
    return [
        box("trunk", "trunk", rows[0], "trunk", *trunk, kind="deployed", last=last),
        *(box(f"b{j}", "branch", rows[j - 1], names[j - 1], kind=kinds[j - 1]) for j in ALL),
        *(pill(f"z{j}", rows[j - 1], f"z_{j}") for j in ALL),
    ]


def networks(*rows: float) -> list[Box]:
    """Whole networks with their logits; the first network is deployed."""
    numbered, kinds = list(enumerate(rows, 1)), ["", "deployed", "trained", "trained"]
    return [
        *(box(f"b{j}", "network", row, f"network {j}", kind=kinds[j]) for j, row in numbered),
        *(pill(f"z{j}", row, f"z_{j}") for j, row in numbered),
    ]


def forward(boxes: Sequence[Box]) -> list[Arrow]:
    """The arrows from the views to the logits: a view for each network, or one for all."""
    names = [b.name for b in boxes]
    views, peers = ([f"{letter}{j}" for j in ALL if f"{letter}{j}" in names] for letter in "xb")
    if "trunk" in names:
        inputs = [(name, "trunk") for name in views]
    elif len(views) > 1:
        inputs = list(zip(views, peers, strict=True))
    else:
        inputs = [(views[0], peer) for peer in peers]
    return [
        *(Arrow(a, b, bend=76) for a, b in inputs),
        *(Arrow("trunk", peer) for peer in peers if "trunk" in names),
        *(Arrow(peer, f"z{peer[1:]}") for peer in peers),
    ]


def peer_labels(term: str = "ce_peers", peers: Sequence[int] = ALL, beside: float = 15) -> list[Label]:
    return [Label(f"z{j}", term if j == peers[-1] else "", beside) for j in peers]


def taught(
    teacher: str, term: str, lane: float = 0, peers: Sequence[int] = ALL, stopped: bool = True
) -> list[Arrow]:
    """A teacher's arrows to logits, the first of them with the term's name."""
    return [Arrow(teacher, f"z{j}", "teach", term if j == peers[0] else "", lane, stopped=stopped) for j in peers]


def baseline() -> Picture:
    boxes = [view(1, 0), box("b1", "network", 0, "network", kind="deployed"), pill("z1", 0, "z")]
    return Picture(
        "One network and the label",
        "One view of an image passes one network; its logits z learn from the label y.",
        boxes,
        forward(boxes),
        [Label("z1", "ce")],
    )


def kd() -> Picture:
    boxes = [
        view(1, 0.6),
        box("b1", "network", 0, "network", kind="deployed"),
        box("b2", "network", 1.2, "larger teacher", "trained before", kind="frozen"),
        pill("z1", 0, "z"),
        pill("z2", 1.2, "z^t"),
    ]
    return Picture(
        "Knowledge Distillation: a network taught by a larger one",
        "One view passes the network and a larger teacher, which is frozen; the network's logits learn from the "
        "label y and from the teacher's logits.",
        boxes,
        [*forward(boxes), Arrow("z2", "z1", "teach", "distil", arc=90)],
        [Label("z1", "ce")],
    )


def dml() -> Picture:
    boxes = [view(1, 1), *networks(0, 1, 2)]
    mutual = [
        Arrow("z1", "z2", "teach", lane=6, arc=64, both=True),
        Arrow("z2", "z3", "teach", lane=6, arc=64, both=True),
        Arrow("z1", "z3", "teach", "distil_peers", lane=-6, arc=140, both=True),
    ]
    return Picture(
        "Deep Mutual Learning: whole networks teach each other",
        "One view passes three whole networks; the logits of each learn from the label y and from the logits of "
        "both others.",
        boxes,
        [*forward(boxes), *mutual],
        peer_labels(),
    )


def cl() -> Picture:
    boxes = [view(1, 1), *branches("head 1", "head 2", "head 3", trunk=("gradient", "× 1/3"))]
    boxes.append(box("mean", "teacher", 0, "mean", "of the others", kind="module", last=2))
    to_mean = [Arrow(f"z{j}", "mean", lane=7) for j in ALL]
    return Picture(
        "Collaborative Learning: heads taught by the mean of the others",
        "One view passes a shared trunk and three heads; the logits of each learn from the label y and from the "
        "mean of the other two; the trunk gets the mean of the heads' gradients.",
        boxes,
        [*forward(boxes), *to_mean, *taught("mean", "distil_peers", -6)],
        peer_labels(),
    )


def one() -> Picture:
    boxes = [view(1, 1), *branches("branch 1", "branch 2", "branch 3", last=3)]
    boxes.append(box("gate", "branch", 3, "gate", kind="module", height=40))
    boxes.append(box("sum", "teacher", 0, "gated sum", "z_e = Σ g_j z_j", kind="module", last=3))
    to_sum = [Arrow("trunk", "gate"), Arrow("gate", "sum", symbol="g")]
    to_sum += [Arrow(f"z{j}", "sum", lane=7) for j in ALL]
    return Picture(
        "On-the-fly Native Ensemble: branches taught by their gated sum",
        "One view passes a shared trunk and three branches; a gate on the trunk weighs their logits into a sum, "
        "which learns from the label y and teaches each branch.",
        boxes,
        [*forward(boxes), *to_sum, *taught("sum", "distil_ensemble", -6)],
        [*peer_labels(), Label("sum", "ce_ensemble")],
    )


def ffl() -> Picture:
    boxes = [view(1, 1), *branches("branch 1", "branch 2", "branch 3")]
    boxes.append(frame("logits", [b for b in boxes if b.name[0] == "z"], top=25, bottom=47))
    boxes.append(pill("mean", 3.3, "mean"))
    boxes.append(box("fused", "teacher", 0, "fusion", "of their maps", "z_f", kind="module", last=3.3))
    maps = [Arrow(f"b{j}", "fused", lane=FEATURES) for j in ALL]
    back = [Arrow("logits", "mean"), Arrow("mean", "fused", "teach", "distil_mean")]
    return Picture(
        "Feature Fusion Learning: branches and a classifier on their fused maps",
        "One view passes a shared trunk and three branches; a classifier on their fused feature maps teaches each "
        "branch, and the mean of the branches teaches it; all learn from the label y.",
        boxes,
        [*forward(boxes), *maps, *taught("fused", "distil_fused"), *back],
        [*peer_labels(beside=FRAMED), Label("fused", "ce_fused")],
    )


def okddip() -> Picture:
    boxes = [view(1, 1.15), *branches("leader", "peer 2", "peer 3", rows=(0, 1.3, 2.3), last=2.3)]
    peers = frame("peers", [b for b in boxes if b.name in ("z2", "z3")], top=36, bottom=47)
    boxes += [peers, pill("mean", 0, "mean", "teacher")]
    boxes.append(box("attention", "teacher", 1.3, "attention", "t_a = Σ A_ab z_b", kind="module", last=2.3))
    pair = (2, 3)
    to_attention = [Arrow(f"b{j}", "attention", lane=FEATURES) for j in pair]
    to_attention += [Arrow(f"z{j}", "attention", lane=9) for j in pair]
    mutual = taught("attention", "distil_peers", -3, pair, stopped=False)
    to_leader = [
        Arrow("peers", "mean", lane=15 - peers.height / 2, bend=480),
        Arrow("mean", "z1", "teach", "distil_leader", lane=-5),
    ]
    return Picture(
        "Online KD with Diverse Peers: peers attend to each other and teach a leader",
        "One view passes a shared trunk, a leader and two peers; attention on the peers' features mixes their "
        "logits into a target for each peer, and the peers' mean teaches the leader; all learn from the label y.",
        boxes,
        [*forward(boxes), *to_attention, *mutual, *to_leader],
        [Label("z1", "ce_leader"), *peer_labels(peers=pair, beside=FRAMED)],
    )


def kdcl() -> Picture:
    boxes = [*(view(j, j - 1) for j in ALL), *networks(0, 1, 2)]
    lines = ("best answer", "to each image:", "lowest CE", "z_t")
    boxes.append(box("best", "teacher", 0, *lines, kind="module", last=2))
    to_best = [Arrow(f"z{j}", "best", lane=7) for j in ALL]
    return Picture(
        "KD via Collaborative Learning: all learn from the best answer",
        "Three views of an image pass a whole network each; for each image the logits with the lowest "
        "cross-entropy teach all three, which also learn from the label y.",
        boxes,
        [*forward(boxes), *to_best, *taught("best", "distil_ensemble", -6)],
        peer_labels(),
    )


def pcl() -> Picture:
    student = branches("branch 1", "branch 2", "branch 3")
    student = [replace(b, kind="trained") if b.kind == "deployed" else b for b in student]
    boxes = [*(view(j, j - 1) for j in ALL), *student]
    boxes.append(box("ensemble", "teacher", 0, "ensemble", "of all features", "z^t", kind="module", last=2))
    rows, kinds = (3.85, 4.4, 4.95), ("deployed", "trained", "trained")
    averages = [box("mean trunk", "trunk", rows[0], "trunk", kind="deployed", last=rows[2], height=36)]
    averages += [box(f"m{j}", "branch", rows[j - 1], f"branch {j}", kind=kinds[j - 1], height=36) for j in ALL]
    mean_logits = [pill(f"t{j}", rows[j - 1], f"z^mt_{j}") for j in ALL]
    boxes += [*averages, *mean_logits, *(replace(view(j, rows[j - 1], 34), name=f"v{j}") for j in ALL)]
    boxes += [
        frame("peers", [b for b in student if b.kind != "pill"], bottom=28),
        frame("logits", [b for b in student if b.kind == "pill"], top=26, bottom=42, side=8),
        frame("mean peers", averages, bottom=28),
        frame("mean logits", mean_logits, top=15, bottom=31, side=8),
    ]
    means = [Arrow(f"v{j}", "mean trunk") for j in ALL] + [Arrow("mean trunk", f"m{j}") for j in ALL]
    means += [Arrow(f"m{j}", f"t{j}") for j in ALL] + [Arrow("peers", "mean peers", "average")]
    features = [Arrow(f"b{j}", "ensemble", lane=FEATURES) for j in ALL]
    to_peers = [*taught("ensemble", "distil_ensemble"), Arrow("mean logits", "logits", "teach", "distil_mean")]
    return Picture(
        "Peer Collaborative Learning: peers taught by their ensemble and by mean teachers",
        "Three views of an image pass a shared trunk and a branch each; the peers learn from the label y, from an "
        "ensemble classifier on all their features, and from the averaged networks of the other peers; the first "
        "averaged network is deployed.",
        boxes,
        [*forward(boxes), *features, *means, *to_peers],
        [*peer_labels(beside=FRAMED), Label("ensemble", "ce_ensemble")],
        [
            Note(92, 2.52, ("peers",)),
            Note(92, 5.36, ("mean teachers",)),
            Note(406, 4.1, ("Each peer learns from the", "mean teachers of the others.")),
            Note(406, 4.8, ("The first mean teacher is", "the network you deploy.")),
        ],
    )


def own_mean() -> Picture:
    boxes = [
        view(1, 0),
        view(2, 1.2),
        box("b1", "network", 0, "network", kind="trained"),
        box("b2", "network", 1.2, "mean model", kind="deployed"),
        pill("z1", 0, "z"),
        pill("z2", 1.2, "z^mt"),
    ]
    return Picture(
        "A network taught by its own mean model",
        "One view of an image passes the network, a second view its mean model, the running average of the "
        "network's weights; the network's logits learn from the label y and from the mean model's logits; the "
        "mean model is deployed.",
        boxes,
        [
            *forward(boxes),
            Arrow("b1", "b2", "average"),
            Arrow("z2", "z1", "teach", "distil_mean", arc=90),
        ],
        [Label("z1", "ce")],
    )


def mcl() -> Picture:
    both, rows = (1, 2), {1: 0.15, 2: 1.3}
    boxes = [view(1, 0.725), *networks(*rows.values())]
    boxes += [Box(f"V{i}", "pill", 396, centre(rows[i]) + FEATURES - 15, 48, 30, (f"V_{i}",)) for i in both]
    top, left = {i: centre(rows[i]) + FEATURES - 20 for i in both}, {1: 478, 2: 572}
    similarities = [Box(f"S{i}{j}", "module", left[j], top[i], 40, 40, (f"S_{i}{j}",)) for i in both for j in both]
    boxes += [*similarities, frame("S", similarities, bottom=46)]
    embedded = [Arrow(f"b{i}", f"V{i}") for i in both] + [Arrow(f"V{i}", "S") for i in both]
    mutual = [Arrow("S11", "S22", "teach", both=True), Arrow("S12", "S21", "teach", both=True)]
    notes = [
        Note(92, 2.3, ("contrast", "contrast_across"), "term label left"),
        Note(212, 2.3, ("S_11, S_22", "S_12, S_21"), "sym left"),
        Note(372, 2.3, ("distil_contrast", "distil_across"), "term teach left"),
        Note(492, 2.3, ("S_11 ↔ S_22", "S_12 ↔ S_21"), "sym left"),
    ]
    return Picture(
        "Mutual Contrastive Learning: networks that contrast the images of a batch",
        "One view passes two whole networks, whose logits learn from the label y; embeddings V of their features "
        "give matrices S of the similarities between a batch's images, within each network and across both, which "
        "learn from the labels and from each other.",
        boxes,
        [*forward(boxes), *embedded, *mutual],
        [*peer_labels(peers=both), *(Label(b.name) for b in similarities)],
        notes,
        frozenset({"contrast", "contrast_across", "distil_contrast", "distil_across"}),
        "CE, con",
    )


PICTURES = {
    "Baseline": baseline(),
    "CL": cl(),
    "DML": dml(),
    "FFL": ffl(),
    "KD": kd(),
    "KDCL": kdcl(),
    "MCL": mcl(),
    "OKDDip": okddip(),
    "ONE": one(),
    "OwnMean": own_mean(),
    "PCL": pcl(),
}


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw(name, picture))
