"""A typical number of records is chosen privately."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.papers.recipes import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.errors import ParameterError
from dpgrain.papers import Concentrated, Known
from dpgrain.papers.typical import _grid
from dpgrain.units import Relation

Array = NDArray[Any]


def test_scores_move_one_way_and_by_one() -> None:
    rng = np.random.default_rng(0)
    candidates, moved = _grid(500), set()
    for _ in range(300):
        held = rng.integers(0, 2 ** rng.integers(1, 10), rng.integers(1, 40))
        someone = int(rng.integers(len(held)))
        scores = papers.middle_scores(held, candidates)
        without = papers.middle_scores(np.delete(held, someone), candidates)
        moved |= set((without - scores).tolist())
        # Users without records do not participate.
        assert np.array_equal(papers.middle_scores(np.append(held, 0), candidates), scores)
        other = held.copy()
        other[someone] = rng.integers(0, 600)
        assert np.abs(papers.middle_scores(other, candidates) - scores).max() <= 1
    assert moved == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_choice_has_the_charged_distribution(relation: Relation) -> None:
    users = np.repeat(np.arange(9), [1, 1, 2, 3, 3, 4, 8, 8, 30])
    epsilon, generator = 0.7, np.random.default_rng(5)
    drawn = [
        papers.typical_records(
            users, epsilon=epsilon, relation=relation, largest=10, random_state=generator
        ).records
        for _ in range(4000)
    ]
    candidates = np.array([1, 2, 3, 4, 5, 6, 7, 8, 10])
    scores = -np.array([7, 6, 4, 5, 6, 6, 6, 6, 8])
    weights = np.exp(scores * epsilon / (1 if relation == "zero_out" else 2))
    counts = (np.array(drawn)[:, None] == candidates).sum(axis=0)
    assert counts.sum() == 4000
    assert stats.chisquare(counts, 4000 * weights / weights.sum()).pvalue > 1e-7


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1 / 3, 1.0, 7.3])
def test_the_promise_of_a_typical_number(relation: Relation, epsilon: float) -> None:
    found = papers.typical_records(cases.USERS, epsilon=epsilon, relation=relation)
    assert found.guarantee.epsilon() <= epsilon
    assert found.guarantee.epsilon() == pytest.approx(epsilon)
    assert found.guarantee.delta == 0
    assert found.guarantee.private
    # Nothing depends on the number of users, and it is not reported unless it was stated.
    assert "roster" not in str(found.guarantee)
    stated = papers.typical_records(cases.USERS, epsilon=epsilon, relation=relation, n_users=400)
    assert "400 enrolled users" in str(stated.guarantee)
    assert 1 <= found.records <= 2**20


def test_a_typical_number_is_the_median() -> None:
    rng = np.random.default_rng(0)
    held = np.maximum(rng.lognormal(3.0, 1.5, 3000).astype(int), 1)
    users = rng.permutation(np.repeat(np.arange(3000), held))
    for seed in range(20):
        found = papers.typical_records(users, epsilon=0.5, random_state=seed).records
        assert (held < found * 2**0.125).mean() > 0.47
        assert (held < found / 2**0.125).mean() < 0.53
    assert papers.typical_records(cases.USERS, epsilon=5.0, largest=4).records == 4
    assert papers.typical_records([], epsilon=1.0, largest=1).records == 1


def test_a_typical_number_and_a_fit_share_a_promise() -> None:
    with dg.budget(2.0, 1e-6) as budget:
        found = papers.typical_records(cases.USERS, epsilon=0.1, n_users=400)
        known = Known(records=found.records, distance=2.0)
        fit = learn.LogisticRegression(classes=[0, 1], algorithm=Concentrated(known), n_users=400)
        fit.fit(cases.X, cases.Y, users=cases.USERS)
    both = found.guarantee + fit.guarantee_
    assert 1.0 < both.epsilon() <= 1.1 + 1e-9
    assert budget.guarantee is not None
    assert budget.guarantee.epsilon() == both.epsilon()
    with refuses("guarantees", "compose"):
        _ = papers.typical_records(cases.USERS // 2, epsilon=0.1).guarantee + fit.guarantee_


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 1e-9}, "epsilon must be between"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"largest": 0}, "largest must be"),
        ({"largest": 2**41}, "largest must be at most"),
        ({"n_users": 0}, "n_users must be"),
        ({"relation": "add"}, "relation must be one of"),
    ],
)
def test_invalid_numbers_are_reported(wrong: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, **wrong}
    with pytest.raises(ParameterError, match=message):
        papers.typical_records(cases.USERS, **options)
