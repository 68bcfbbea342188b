"""Launch runs on a Ray cluster: each reserves its CPUs and GPU; one lost with its node starts again elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ..errors import InputError, reason
from .job import Job
from .launch_local import execute_job

STOPPING = 60
"""Seconds that runs are given to save and stop."""


class RayLauncher:
    """A Ray cluster that sees `out` under the same path on every node, or this machine if there is no cluster.

    `RAY_ADDRESS` names the cluster, as for every program that uses Ray.

    Args:
        out: the directory of runs, on a file system that all nodes share.
        root: where the data lies, as seen from `out`, by data set.
        processes: how many runs at once; by default as many as the cluster has room for.
        threads: CPUs that each run reserves and uses; with GPUs in the cluster, one GPU besides.
        start_in: where the runs are started, on every node; by default `out`.
    """

    def __init__(
        self,
        out: Path,
        root: Mapping[str, str],
        processes: int | None,
        threads: int,
        start_in: Path | None = None,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--launcher ray needs Ray: pip install ray, here and on the nodes.") from None
        if not ray.is_initialized():
            try:
                ray.init(include_dashboard=False, log_to_driver=True)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise InputError(f"Ray cannot be reached ({reason(error)}): look at RAY_ADDRESS.") from None
        self.out, self.root, self.start_in = out.resolve(), root, start_in
        self.slots = processes or 10**6
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        variables = {"OMP_NUM_THREADS": str(threads)}
        # A lost task is executed again; what it had trained is in its checkpoint.
        task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=-1)(execute_job)
        self._ray, self._task, self._variables = ray, task, variables
        self._tasks: list[Any] = []

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        root = self.root.get(str(job.options["data"]), "")
        reference = self._task.remote(self.out, job, weights, root, self._variables, None, self.start_in)
        self._tasks.append(reference)
        future: Future[str | None] = reference.future()
        return future

    def stop(self) -> None:
        for reference in self._tasks:
            self._ray.cancel(reference, force=False)
        # Each asks its training to save and stop; whoever leaves before that leaves trainings behind.
        if self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=STOPPING)
