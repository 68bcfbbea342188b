"""The rows of the paper's tables and figures: each a method with its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableRow:
    """A method with its options, in any setting."""

    name: str
    method: str
    options: Mapping[str, Any]
    predictor: str | None = None
    taught: bool = False
    """Whether a teacher is trained first."""
    longer: float = 1
    """How many times the setting's epochs it trains."""
    reference: str = ""
    """The row that its difference is taken to, in the study; in the paper's tables that is the first row."""
    isolates: str = ""
    """What it changes of its reference, for the study's split."""

    @property
    def mixed(self) -> bool:
        return "mix" in self.options


def method_row(
    name: str,
    method: str,
    reference: str = "",
    isolates: str = "",
    predictor: str | None = None,
    cutmix: bool = False,
    longer: float = 1,
    **options: Any,
) -> TableRow:
    """Return a row with these options of the method."""
    flags = {f"method.{key}": value for key, value in options.items()} | ({"mix": "CutMix"} if cutmix else {})
    return TableRow(name, method, flags, predictor, longer=longer, reference=reference, isolates=isolates)


RAMPED = ("CL", "ONE", "FFL", "OKDDip", "PCL")
"""The methods whose distillation is weighted by w(e), and with it by lambda."""
NO_TEACHERS: dict[str, Any] = {"distil_ensemble": False, "peer_teacher": "none"}
"""Options of PCL without distillation."""

_BASELINE, _PCL = method_row("Baseline", "Baseline"), method_row("PCL", "PCL")
_KD = TableRow("KD", "KD", {}, taught=True)
_EMA = method_row("Baseline + EMA", "Baseline", predictor="mean1")
_OTHERS = (
    method_row("DML", "DML"),
    method_row("CL", "CL"),
    method_row("ONE", "ONE"),
    method_row("FFL-S", "FFL"),
    method_row("OKDDip", "OKDDip"),
    method_row("KDCL", "KDCL"),
    _PCL,
)
_COMPONENTS = (
    method_row("Backbone", "Baseline"),
    method_row("+ L_ce^p", "PCL", ensemble="none", **NO_TEACHERS),
    method_row("+ L_ce^t", "PCL", **NO_TEACHERS),
    method_row("+ L_pe", "PCL", peer_teacher="none"),
    method_row("+ L_pm (full)", "PCL"),
    method_row("P.E. + mutual distillation", "PCL", peer_teacher="mutual"),
    method_row("P.E. + traditional mean model", "PCL", peer_teacher="own_mean"),
    method_row("logit sum + P.M.", "PCL", ensemble="sum"),
)
_ENSEMBLES = (
    method_row("ONE-E", "ONE", predictor="ensemble"),
    method_row("FFL", "FFL", predictor="ensemble"),
    method_row("OKDDip-E", "OKDDip", predictor="ensemble", leader=False),
    method_row("PCL-E", "PCL", predictor="ensemble"),
)
_PEERS = (
    method_row("3 peers", "PCL"),
    TableRow("2 peers", "PCL", {"peers": 2}),
    TableRow("4 peers", "PCL", {"peers": 4}),
    method_row("3 peers, w/o InAu", "PCL", input_augmentation=False),
)

PAPER_ROWS: dict[str, tuple[TableRow, ...]] = {
    "table1": (_BASELINE, _EMA, *_OTHERS),
    "table2": _COMPONENTS,
    "table3": _ENSEMBLES,
    "table4": (_BASELINE, _KD, _PCL),
    "fig3": _COMPONENTS[:5],
    "fig4": _ENSEMBLES,
    "fig5": _PEERS,
}
"""The first row of each is what the others are compared with."""
_CONTROLS = (
    method_row("Baseline, 3 views", "Baseline", views=3),
    method_row("Baseline, 4x epochs", "Baseline", longer=4),  # PCL's training cost
    _KD,
)
_UNSHARED = TableRow("PCL, stem shared", "PCL", {"cut": "stage1"})  # what sharing most of the network costs
ROWS_WITH_CONTROLS = PAPER_ROWS | {"table1": (_BASELINE, _EMA, *_CONTROLS, *_OTHERS, _UNSHARED)}
"""The same, with our controls in Table 1."""
