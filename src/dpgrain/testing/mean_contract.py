"""Conformance suite of private means: :class:`MeanContract`, for the tests of a new mean."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.means import Mean, Vectors
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.units import Relation

Array = NDArray[np.float64]
BLOCKS, DIMENSION = 12, 3
# Enrolled users, each with two blocks.
USERS = BLOCKS // 2
OWNERS = np.arange(BLOCKS) // 2
# Bound of assertions on noise in standard deviations; each fails by chance in about 1 of 10^7 runs.
SURE = 5.3


class MeanContract:
    """Tests of one private mean, for pytest: override :meth:`make` and :meth:`sensitivity`.

    Vectors are (:data:`BLOCKS`, :data:`DIMENSION`), and each of the :data:`USERS` users has two
    blocks, given by :data:`OWNERS`. A mean with one block per user overrides ``users``, and a mean
    that protects users with two blocks overrides :meth:`changed` and :meth:`units`.

    >>> from dpgrain.means import ClippedMean
    >>> class TestClipped(MeanContract):
    ...     def make(self, rounds=3, **_):
    ...         return ClippedMean(1.0, 2.0, n_users=USERS, rounds=rounds)
    ...
    ...     def sensitivity(self, mean, relation):
    ...         return (1 if relation == "zero_out" else 2) * mean.clip / mean.divisor
    >>> TestClipped().test_more_rounds_cost_more()
    """

    #: True if the estimate of the mean of small blocks is unbiased.
    unbiased = True
    #: Number of estimates whose average is compared with the mean.
    repetitions = 600
    #: Number of users of the blocks.
    users = USERS

    def make(self, rounds: int = 3, **_: Any) -> Mean:
        """Return a mean for :attr:`users` users, by default with two blocks each.

        Args:
            rounds: the number of rounds.
        """
        raise NotImplementedError

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        """Return the largest change of a published mean by one unit, with all randomness fixed.

        Args:
            mean: the mean.
            relation: the neighbouring relation.
        """
        raise NotImplementedError

    def sd(self, mean: Mean) -> float:
        """Return the standard deviation of the noise in each coordinate of a mean.

        Args:
            mean: the mean.
        """
        return mean.noise_sd

    def changed(self, vectors: Array, unit: int, to: Array | None) -> Array:
        """Return the vectors with the data of one unit removed or replaced.

        Args:
            vectors: the vectors of all blocks.
            unit: the index of the unit.
            to: the new vectors; None removes the unit.
        """
        other = vectors.copy()
        other[unit] = 0.0 if to is None else to
        return other

    @property
    def units(self) -> int:
        """Number of units for :meth:`changed`."""
        return BLOCKS

    def estimate(self, mean: Mean, vectors: Array, seed: int = 1) -> Array:
        """Return the mean of a first round.

        Args:
            mean: the mean.
            vectors: the vectors of all blocks.
            seed: the random seed.
        """
        return mean.start(SeededSource(seed), OWNERS).estimate(Vectors(vectors))

    def test_event_is_json(self) -> None:
        event = self.make().event
        assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event

    def test_public_numbers_are_valid(self) -> None:
        mean = self.make(rounds=2)
        assert mean.rounds == 2
        assert mean.n_users > 0
        assert mean.trust in ("central", "shuffle", "pan")
        assert mean.level in ("record", "element", "user")
        assert {mean.fresh, mean.compares} <= {True, False}
        assert all(0 < number < math.inf for number in (mean.reach, mean.noise_sd))
        # Facts must form one sentence.
        assert mean.facts
        texts = [str(fact) for fact in mean.facts]
        assert all(text and not text.endswith(";") and "\n" not in text for text in texts)

    def test_run_reports_its_last_round(self) -> None:
        mean = self.make()
        run = mean.start(SeededSource(1), OWNERS)
        run.estimate(Vectors(np.full((BLOCKS, DIMENSION), 0.1)))
        assert 0 < run.noise_sd <= mean.noise_sd * (1 + 1e-9)
        assert 0 < run.radius <= mean.reach * (1 + 1e-9)

    def test_fresh_mean_requires_owners(self) -> None:
        if self.make().fresh:
            with pytest.raises(ParameterError, match="owners"):
                self.make().start(SystemSource())

    def test_more_rounds_cost_more(self) -> None:
        few, many = (self.make(rounds=rounds).event.epsilon(1e-6) for rounds in (2, 5))
        assert 0 < few < many < math.inf

    def test_rounds_beyond_those_charged_raise(self) -> None:
        run = self.make(rounds=2).start(SystemSource(), OWNERS)
        for _ in range(2):
            run.estimate(Vectors(np.zeros((BLOCKS, DIMENSION))))
        with pytest.raises(ParameterError, match="rounds = 2 are over"):
            run.estimate(Vectors(np.zeros((BLOCKS, DIMENSION))))

    def test_only_seeded_noise_repeats(self) -> None:
        vectors = np.ones((BLOCKS, DIMENSION))
        assert np.array_equal(
            self.estimate(self.make(), vectors), self.estimate(self.make(), vectors)
        )
        drawn = [
            self.make().start(SystemSource(), OWNERS).estimate(Vectors(vectors)) for _ in range(2)
        ]
        assert not np.array_equal(drawn[0], drawn[1])

    def test_non_finite_vectors_count_as_zero(self) -> None:
        vectors = np.full((BLOCKS, DIMENSION), 0.1)
        zeroed = self.changed(vectors, 0, None)
        for bad in (np.nan, np.inf, -np.inf):
            poisoned = vectors.copy()
            poisoned[np.flatnonzero((vectors != zeroed).any(axis=1)), 1] = bad
            result = self.estimate(self.make(), poisoned)
            assert np.array_equal(result, self.estimate(self.make(), zeroed))

    def test_zero_vectors_are_published_as_noise(self) -> None:
        result = self.estimate(self.make(), np.zeros((BLOCKS, DIMENSION)))
        assert result.shape == (DIMENSION,)
        assert np.isfinite(result).all()
        assert (result != 0).all()

    def test_noise_has_the_stated_sd(self) -> None:
        mean, times = self.make(rounds=1), 1500
        nothing = np.zeros((BLOCKS, DIMENSION))
        drawn = np.array([self.estimate(mean, nothing, seed) for seed in range(times)])
        ratio = float(np.sqrt(np.mean(drawn**2))) / self.sd(mean)
        error = SURE / math.sqrt(2 * times * DIMENSION)
        # The test detects half of the noise as well as a tenth more.
        assert 1 - error < ratio < 1 + error
        assert error < 0.1

    def test_mean_is_unbiased(self) -> None:
        if not self.unbiased:
            pytest.skip("this mean does not claim to be unbiased")
        mean, seeds = self.make(rounds=1), range(self.repetitions)
        vectors = np.random.default_rng(0).normal(size=(BLOCKS, DIMENSION)) * 0.1
        result = np.array([self.estimate(mean, vectors, seed) for seed in seeds])
        expected = vectors.sum(axis=0) / self.users
        errors = (result.mean(axis=0) - expected) / (result.std(axis=0) / math.sqrt(len(seeds)))
        assert np.abs(errors).max() < SURE

    @pytest.mark.parametrize("relation", ["zero_out", "replace"])
    def test_no_neighbour_exceeds_the_sensitivity(self, relation: Relation) -> None:
        mean = self.make()
        bound, largest = self.sensitivity(mean, relation), 0.0
        rng = np.random.default_rng(3)
        for _ in range(60):
            scale = 10.0 ** rng.integers(-2, 9)
            vectors = rng.normal(size=(BLOCKS, DIMENSION)) * scale
            if rng.random() < 0.3:
                # Equal blocks, or blocks that cancel.
                vectors = np.outer(rng.choice([-1.0, 1.0], BLOCKS), vectors[0])
            unit = int(rng.integers(self.units))
            seed = int(rng.integers(1000))
            to = None if relation == "zero_out" else -vectors[rng.integers(BLOCKS)] * 3
            if relation == "replace" and rng.random() < 0.5:
                to = -vectors[0]
            other = self.changed(vectors, unit, to)
            moved = np.linalg.norm(
                self.estimate(mean, vectors, seed) - self.estimate(mean, other, seed)
            )
            largest = max(largest, float(moved))
        # The bound is nearly attained, so the test detects half of it.
        assert 0.6 * bound < largest <= bound * (1 + 1e-6)
