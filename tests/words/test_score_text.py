"""Scores are printed with their intervals, weights and exclusions."""

from __future__ import annotations

import pytest

import dpgrain as dg
from dpgrain.accounting import Contribution, Laplace
from dpgrain.learn.accuracy import Accuracy
from dpgrain.learn.auc import Auc, Band
from dpgrain.learn.r2 import R2
from dpgrain.units import Level


def promised(level: Level) -> dg.Guarantee:
    event = Laplace(2.0, Contribution(level, "shared", "nonnegative", "l1"))
    return dg.Guarantee(level, "", "zero_out", 0.0, event)


def test_accuracy_shows_the_most_common_class() -> None:
    told = str(Accuracy(0.81234, 0.8, 0.9, 0.5, 0.4, 0.6, -2.0, promised("user")))
    assert told.startswith("Accuracy for the average user: 0.8123, 95% from 0.8 to 0.9; always ")
    assert "common class: 0.5, 95% from 0.4 to 0.6. From about 0 users; intervals cover" in told
    assert told.endswith("\nFull guarantee: print(.guarantee)")


@pytest.mark.parametrize("level", ["record", "user"])
def test_weights_depend_on_the_unit(level: Level) -> None:
    weights = "" if level == "record" else ", each weighted by 1 ÷ its user's number of rows"
    bands = (Band(0.0, 0.1, -0.1, 0.5, -0.1, 1.0), Band(0.1, 0.2, 0.25, 0.2, 0.1, 0.3))
    auc = str(Auc(0.8, 0.7, 0.9, 0.5, 0.4, 0.6, bands, 40.0, promised(level))).splitlines()
    assert auc[0].startswith(f"AUC of rows{weights}: 0.8, 95% from 0.7 to 0.9; guessing has 0.5.")
    assert ("(same weights; each" in auc[1]) == (level == "user")
    assert auc[2:4] == [
        "  0.0 to 0.1: not known (0.0% of rows)",
        "  0.1 to 0.2: 0.2, 95% from 0.1 to 0.3 (25.0% of rows)",
    ]
    told = str(R2(0.9, 0.8, 1.0, -0.5, 1.5, 40.0, promised(level)))
    assert told.startswith(
        f"R² of rows{weights}: 0.9, 95% from 0.8 to 1; predicting the mean has 0."
    )
    assert "are clamped to [-0.5, 1.5]. From about 40 " in told
