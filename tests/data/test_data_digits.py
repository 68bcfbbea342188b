"""The digits are scikit-learn's, also where its file of them is elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coterie.data import digits as module
from coterie.data.digits import digits


@pytest.mark.parametrize("file", [module.FILE, "datasets/elsewhere.csv.gz"])
def test_the_digits_are_those_of_scikit_learn(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE", file)
    data, bunch = digits(), load_digits()
    train_images, train_labels, test_images, test_labels = data.read()
    order = np.random.RandomState(0).permutation(1797)
    images = np.concatenate([train_images, test_images])
    assert images.shape == (1797, 1, 8, 8) and images.dtype == np.uint8 and len(train_images) == 600
    assert np.array_equal(images[:, 0], np.round(bunch.images[order] / 16 * 255))
    labels = np.concatenate([train_labels, test_labels])
    assert labels.dtype == np.int64 and np.array_equal(labels, bunch.target[order])
    assert data.classes == [str(name) for name in bunch.target_names]
