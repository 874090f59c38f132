"""Pan-private means under the contract of all means, the state of their stream, and their audit."""

from __future__ import annotations

import copy
import json
import math
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, norm
from tests.apart import mu_below
from tests.refusals import refuses

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.means import Mean, Vectors
from dpgrain.means.grid import on_grid
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.numerics.row_clipping import clipped
from dpgrain.papers import PanPrivate, PanPrivateStream
from dpgrain.publishing.draws import CountedSource
from dpgrain.testing.mean_contract import OWNERS, USERS, Array, MeanContract
from dpgrain.units import Record, Relation, User

# Each statistical assertion fails by chance with probability below this.
CHANCE = 1e-7
CLIP = 2.0


class Contract(MeanContract):
    attained = 0.6
    options: ClassVar[dict[str, Any]] = {}

    def make(self, rounds: int = 3, **options: Any) -> Mean:
        values = {"clip": CLIP, "noise_multiplier": 0.5, "n_users": USERS, "rounds": rounds}
        return PanPrivate(**{**values, **self.options, **options})

    def sensitivity(self, mean: Mean, relation: Relation) -> float:
        assert isinstance(mean, PanPrivate)
        return (1 if relation == "zero_out" else 2) * mean.clip / mean.first(1)

    @property
    def units(self) -> int:
        return USERS

    def changed(self, vectors: Array, unit: int, to: Array | None) -> Array:
        other = vectors.copy()
        other[unit == OWNERS] = 0.0 if to is None else to
        return other

    def test_more_rounds_cost_more(self) -> None:
        # They cost the same, because no user is in two; but each has fewer users.
        few, many = (self.make(rounds=rounds) for rounds in (2, 6))
        assert few.event == many.event
        assert self.sd(many) == pytest.approx(3 * self.sd(few))


class TestPanPrivate(Contract):
    pass


class TestBatchesOfTwoSizes(Contract):
    options: ClassVar[dict[str, Any]] = {"n_users": 2 * USERS - 1}
    users = 2 * USERS - 1

    def test_more_rounds_cost_more(self) -> None:
        assert self.make(rounds=2).event == self.make(rounds=6).event


class TestMuchNoise(Contract):
    # On a coarser grid, so that integers can represent the noise.
    options: ClassVar[dict[str, Any]] = {"noise_multiplier": 2.0**29}


def test_each_user_is_in_one_batch() -> None:
    for n, rounds in ((1, 1), (7, 7), (100, 60), (1000, 3), (10**15 + 7, 10**6)):
        mean = PanPrivate(1.0, 1.0, n, rounds)
        assert (mean.first(0), mean.first(rounds)) == (0, n)
        for batch in {0, 1 % rounds, rounds // 2, rounds - 1}:
            first, end = mean.first(batch), mean.first(batch + 1)
            assert end - first in (n // rounds, -(-n // rounds))
            assert mean.batch_index(first) == mean.batch_index(end - 1) == batch


def test_a_round_takes_the_next_users_of_the_roster() -> None:
    # In any order, some without data, some with two blocks, some who are not on the roster.
    owners = np.array([9, 4, 0, 6, 4, -1, 10, 5])
    vectors = np.eye(8) / 8
    run = PanPrivate(1.0, 2.0**-10, 10, 3).start(SystemSource(), owners)
    found = np.array([run.estimate(Vectors(vectors)) for _ in range(3)]) * [[3], [3], [4]] * 8
    expected = [[0, 0, 1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0, 0, 1], [1, 0, 0, 1, 0, 0, 0, 0]]
    assert np.abs(found - expected).max() < 0.1


def test_blocks_of_a_user_are_clipped_together() -> None:
    mean = PanPrivate(1.0, 2.0**-10, 1, 1)
    run = mean.start(SeededSource(1), np.zeros(3, dtype=int))
    found = run.estimate(Vectors([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], dimension=2))
    assert np.allclose(found, [0.6, 0.8], atol=0.02)
    # Overflowing values silently count as zero.
    run = mean.start(SeededSource(1), np.zeros(2, dtype=int))
    assert np.abs(run.estimate(Vectors([[1e308, 1.0], [1e308, 1.0]], dimension=2))).max() < 0.02


def test_stream_and_run_publish_the_same() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(20, 4)) * 10.0 ** rng.integers(-3, 4, (20, 1))
    vectors[5, 1] = np.nan
    there = rng.random(20) < 0.8
    mean = PanPrivate(CLIP, 1.0, 20, 6)
    stream = PanPrivateStream(mean, 4, SeededSource(4))
    sent = [stream.receive(v if here else None) for v, here in zip(vectors, there, strict=True)]
    run = mean.start(SeededSource(4), np.flatnonzero(there))
    expected = [run.estimate(Vectors(vectors[there])) for _ in range(6)]
    assert np.array_equal([found for found in sent if found is not None], expected)
    # A user without data equals one with a non-finite or zero vector.
    assert [found is not None for found in sent] == [
        place + 1 in {mean.first(t) for t in range(7)} for place in range(20)
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.longdouble("1e400")])
def test_non_finite_vector_counts_as_zero(bad: Any) -> None:
    states = []
    for vector in (np.array([0.5, bad]), None, [0, 0]):
        stream = PanPrivateStream(PanPrivate(1.0, 1.0, 2, 1), 2, SeededSource(1))
        stream.receive(vector)
        states.append(stream.state.tolist())
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("wrong", [[1.0], [[1.0, 2.0]], ["a", "b"], [1.0, None], 3.0, [1j, 2.0]])
def test_missing_vector_counts_as_zero(wrong: Any) -> None:
    stream = PanPrivateStream(PanPrivate(1.0, 1.0, 2, 1), 2)
    before = stream.state.tolist()
    assert stream.receive(wrong) is None
    assert (stream.received, stream.state.tolist()) == (1, before)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2)])
def test_an_array_of_another_shape_changes_nothing(shape: tuple[int, ...]) -> None:
    stream = PanPrivateStream(PanPrivate(1.0, 1.0, 2, 1), 2)
    before = stream.to_json()
    with refuses("vector", "2"):
        stream.receive(np.ones(shape))
    assert stream.to_json() == before


# -- the state between two users --


def steps_of(mean: PanPrivate, vectors: Array) -> NDArray[np.int64]:
    return on_grid(clipped(vectors, mean.clip), mean.clip, mean.step)


def _public(draws: CountedSource) -> dict[str, Any]:
    """The count of draws, without the generator and the lock."""
    return {name: each for name, each in vars(draws).items() if name not in ("_source", "_lock")}


def test_state_contains_only_public_numbers_and_noisy_integers() -> None:
    mean = PanPrivate(1.5, 2.0, 5, 2)
    stream = PanPrivateStream(mean, 2)
    stream.receive([1.0, 0.5])
    kept = json.loads(stream.to_json())
    assert kept.pop("mean") == {"clip": 1.5, "noise_multiplier": 2.0, "n_users": 5, "rounds": 2}
    assert kept.pop("state") == stream.state.tolist()
    assert kept == {"format": "dpgrain pan-private stream", "version": 1, "received": 1}
    # Otherwise the object has only the operating system's generator, which has no state.
    other = {name: value for name, value in vars(stream).items() if name != "_state"}
    assert set(other) == {"mean", "_source", "_draws", "_received"}
    source = stream._source._source
    assert isinstance(source, SystemSource)
    assert not vars(source)
    # The rest of the source, and of the draws of a batch, follows from the number of users.
    twin = PanPrivateStream(mean, 2)
    twin.receive(None)
    for kept, same in ((stream._source, twin._source), (stream._draws, twin._draws)):
        assert _public(kept) == _public(same)
    # The shown state is a copy.
    stream.state[:] = 0
    assert stream.state.any()


@pytest.mark.parametrize("received", [0, 1, 5, 9, 10, 15])
def test_a_state_is_under_fresh_noise_at_any_time(received: int) -> None:
    # Less what the users of the batch have added, it has the law of one of the two noises.
    d, rng = 40_000, np.random.default_rng(received)
    mean = PanPrivate(CLIP, 1.5, 20, 2)
    stream, vectors = PanPrivateStream(mean, d, SystemSource()), rng.normal(size=(received, d))
    before: list[NDArray[Any]] = [stream.state]
    for i, vector in enumerate(vectors):
        if i == received // 2:
            stream = PanPrivateStream.from_json(stream.to_json())
        found = stream.receive(vector)
        if found is not None:
            before.append(found)
    first = mean.first(mean.batch_index(received))
    noise = stream.state - steps_of(mean, vectors[first:]).sum(axis=0)
    scale = mean.noise_multiplier * mean.clip / mean.step
    assert kstest(noise / scale, norm.cdf).pvalue > CHANCE
    # It does not depend on the batch before: its first noise, and its mean, with the second one.
    if first:
        assert len(before) == 2
        before[1] -= vectors[:first].mean(axis=0)
        assert max(abs(np.corrcoef(noise, old)[0, 1]) for old in before) < 6 / math.sqrt(d)


def test_mean_has_two_independent_noises() -> None:
    d = 40_000
    mean = PanPrivate(CLIP, 1.5, 3, 1)
    stream = PanPrivateStream(mean, d)
    vectors = np.random.default_rng(1).normal(size=(3, d))
    stream.receive(vectors[0])
    first = stream.state - steps_of(mean, vectors[:1])[0]
    stream.receive(vectors[1])
    found = stream.receive(vectors[2])
    assert found is not None
    second = np.rint(found * 3 / mean.step) - steps_of(mean, vectors).sum(axis=0) - first
    scale = mean.noise_multiplier * mean.clip / mean.step
    assert kstest(second / scale, norm.cdf).pvalue > CHANCE
    assert abs(np.corrcoef(first, second)[0, 1]) < 6 / math.sqrt(d)


@pytest.mark.parametrize("at", [0, 3, 5, 9, 12])
def test_resuming_from_json_equals_continuing(at: int) -> None:
    mean, vectors = PanPrivate(1.0, 1.0, 12, 3), np.random.default_rng(2).normal(size=(12, 2))
    stream = PanPrivateStream(mean, 2, SeededSource(7))
    for vector in vectors[:at]:
        stream.receive(vector)
    # The random state is not written: a repeated run needs it as well.
    source = copy.deepcopy(stream._source._source)
    other = PanPrivateStream.from_json(stream.to_json(), source)
    assert (other.mean, other.received) == (stream.mean, at)
    for vector in vectors[at:]:
        one, two = stream.receive(vector), other.receive(vector)
        assert stream.to_json() == other.to_json()
        assert (one is None) == (two is None)
        assert one is None or two is None or np.array_equal(one, two)


WRITTEN: dict[str, Any] = json.loads(
    PanPrivateStream(PanPrivate(1.0, 1.0, 9, 3), 2, SeededSource(1)).to_json()
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "dpgrain model"}, "not a stream of dpgrain"),
        ({"version": 2}, "format version 2"),
        ({"mean": None}, "damaged"),
        ({"mean": [1.0, 1.0, 9, 3]}, "damaged"),
        ({"mean": {**WRITTEN["mean"], "seed": 1}}, "damaged"),
        ({"mean": {**WRITTEN["mean"], "clip": "1"}}, "clip must be a number"),
        ({"mean": {**WRITTEN["mean"], "rounds": 10}}, "rounds must be at most n_users = 9"),
        ({"received": -1}, "damaged"),
        ({"received": 10}, "damaged"),
        ({"received": 1.0}, "damaged"),
        ({"received": True}, "damaged"),
        ({"state": []}, "damaged"),
        ({"state": 5}, "damaged"),
        ({"state": "12"}, "damaged"),
        ({"state": [1.5, 2]}, "damaged"),
        ({"state": [1, 2**63]}, "damaged"),
        ({"state": [[1, 2]]}, "damaged"),
    ],
)
def test_foreign_json_is_rejected(change: dict[str, Any], message: str) -> None:
    assert PanPrivateStream.from_json(json.dumps(WRITTEN)).state.tolist() == WRITTEN["state"]
    with refuses("The stream") as told:
        PanPrivateStream.from_json(json.dumps({**WRITTEN, "version": [0] * 3000}))
    assert len(str(told.value)) < 300
    with pytest.raises(ParameterError, match=message) as found:
        PanPrivateStream.from_json(json.dumps({**WRITTEN, **change}))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "5", json.dumps(WRITTEN)[:-9], None, "[" * 10**5]
)
def test_invalid_json_is_rejected(text: Any) -> None:
    with refuses("text", "dpgrain"):
        PanPrivateStream.from_json(text)
    for name in WRITTEN:
        rest = {key: value for key, value in WRITTEN.items() if key != name}
        with pytest.raises(ParameterError):
            PanPrivateStream.from_json(json.dumps(rest))


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_no_neighbour_moves_state_and_output_beyond_the_charge(relation: Relation) -> None:
    # With fixed noise, a user changes the visible state or the later additions, not both.
    rng, largest = np.random.default_rng(5), 0.0
    mean = PanPrivate(CLIP, 1.0, 9, 3)
    bound = (1 if relation == "zero_out" else 2) * CLIP
    moved_both = set()
    for _ in range(150):
        vectors = rng.normal(size=(9, 3)) * 10.0 ** rng.integers(-3, 9)
        other, user, look = vectors.copy(), int(rng.integers(9)), int(rng.integers(10))
        other[user] = 0 if relation == "zero_out" else -vectors[user] * rng.choice([1.0, 1e3])
        views = []
        for data in (vectors, other):
            stream, seen, sums = PanPrivateStream(mean, 3, SeededSource(6)), [], []
            seen.append(stream.state)
            for vector in data:
                found = stream.receive(vector)
                seen.append(stream.state)
                if found is not None:
                    sums.append(np.rint(found * 3 / mean.step))
            batch = min(mean.batch_index(look), 2)
            state = seen[look] * (look < 9)
            sums[batch] -= state
            views.append((state, np.concatenate(sums)))
        first, rest = (
            float(np.linalg.norm(one - two)) * mean.step for one, two in zip(*views, strict=True)
        )
        moved_both.add((first > 0, rest > 0))
        largest = max(largest, first, rest)
    assert moved_both == {(True, False), (False, True)}
    assert 0.9 * bound < largest <= bound * (1 + 1e-12)


# -- parameters --


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_calibration_keeps_the_promise(relation: Relation) -> None:
    mean = PanPrivate.calibrate(
        epsilon=1.0, delta=1e-6, n_users=100, rounds=20, clip=3.0, relation=relation
    )
    assert 0.999 < mean.event.epsilon(1e-6, relation=relation) <= 1.0
    assert mean.noise_sd == pytest.approx(math.sqrt(2) * mean.noise_multiplier * 3 / 5)
    # A record of a user costs no less than the user does when exchanged.
    record = mean.event.epsilon(1e-6, unit=Record())
    assert record == pytest.approx(mean.event.epsilon(1e-6, relation="replace", unit=User()))
    other = Gaussian(20.0, ONE_EACH)
    beside = PanPrivate.calibrate(
        epsilon=1.0, delta=1e-6, n_users=100, rounds=20, relation=relation, beside=other
    )
    assert 0.999 < (beside.event + other).epsilon(1e-6, relation=relation) <= 1.0


def test_the_noise_is_below_the_printed_one() -> None:
    # Algorithm 6: ζ² = 8·L²·log(2/δ)/(b·ε)² for replaced users.
    mean = PanPrivate.calibrate(epsilon=1.0, delta=1e-6, n_users=10, rounds=1, relation="replace")
    printed = math.sqrt(8 * math.log(2e6))
    assert 1.25 < printed / mean.noise_multiplier < 1.3


def test_facts_show_the_public_parameters() -> None:
    assert list(map(str, PanPrivate(1.5, 1.0, 2000, 2).facts)) == [
        "the internal state is seen at most once, at any time between two users",
        "2 rounds with 1,000 users each, in the order of enrolment",
        "a clipping radius of 1.5",
    ]
    assert "with 33 or 34 users each" in str(PanPrivate(1.5, 1.0, 100, 3).facts[1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip": 0.0}, "clip must be positive and finite"),
        ({"clip": 1e200}, "clip must be between"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive and finite"),
        ({"noise_multiplier": 1e12}, "noise_multiplier must be between"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"rounds": 11}, "rounds must be at most n_users = 10"),
    ],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0, "n_users": 10, "rounds": 2}
    with pytest.raises(ParameterError, match=message):
        PanPrivate(**{**values, **wrong})


@pytest.mark.parametrize("owners", [None, [0.0, 1.0], ["a"], [[0, 1]]])
def test_owners_are_places_in_the_roster(owners: Any) -> None:
    mean = PanPrivate(1.0, 1.0, 10, 2)
    with refuses("owners", "integers"):
        mean.start(SystemSource(), owners)
    with refuses("owners", "one user per block"):
        mean.start(SystemSource(), np.arange(3)).estimate(Vectors(np.zeros((2, 1))))
    nobody: NDArray[Any] = np.array([])
    assert mean.start(SystemSource(), nobody).estimate(Vectors(np.zeros((0, 1)))).all()


# -- a statistical audit of the visible state together with the output --


AUDITED = PanPrivate(2.0, 1.0, 401, 1)


def claimed_mu(mean: PanPrivate) -> float:
    return mean.event.loss().mu


def views(mean: PanPrivate, looks: tuple[int, ...], runs: int = 16) -> tuple[Array, Array]:
    """(2, looks + 1, trials) what is seen and published in clips, with a user there or not.

    Each user has a separate coordinate, with the whole clip: a run has one trial per user. The last
    position is empty, so that all users can precede the end of the batch.
    """
    d, seen = mean.n_users - 1, []
    for there in (1.0, 0.0):
        rows = []
        for _ in range(runs):
            stream, states = PanPrivateStream(mean, d), []
            for place in range(mean.n_users):
                if place in looks:
                    states.append(stream.state * mean.step / mean.clip)
                vector = np.zeros(d)
                vector[min(place, d - 1)] = 1e6 * there * (place < d)
                found = stream.receive(vector)
            assert found is not None
            rows.append(np.array([*states, found * mean.n_users / mean.clip]))
        seen.append(np.concatenate(rows, axis=1))
    return seen[0], seen[1]


def audit(mean: PanPrivate, looks: tuple[int, ...]) -> float:
    """A lower bound on the distance in sds of all visible values, from differences in time."""
    present, absent = views(mean, looks)
    tests = [np.diff(rows, axis=0, prepend=0.0) for rows in (present, absent)]
    bounds = []
    for some, none in zip(
        [*tests[0], tests[0].sum(axis=0)], [*tests[1], tests[1].sum(axis=0)], strict=True
    ):
        # Half of a user's contribution: the threshold does not depend on the outcome.
        bounds.append(mu_below(some, none, 0.5, CHANCE / (len(looks) + 2)))
    return max(bounds)


# All users come after the visible state, or all before it.
BEFORE, AFTER = 0, 400


@pytest.mark.slow
@pytest.mark.parametrize("look", [BEFORE, AFTER])
def test_audit_stays_below_the_claim(look: int) -> None:
    assert 0.6 * claimed_mu(AUDITED) < audit(AUDITED, (look,)) <= claimed_mu(AUDITED)


@pytest.mark.slow
def test_audit_of_only_the_means_finds_less() -> None:
    assert 0.35 < audit(AUDITED, ()) / claimed_mu(AUDITED) < 1 / math.sqrt(2)


@pytest.mark.slow
def test_two_looks_break_the_claim() -> None:
    # A user's contribution is exposed between a state before and one after: hence only one is
    # shown.
    assert audit(AUDITED, (BEFORE, AFTER)) > 3 * claimed_mu(AUDITED)
