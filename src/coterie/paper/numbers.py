"""The numbers the paper reports (Wu & Gong, AAAI 2021): top-1 error in per cent, mean and std of three runs."""

from __future__ import annotations

from typing import NamedTuple


class PaperNumber(NamedTuple):
    """What the paper says: a mean, and a standard deviation where it gives one."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"about {self.mean:g}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


PaperSetting = tuple[str, str]
"""Data set and network, as the paper names them."""


def _parse(table: str) -> dict[PaperSetting, dict[str, PaperNumber]]:
    header, *lines = table.strip().splitlines()
    numbers = {}
    for line in lines:
        data, network, *columns = line.split()
        values = [PaperNumber(*map(float, column.split("±"))) for column in columns]
        numbers[data, network] = dict(zip(header.split(), values, strict=True))
    return numbers


TABLE1 = _parse("""
                         DML        CL         ONE        FFL-S      OKDDip     KDCL       Baseline   PCL
CIFAR-10 ResNet32        6.06±0.07  5.98±0.28  5.80±0.12  5.99±0.11  5.83±0.15  5.99±0.08  6.74±0.15  5.67±0.12
CIFAR-10 ResNet110       5.47±0.25  4.81±0.11  4.84±0.30  5.28±0.06  4.86±0.10  4.89±0.16  5.31±0.10  4.47±0.16
CIFAR-10 VGG16           5.87±0.07  5.86±0.15  5.86±0.23  6.78±0.08  6.02±0.06  5.91±0.12  6.04±0.13  5.26±0.02
CIFAR-10 DenseNet40-12   6.41±0.26  6.95±0.25  6.92±0.21  6.72±0.16  7.36±0.22  6.13±0.08  6.81±0.02  5.87±0.13
CIFAR-10 WRN20-8         4.80±0.13  5.41±0.08  5.30±0.14  5.28±0.13  5.17±0.15  4.73±0.16  5.32±0.01  4.58±0.04
CIFAR-10 ResNeXt29-2x64d 4.46±0.16  4.45±0.18  4.27±0.10  4.67±0.04  4.34±0.02  4.02±0.27  4.72±0.03  3.93±0.09
CIFAR-100 ResNet32       26.32±0.14 27.67±0.46 26.21±0.41 27.82±0.11 26.75±0.38 26.24±0.34 28.72±0.19 25.86±0.16
CIFAR-100 ResNet110      22.14±0.50 21.17±0.58 21.60±0.36 22.78±0.41 21.46±0.26 21.72±0.32 23.79±0.57 20.02±0.55
CIFAR-100 VGG16          24.48±0.10 25.67±0.08 25.63±0.39 29.13±0.99 25.32±0.05 24.33±0.22 25.68±0.19 23.11±0.25
CIFAR-100 DenseNet40-12  26.94±0.31 28.55±0.34 28.40±0.38 28.75±0.35 28.77±0.14 27.48±0.42 28.97±0.15 26.91±0.16
CIFAR-100 WRN20-8        20.23±0.07 20.60±0.12 20.90±0.39 21.78±0.14 21.17±0.06 20.63±0.30 21.97±0.40 19.49±0.49
CIFAR-100 ResNeXt29-2x64d 18.94±0.01 18.41±0.07 18.60±0.25 20.18±0.33 18.50±0.11 18.64±0.18 20.57±0.43 17.38±0.23
ImageNet ResNet18        30.18±0.08 29.96±0.05 29.82±0.13 31.15±0.07 30.07±0.06 30.40±0.05 30.49±0.14 29.58±0.13
""")

TABLE2 = {
    ("CIFAR-100", "ResNet110"): {
        "Backbone": PaperNumber(23.79, 0.57),
        "+ L_ce^p": PaperNumber(23.56, 0.50),
        "+ L_ce^t": PaperNumber(23.48, 0.99),
        "+ L_pe": PaperNumber(21.19, 0.62),
        "+ L_pm (full)": PaperNumber(20.02, 0.55),
        "P.E. + mutual distillation": PaperNumber(21.09, 0.18),
        "P.E. + traditional mean model": PaperNumber(21.36, 0.73),
        "logit sum + P.M.": PaperNumber(20.43, 0.71),
    }
}

TABLE3 = _parse("""
                    ONE-E      FFL        OKDDip-E   PCL-E
CIFAR-10 ResNet110  4.75±0.27  4.99±0.07  4.79±0.12  4.42±0.12
CIFAR-100 ResNet110 20.10±0.24 21.78±0.28 20.93±0.57 19.49±0.49
""")

PARAMETERS = {
    "ONE-E": {"CIFAR-10": 2.89, "CIFAR-100": 2.96},
    "FFL": {"CIFAR-10": 3.10, "CIFAR-100": 3.19},
    "OKDDip-E": {"CIFAR-10": 2.91, "CIFAR-100": 2.98},
    "PCL-E": {"CIFAR-10": 2.90, "CIFAR-100": 3.04},
}
"""Table 3's other columns: millions of parameters of each ensemble."""

TABLE4 = _parse("""
                   Baseline   KD         PCL
CIFAR-10 ResNet32  6.74±0.15  5.82±0.12  5.67±0.12
CIFAR-100 ResNet32 28.72±0.19 26.23±0.21 25.86±0.16
""")

FIG5 = {
    ("CIFAR-100", "ResNet110"): {
        "3 peers": PaperNumber(20.02, 0.55),  # the full model of Table 2
        "4 peers": PaperNumber(19.8),
        "3 peers, w/o InAu": PaperNumber(20.7),  # "by approximately 0.7 %" worse
    }
}

PAPER_NUMBERS: dict[str, dict[PaperSetting, dict[str, PaperNumber]]] = {
    "table1": TABLE1,
    "table2": TABLE2,
    "table3": TABLE3,
    "table4": TABLE4,
    "fig3": TABLE2,  # the curves end at Table 2's numbers
    "fig4": TABLE3,
    "fig5": FIG5,
}

CONCLUSIONS = {
    "table1": "PCL is the best method on every network and data set.",
    "table2": "Every component helps: the ensemble teacher by about 2.6 points, the mean teachers by about 1.1; "
    "replacing either costs accuracy.",
    "table3": "PCL-E is the best ensemble, by about 0.3 points on CIFAR-10 and 0.6 on CIFAR-100.",
    "table4": "PCL beats two-stage distillation from ResNet-110 without a pretrained teacher.",
    "fig3": "PCL's error drops rapidly within 50 of 300 epochs and then goes on gradually; without L_pm the "
    "curves fluctuate dramatically until epoch 225.",
    "fig4": "Until epoch 150 PCL-E is the most accurate and its branch variance the largest; afterwards it is "
    "still the most accurate and its branch variance the smallest.",
    "fig5": "More branches are better (four: 19.8 %); without a view of its own for each peer PCL loses about "
    "0.7 points.",
}
"""What the paper's text concludes from each, in our words."""
