"""Private ranges: the distribution of the selected bins, and the cost of a choice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm
from tests.papers.winsorized import cases

from dpgrain.accounting.events.choices import GDP_OF_RANGE
from dpgrain.auditing.epsilon_bounds import probability_lower_bound, probability_upper_bound
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.papers.winsorized.median_ranges import PrivateRange, chosen_bins
from dpgrain.publishing.draws import range_event
from dpgrain.units import Relation

DATA = [[], [4], [0, 0], [2, 9], [3, 3, 5, 9, 11], [6, 6, 6, 6], [0, 1, 1, 1, 8, 11], [0, 11, 11]]


@pytest.mark.parametrize("values", DATA, ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.7, 4.0])
def test_bins_follow_the_exponential_mechanism(values: list[int], rate: float) -> None:
    ordered = np.sort(np.array([values] * 60_000, dtype=np.int64), axis=1)
    counts = np.bincount(chosen_bins(ordered, 12, rate, SeededSource(2)), minlength=12)
    assert cases.is_law(counts, cases.exponential(values, 12, rate))


def test_every_coordinate_has_its_own_law() -> None:
    rng = np.random.default_rng(4)
    rows = [np.sort(rng.integers(0, 12, 6)) for _ in range(5)]
    ordered = np.array(rows * 40_000)
    drawn = chosen_bins(ordered, 12, 0.6, SeededSource(2)).reshape(-1, 5)
    for i, row in enumerate(rows):
        assert cases.is_law(np.bincount(drawn[:, i], minlength=12), cases.exponential(row, 12, 0.6))


def test_bins_cover_the_range() -> None:
    for width in (0.01, 0.3, 2.0, 5.0):
        bins = PrivateRange(1.0, width, 1.0)
        values = np.linspace(-1, 1, 1001)
        index = bins.index(values)
        assert index.min() == 0
        assert index.max() == bins.bins - 1
        assert np.abs(bins.middle(index) - values).max() <= width / 2 * (1 + 1e-12)
        assert bins.index(np.array([-1e300, 1e300])).tolist() == [0, bins.bins - 1]


def ranges_of_scores(bins: int, users: int, relation: Relation) -> int:
    """The largest of max − min of the change of scores, over all neighbours."""
    worst = 0
    others: list[tuple[int, ...]] = [()] if relation == "zero_out" else [(x,) for x in range(bins)]
    for values in itertools.combinations_with_replacement(range(bins), users):
        whole = cases.scores(values, bins)
        for i in range(users):
            rest = values[:i] + values[i + 1 :]
            for other in others:
                change = whole - cases.scores(rest + other, bins)
                worst = max(worst, int(change.max() - change.min()), int(abs(change).max()))
    return worst


def test_all_bin_scores_move_one_way_for_removed_users() -> None:
    for bins, users in itertools.product((2, 5), (1, 2, 3, 4, 5)):
        assert ranges_of_scores(bins, users, "zero_out") == 1
    assert ranges_of_scores(5, 4, "replace") == 2
    assert ranges_of_scores(5, 5, "replace") == 2


@pytest.mark.parametrize("rate", [0.01, 0.5, 2.0, 8.0])
def test_choice_reveals_no_more_than_its_charged_gaussians(rate: float) -> None:
    # Every choice of bounded range is a mixture of tests with two outcomes and log odds rate apart.
    middle = np.linspace(-30, 30, 4001)
    p, q = (norm.ppf(1 / (1 + np.exp(-(middle + x)))) for x in (rate / 2, -rate / 2))
    moved = (p - q)[np.isfinite(p) & np.isfinite(q)]
    assert moved.max() <= GDP_OF_RANGE * rate * (1 + 1e-9)
    if rate == 0.01:
        assert moved.max() > 0.999 * GDP_OF_RANGE * rate


@pytest.mark.proof("search", "ExponentialMechanism")
@pytest.mark.parametrize("relation", cases.RELATIONS)
@pytest.mark.parametrize("rate", [0.3, 2.0])
def test_no_neighbour_of_a_choice_exceeds_its_event(relation: Relation, rate: float) -> None:
    loss, largest = range_event(rate, 1).loss(1, relation), 0.0
    for values in itertools.combinations_with_replacement(range(6), 5):
        mine = cases.exponential(values, 6, rate)
        for other in [()] if relation == "zero_out" else [(x,) for x in range(6)]:
            theirs = cases.exponential(values[1:] + other, 6, rate)
            for one, two in ((mine, theirs), (theirs, mine)):
                for epsilon in (0.0, rate / 4, rate / 2, rate):
                    found = float(np.maximum(one - math.exp(epsilon) * two, 0).sum())
                    assert found <= loss.delta(epsilon)
                    largest = max(largest, found / loss.delta(epsilon))
    assert largest > 0.6


def chosen_apart(rate: float, asked: float, relation: Relation) -> float:
    """A lower bound on δ(0) of one choice, over the claimed δ."""
    bins, trials = PrivateRange(1.0, 1.0, asked), 300_000
    one = [-1.0, -1.0, 1.0, 1.0, 1.0]
    two = one[:-1] if relation == "zero_out" else [*one[:-1], -1.0]
    hits = []
    for values in (one, two):
        found = bins.middles(np.array([values] * trials), SystemSource())
        hits.append(int((found == 1.0).sum()))
    chance = cases.CHANCE / 2
    low, high = (
        probability_lower_bound(hits[0], trials, chance),
        probability_upper_bound(hits[1], trials, chance),
    )
    return (low - high) / range_event(rate, 1).delta(0.0, relation=relation)


@pytest.mark.slow
@pytest.mark.parametrize("relation", cases.RELATIONS)
def test_audit_of_choices_and_of_doubled_weights(relation: Relation) -> None:
    assert 0.6 < chosen_apart(0.6, 0.6, relation) <= 1
    assert chosen_apart(0.6, 1.2, relation) > 1
