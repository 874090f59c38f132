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
    #: Share of the sensitivity that the search for neighbours must reach, such as 0.6 for a tight
    #: bound, so that the test also detects a bound that is too large. 0 accepts any valid bound.
    attained = 0.0

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
        copy = Event.from_dict(json.loads(json.dumps(event.to_dict())))
        assert copy == event, f"event must equal its copy from JSON, not {copy}"

    def test_public_numbers_are_valid(self) -> None:
        mean = self.make(rounds=2)
        assert mean.rounds == 2, f"make(rounds=2) must have 2 rounds, not {mean.rounds}"
        assert mean.n_users > 0, f"n_users must be positive, not {mean.n_users}"
        for name, allowed in (
            ("trust", ("central", "shuffle", "pan")),
            ("level", ("record", "element", "user")),
            ("fresh", (True, False)),
            ("compares", (True, False)),
        ):
            value = getattr(mean, name)
            assert value in allowed, f"{name} must be one of {allowed}, not {value!r}"
        for name in ("reach", "noise_sd"):
            value = getattr(mean, name)
            assert 0 < value < math.inf, f"{name} must be positive and finite, not {value!r}"
        texts = [str(fact) for fact in mean.facts]
        assert texts, "facts must list what the mean takes as public"
        for text in texts:
            whole = text and not text.endswith(";") and "\n" not in text
            assert whole, f"a fact must be a part of one sentence, not {text!r}"

    def test_run_reports_its_last_round(self) -> None:
        mean = self.make()
        run = mean.start(SeededSource(1), OWNERS)
        run.estimate(Vectors(np.full((BLOCKS, DIMENSION), 0.1)))
        for name, value, most in (
            ("noise_sd", run.noise_sd, mean.noise_sd),
            ("radius", run.radius, mean.reach),
        ):
            within = 0 < value <= most * (1 + 1e-9)
            assert within, f"{name} of a run must be in (0, {most:g}], not {value:g}"

    def test_fresh_mean_requires_owners(self) -> None:
        if self.make().fresh:
            with pytest.raises(ParameterError, match="owners"):
                self.make().start(SystemSource())

    def test_more_rounds_cost_more(self) -> None:
        few, many = (self.make(rounds=rounds).event.epsilon(1e-6) for rounds in (2, 5))
        assert 0 < few < many < math.inf, f"5 rounds cost ε = {many:g}, and 2 rounds {few:g}"

    def test_rounds_beyond_those_charged_raise(self) -> None:
        run = self.make(rounds=2).start(SystemSource(), OWNERS)
        for _ in range(2):
            run.estimate(Vectors(np.zeros((BLOCKS, DIMENSION))))
        with pytest.raises(ParameterError, match="rounds = 2 are over"):
            run.estimate(Vectors(np.zeros((BLOCKS, DIMENSION))))

    def test_only_seeded_noise_repeats(self) -> None:
        vectors = np.ones((BLOCKS, DIMENSION))
        seeded = [self.estimate(self.make(), vectors) for _ in range(2)]
        assert np.array_equal(seeded[0], seeded[1]), "two runs with one seed must be equal"
        drawn = [
            self.make().start(SystemSource(), OWNERS).estimate(Vectors(vectors)) for _ in range(2)
        ]
        assert not np.array_equal(drawn[0], drawn[1]), (
            "two runs with the system's noise must differ"
        )

    def test_non_finite_vectors_count_as_zero(self) -> None:
        vectors = np.full((BLOCKS, DIMENSION), 0.1)
        zeroed = self.changed(vectors, 0, None)
        for bad in (np.nan, np.inf, -np.inf):
            poisoned = vectors.copy()
            poisoned[np.flatnonzero((vectors != zeroed).any(axis=1)), 1] = bad
            same = np.array_equal(
                self.estimate(self.make(), poisoned), self.estimate(self.make(), zeroed)
            )
            assert same, f"a block with {bad} must be treated as zero"

    def test_zero_vectors_are_published_as_noise(self) -> None:
        result = self.estimate(self.make(), np.zeros((BLOCKS, DIMENSION)))
        assert result.shape == (DIMENSION,), f"a mean must be ({DIMENSION},), not {result.shape}"
        noisy = np.isfinite(result).all() and (result != 0).all()
        assert noisy, f"each coordinate must be finite noise, not {result}"

    def test_noise_has_the_stated_sd(self) -> None:
        mean, times = self.make(rounds=1), 1500
        nothing = np.zeros((BLOCKS, DIMENSION))
        drawn = np.array([self.estimate(mean, nothing, seed) for seed in range(times)])
        ratio = float(np.sqrt(np.mean(drawn**2))) / self.sd(mean)
        error = SURE / math.sqrt(2 * times * DIMENSION)
        # The test detects half of the noise as well as a tenth more.
        assert error < 0.1
        stated = 1 - error < ratio < 1 + error
        assert stated, f"the noise has {ratio:.3f} times the standard deviation sd()"

    def test_mean_is_unbiased(self) -> None:
        if not self.unbiased:
            pytest.skip("this mean does not claim to be unbiased")
        mean, seeds = self.make(rounds=1), range(self.repetitions)
        vectors = np.random.default_rng(0).normal(size=(BLOCKS, DIMENSION)) * 0.1
        result = np.array([self.estimate(mean, vectors, seed) for seed in seeds])
        expected = vectors.sum(axis=0) / self.users
        errors = (result.mean(axis=0) - expected) / (result.std(axis=0) / math.sqrt(len(seeds)))
        worst = np.abs(errors).max()
        assert worst < SURE, f"the average mean is {worst:.1f} standard errors from {expected}"

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
        assert largest <= bound * (1 + 1e-6), (
            f"a neighbour changes the mean by {largest:.6g}, more than sensitivity() = {bound:.6g}"
        )
        assert largest > self.attained * bound, (
            f"the largest change found, {largest:.6g}, is below attained = {self.attained} of "
            f"sensitivity() = {bound:.6g}: state a smaller bound, or a smaller share"
        )
