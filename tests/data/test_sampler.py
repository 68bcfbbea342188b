"""Order, batches and shares of an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data.sampler import EpochSampler, batch_slices, epoch_order

ORDER = [6, 0, 7, 5, 1, 4, 3, 2]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize(("size", "batch"), [(50, 16), (33, 16), (600, 128)])
def test_all_ranks_together_compute_every_image_once(size: int, batch: int, accumulate: int, world_size: int):
    samplers = [EpochSampler(size, batch, 3, world_size, rank, accumulate) for rank in range(world_size)]
    for epoch in (0, 1):
        ranks = [sampler.steps(epoch) for sampler in samplers]
        assert {len(steps) for steps in ranks} == {len(samplers[0])} == {len(batch_slices(size, batch))}
        for steps in zip(*ranks, strict=True):
            pieces = [piece for step in steps for piece in step.pieces if piece.size]
            assert np.array_equal(np.concatenate([piece.images for piece in pieces]), steps[0].images)
            assert sum(piece.weight for piece in pieces) == pytest.approx(world_size)
        images = np.concatenate([step.images for step in ranks[0]])
        assert np.array_equal(images, epoch_order(3, epoch, size)) and sorted(images) == list(range(size))


def test_the_order_is_numpys_permutation_by_seed_and_epoch():
    """Runs of earlier versions are continued: the order must never change."""
    assert epoch_order(0, 0, 10).tolist() == np.random.default_rng((0, 0)).permutation(10).tolist()
    assert epoch_order(1, 2, 8).tolist() == ORDER
    assert epoch_order(1, 3, 8).tolist() != ORDER


def test_a_continued_epoch_has_the_remaining_steps():
    sampler = EpochSampler(50, 16, seed=2, accumulate=2)
    remaining, whole = sampler.steps(1, start=2), sampler.steps(1)
    assert len(remaining) == len(whole) - 2
    for step, expected in zip(remaining, whole[2:], strict=True):
        assert np.array_equal(step.images, expected.images)


def test_an_epoch_keeps_every_image_and_leaves_none_alone() -> None:
    for size, batch, expected in [
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),
        (8, 4, [4, 4]),
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
    ]:
        parts = batch_slices(size, batch)
        if batch > 1:
            assert [p.stop - p.start for p in parts] == expected
        assert [i for p in parts for i in range(size)[p]] == list(range(size))
    assert len(batch_slices(50000, 128)) == 391  # the paper's 117,300 steps in 300 epochs
