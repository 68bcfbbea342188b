"""The formula of each method in LaTeX, as its page shows it; the docstring has the same in plain text.

Each brace names a term as the training reports it. GitHub draws blocks of "math", site_hooks.py those of
the site.
"""

from __future__ import annotations

RAMP = r"w(e)\, T^2"
"""The ramp-up and the temperature before most distillation terms."""
MEAN, LEADER = r"\bar z", r"z_{\text{leader}}"


def ce(logits: str) -> str:
    """The cross-entropy of logits with the labels."""
    return rf"\text{{CE}}({logits}, y)"


def kl(teacher: str, student: str) -> str:
    """The divergence of a student's probabilities from its teacher's, at the temperature T."""
    return rf"\text{{KL}}\big(\sigma_T({teacher}) \,\|\, \sigma_T({student})\big)"


def kl_fixed(teacher: str, student: str) -> str:
    """The same, without a gradient for the teacher."""
    return rf"\text{{KL}}\big(\text{{sg}}\,\sigma_T({teacher}) \,\|\, \sigma_T({student})\big)"


def total(index: str, formula: str) -> str:
    """A sum over an index."""
    return rf"\sum_{{{index}}} {formula}"


def term(formula: str, name: str) -> str:
    """A part of a formula over the name of its term."""
    escaped = name.replace("_", r"\_")
    return rf"\underbrace{{{formula}}}_{{\texttt{{{escaped}}}}}"


def loss(*terms: str) -> str:
    """The loss, the sum of its terms: a block of mathematics for each two, as the screen of a phone is narrow."""
    pairs = [" + ".join(terms[start : start + 2]) for start in range(0, len(terms), 2)]
    return blocks("L = " + pairs[0], *(r"\quad {} + " + pair for pair in pairs[1:]))


def blocks(*lines: str) -> str:
    """Lines of mathematics, each drawn by itself."""
    return "\n\n".join(f"```math\n{line}\n```" for line in lines)


FORMULAS = {
    "Baseline": [loss(term(ce("z"), "ce"))],
    "CL": [
        loss(
            term(total("h", ce("z_h")), "ce_peers"),
            term(f"{RAMP} {total('h', kl_fixed(MEAN + '_{-h}', 'z_h'))}", "distil_peers"),
        ),
        blocks(r"\bar z_{-h} = \frac{1}{m-1} \sum_{j \neq h} z_j"),
    ],
    "DML": [
        loss(
            term(total("k", ce("z_k")), "ce_peers"),
            term(r"\frac{T^2}{m-1} \sum_k \sum_{l \neq k} " + kl_fixed("z_l", "z_k"), "distil_peers"),
        ),
        "There is no ramp-up.",
    ],
    "FFL": [
        loss(
            term(total("j", ce("z_j")), "ce_peers"),
            term(ce("z_f"), "ce_fused"),
            term(f"{RAMP} {total('j', kl_fixed('z_f', 'z_j'))}", "distil_fused"),
            term(f"{RAMP} {kl_fixed(MEAN, 'z_f')}", "distil_mean"),
        ),
        blocks(
            r"z_f = \text{Linear}\big(\text{pool}(\text{fuse}(F_1, \ldots, F_m))\big),"
            r" \quad \bar z = \frac{1}{m} \sum_j z_j"
        ),
        "$`F_j`$ is the last feature map of branch j. The fusion joins the m maps, then applies a depthwise 3x3\n"
        "convolution, batch-norm, ReLU, a 1x1 convolution from m d to d channels, batch-norm and ReLU. Neither\n"
        "convolution has a bias.",
    ],
    "KD": [
        loss(term(ce("z"), "ce"), term(r"a\, T^2\, " + kl(r"z_{\text{teacher}}", "z"), "distil")),
        "There is no ramp-up.",
    ],
    "KDCL": [
        loss(
            term(total("i", ce("z_i")), "ce_peers"),
            term("T^2 " + total("i", kl_fixed("z_t", "z_i")), "distil_ensemble"),
        ),
        "There is no ramp-up. The option `teacher` says which logits $`z_t`$ teach an image:\n\n"
        "| `teacher` | |\n|---|---|\n"
        f"| `naive` | those of the network k with the lowest $`{ce('z_k')}`$ (KDCL-Naive, the paper's Table 1) |\n"
        "| `mean` | the mean of all, $`\\frac{1}{m} \\sum_i z_i`$ |\n"
        "| `min_logit` | for each class, $`\\min_i\\, (z_i - z_i[y])`$ (KDCL-MinLogit) |\n\n"
        "Where targets are probabilities, $`z_i[y]`$ is $`\\sum_c y_c\\, z_i[c]`$.",
    ],
    "MCL": [
        loss(
            term(total("i", ce("z_i")), "ce_peers"),
            term(r"a \sum_i \text{con}(S_{ii})", "contrast"),
            term(r"b \sum_{i \neq j} \text{con}(S_{ij})", "contrast_across"),
            term(r"c\, T^2 \sum_{i \neq j} " + kl_fixed("S_{jj}", "S_{ii}"), "distil_contrast"),
            term(r"d\, T^2 \sum_{i \neq j} " + kl_fixed("S_{ji}", "S_{ij}"), "distil_across"),
        ),
        blocks(
            r"S_{ij} = \frac{1}{\tau} V_i V_j^{\top}, \quad"
            r" V_i = \text{normalise}\big(\text{Linear}(\text{ReLU}(\text{Linear}(f_i)))\big)",
            r"\text{con}(S) = -\frac{1}{|A|} \sum_{a \in A} \frac{1}{|P_a|} \sum_{p \in P_a}"
            r" \log \frac{\exp S_{ap}}{\sum_{n \neq a} \exp S_{an}}",
        ),
        "$`S_{ij}`$ holds the similarities of the batch's embeddings in networks i and j. The positives\n"
        "$`P_a`$ of an anchor a are the other images of its class in the batch; A are the anchors that have\n"
        "any. The paper calls the terms after `ce_peers` VCL, ICL, soft VCL and soft ICL.",
    ],
    "OKDDip": [
        loss(
            term(total("a", ce("z_a")), "ce_peers"),
            term(ce(LEADER), "ce_leader"),
            term(f"{RAMP} {total('a', kl('t_a', 'z_a'))}", "distil_peers"),
            term(f"{RAMP} {kl_fixed(MEAN, LEADER)}", "distil_leader"),
        ),
        blocks(
            r"t_a = \sum_b A_{ab}\, z_b, \quad A_{ab} = \frac{\exp\big((W_q f_a) \cdot (W_k f_b)\big)}"
            r"{\sum_c \exp\big((W_q f_a) \cdot (W_k f_c)\big)}"
        ),
        "The sums are over the peers, a itself included; $`\\bar z`$ is the mean of their logits.",
    ],
    "ONE": [
        loss(
            term(total("j", ce("z_j")), "ce_peers"),
            term(ce("z_e"), "ce_ensemble"),
            term(f"{RAMP} {total('j', kl_fixed('z_e', 'z_j'))}", "distil_ensemble"),
        ),
        blocks(
            r"z_e = \sum_j g_j z_j, \quad"
            r" g = \text{softmax}\big(\text{ReLU}(\text{BN}(\text{Linear}(\text{pool}(h))))\big)"
        ),
        "The gate g reads the trunk's output h.",
    ],
    "OwnMean": [
        loss(term(ce("z"), "ce"), term(r"\lambda\, T^2\, " + kl("z^{mt}", "z"), "distil_mean")),
        "$`z`$ are the network's logits of the first view, $`z^{mt}`$ the mean model's of the second. There is\n"
        "no ramp-up.",
    ],
    "PCL": [
        blocks(
            r"L = L_{ce}^p + L_{ce}^t + L_{pe} + L_{pm} \quad \text{(Eq. 1)}",
            term("L_{ce}^p = " + total("j", ce("z_j")), "ce_peers") + r" \quad \text{(Eq. 2)}",
            term("L_{ce}^t = " + ce("z^t"), "ce_ensemble")
            + r", \quad z^t = \text{Linear}\big(\text{concat}(f^1, \ldots, f^m)\big) \quad \text{(Eq. 3)}",
            term(f"L_{{pe}} = {RAMP} {total('j', kl_fixed('z^t', 'z_j'))}", "distil_ensemble")
            + r" \quad \text{(Eq. 4-6)}",
            term(r"L_{pm} = w(e)\, \frac{T^2}{m-1} \sum_j \sum_{l \neq j} " + kl("z^{mt}_l", "z_j"), "distil_mean")
            + r" \quad \text{(Eq. 9)}",
        ),
        "$`z^{mt}_l`$ are the logits of mean teacher l, the running average of peer l.",
    ],
}
