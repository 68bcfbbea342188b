"""A method of your own: fifteen lines of loss, compared with the network alone and with KDCL.

You learn what a method must define. Training, averages, comparison and report then work without further code.
"""

import subprocess
from collections.abc import Sequence
from statistics import mean, stdev
from textwrap import fill

from torch import Tensor

import coterie
from coterie.methods.losses import ramp_up, total
from coterie.peers.net import Peers


class Others(coterie.Method):
    """Branches of one trunk, each taught by the mean of the others.

    L = sum_j CE(z_j, y) + w(e) T^2 sum_j KL(sg softmax_T(mean_{k != j} z_k) || softmax_T(z_j))

    Args:
        net: the peers.
        temperature: T.
        ramp_up: the epochs over which w(e) rises; None follows the training's length.
    """

    least_peers = 2

    def __init__(self, net: coterie.PeerNet, temperature: float = 3.0, ramp_up: float | None = None) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up = temperature, ramp_up

    def forward(self, views: Sequence[Tensor], targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits  # (peers, images, classes)
        others = (z.sum(0) - z) / (len(z) - 1)
        return total(
            ce_peers=self.cross_entropy(z, targets),
            distil=ramp_up(epoch, self.ramp_up) * self.task.distil_loss(others.detach(), z, self.temperature),
        )

    def ensemble(self, peers: Peers) -> Tensor:
        return peers.logits.mean(0)


# Few digits, chosen as 1_digits.py says: the errors are an example, not evidence.
recipe = dict(model="resnet8", data="digits", data_options={"limit": 20}, epochs=40, batch=50, evaluate_every=4)
result = coterie.compare(methods=["Baseline", "KDCL", Others], seeds=3, out="runs", **recipe)
for name, runs in result.runs.items():
    errors = [run.error for run in runs]
    print(f"{name:8}  {mean(errors):.2f} ± {stdev(errors):.2f} % errors")
print(fill(result.verdict, 96))
subprocess.run(["coterie", "report", "runs", "--figure", "error", "-o", "errors.svg"], check=True)
