"""The AUC and calibration: ties, malformed cells, and undefined values."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.learn import auc


def test_ranks_inside_a_hundredth_are_not_distinguished() -> None:
    """The area is 1, and the hundredths' a half."""
    label = np.arange(2000) % 2 == 0
    found = auc(label, np.where(label, 0.509, 0.501), positive=True, epsilon=1e6, random_state=1)
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert found.low <= 0.01
    assert found.high >= 0.99


def test_it_prints_unknown_values_and_interval_exclusions() -> None:
    label = np.arange(2000) % 2 == 0
    found = auc(label, np.where(label, 0.75, 0.15), positive=True, epsilon=1.0, random_state=1)
    lines = str(found).splitlines()
    assert "intervals cover the noise, and not which records happened to have rows." in lines[0]
    told = {line.split(":")[0].strip(): line.split(": ")[1] for line in lines[2:12]}
    assert told["0.5 to 0.6"].startswith("not known (")
    assert ", 95% from " in told["0.7 to 0.8"]


def test_malformed_cells_follow_the_fixed_rules() -> None:
    labels = np.array([True, False, None, "x"] * 500, dtype=object)
    chances = np.array([0.9, "none", np.inf, -3.0] * 500, dtype=object)
    found = auc(labels, chances, positive=True, epsilon=100.0, random_state=1)
    # One positive, above both negatives; the row without a label, with probability 1, is dropped.
    assert found.positive == pytest.approx(1 / 3, abs=0.01)
    assert found.value == pytest.approx(1.0, abs=0.02)
    with refuses("probability", "must be numbers"):
        auc.query(labels, labels.astype(str), positive=True, epsilon=1.0)


def test_a_model_without_probabilities_has_no_auc() -> None:
    X = np.linspace(-1, 1, 500)[:, None]
    model = dg.learn.LinearSVC(rounds=5, random_state=0).fit(X, X[:, 0] > 0)
    with refuses("measure", "two classes"):
        model.score_privately(X, X[:, 0] > 0, measure="auc", epsilon=1.0)
    with pytest.raises(ValueError, match="features"):
        model.score_privately(X[:, [0, 0]], X[:, 0] > 0, epsilon=1.0)
