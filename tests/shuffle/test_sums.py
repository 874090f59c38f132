"""Shuffled sums: what the three parties do, what they promise, and what breaks the promise."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions as pld
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta, chi2_contingency

import dpgrain as dg
from dpgrain.accounting import Binomial, Gaussian, gaussian_mu
from dpgrain.accounting.contribution import Contribution
from dpgrain.errors import DeltaWarning, ParameterError
from dpgrain.noise import BinomialLaw, SeededSource, SystemSource
from dpgrain.noise.counts import counts_of
from dpgrain.shuffle import (
    Analyzer,
    Arrivals,
    Bag,
    BlindSum,
    Coins,
    Dropped,
    Encoding,
    Enrolment,
    Packing,
    PoissonSum,
    ScalarSum,
    VectorSum,
    encoding,
)
from dpgrain.shuffle import (
    protocol as protocol_module,
)
from dpgrain.shuffle.design import Design
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.units import RELATIONS, Relation

Array = NDArray[np.float64]
CHANCE, SURE = 1e-7, 5.4
HEADLINE: dict[str, Any] = {
    "n_users": 1000,
    "dim": 100,
    "l2_bound": 1.0,
    "epsilon": 1.0,
    "delta": 1e-6,
}


def central(epsilon: float = 1.0, delta: float = 1e-6, relation: Relation = "replace") -> float:
    """The noise of the Gaussian mechanism for vectors of norm 1."""
    return (2 if relation == "replace" else 1) / gaussian_mu(epsilon, delta)


# -- promises --


@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("n", "d", "epsilon", "rounds", "honest"),
    [(1000, 100, 1.0, 1, 1.0), (20, 3, 8.0, 1, 0.5), (300, 1, 0.1, 10, 1.0), (50, 40, 2.0, 3, 0.8)],
)
def test_the_promise_is_kept_and_not_by_much(
    kind: type[VectorSum],
    relation: Relation,
    n: int,
    d: int,
    epsilon: float,
    rounds: int,
    honest: float,
) -> None:
    protocol = kind(
        n_users=n,
        dim=d,
        l2_bound=2.0,
        epsilon=epsilon,
        delta=1e-6,
        relation=relation,
        rounds=rounds,
        honest_fraction=honest,
    )
    assert 0.97 * epsilon < protocol.guarantee.epsilon() <= epsilon
    assert protocol.guarantee.relation == relation
    # All being honest, as much noise as the honest would have added alone, and more.
    least = 2.0 * central(epsilon, 1e-6, relation) * math.sqrt(rounds)
    assert least < protocol.noise_sd < 1.06 * least / math.sqrt(honest)


def test_the_headline() -> None:
    ours, printed = VectorSum(**HEADLINE), VectorSum(**HEADLINE, analysis="printed")
    assert ours.noise_sd <= 1.05 * central()
    assert printed.noise_sd >= 400 * ours.noise_sd
    assert printed.noise_sd == pytest.approx(4534, rel=1e-3)
    device = ours.randomizer()
    assert device.report_bytes == 212 <= 400
    assert len(device.report(np.ones(100))) == device.report_bytes
    assert printed.randomizer().messages >= 1000 * device.messages
    few = PoissonSum(**HEADLINE).randomizer().messages
    assert 3 < device.messages / few < 4.5


def test_what_the_paper_prints_promises_more_than_it_says() -> None:
    few = {**HEADLINE, "n_users": 50, "dim": 2}
    printed = VectorSum(**few, analysis="printed")
    assert printed.guarantee.epsilon() < 0.01
    several = VectorSum(**few, rounds=5, analysis="printed")
    assert several.noise_sd > 4 * printed.noise_sd


def test_other_releases_share_the_promise() -> None:
    beside = Gaussian(10.0, Contribution(block="user", layout="shared", coordinates="signed"))
    protocol = VectorSum(**HEADLINE, beside=beside)
    assert 0.99 < (protocol.event + beside).epsilon(1e-6, relation="replace") <= 1.0
    assert protocol.guarantee.epsilon() < 0.95


def test_fewer_honest_devices_are_promised_less() -> None:
    protocol = VectorSum(**HEADLINE, honest_fraction=0.5)
    curve = [protocol.guarantee_with(share).epsilon() for share in (0.25, 0.5, 1.0)]
    assert curve[0] > 1.0 >= curve[1] > 0.99
    assert curve[2] < 0.75
    assert "500 devices" in str(protocol.guarantee)
    assert "at least 250 devices" in str(protocol.guarantee_with(0.25))
    # Half of the devices: the noise of the other half comes on top.
    assert protocol.noise_sd == pytest.approx(
        math.sqrt(2) * VectorSum(**HEADLINE).noise_sd, rel=0.02
    )


def allocations(protocol: ShuffledSum) -> Iterator[tuple[str, list[int]]]:
    """How a replaced user may spread its change over coordinates: by how many bits each moves."""
    grid, d = protocol.design.grid, protocol.encoding.dim
    yield "one coordinate", [grid]
    yield "all alike", [math.floor(grid / math.sqrt(d)) + 1] * d
    yield "a quarter", [math.floor(grid / math.sqrt(d // 4)) + 1] * (d // 4)
    yield "one large", [math.floor(0.9 * grid)] + [math.floor(0.43 * grid / math.sqrt(d)) + 1] * d


def shifted(law: BinomialLaw, shift: int) -> PrivacyLossDistribution:
    """The privacy loss of a count that moves by so many, from its two mass functions."""
    sd = math.sqrt(law.variance)
    first, last = int(law.mean - 12 * sd), int(law.mean + 12 * sd) + shift
    x = np.arange(first, last + 1, dtype=np.float64)
    lower = dict(enumerate(law.log_mass(x)))
    upper = dict(enumerate(law.log_mass(x - shift)))
    return pld(lower, upper, value_discretization_interval=1e-5)


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("number", range(4), ids=["one", "alike", "quarter", "large"])
def test_another_accountant_agrees(number: int) -> None:
    protocol = VectorSum(**HEADLINE)
    _, shifts = list(allocations(protocol))[number]
    law = protocol.design.noise.law(protocol.n_users)
    assert isinstance(law, BinomialLaw)
    parts = [shifted(law, shift).self_compose(shifts.count(shift)) for shift in sorted(set(shifts))]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    epsilon = whole.get_epsilon_for_delta(protocol.delta)
    # The discretisation of the reference rounds up, too.
    assert 0.85 < epsilon <= 1.0 + 2e-3
    assert epsilon <= protocol.guarantee.epsilon() * (1 + 2e-3)


# -- what moves when a user does --


@pytest.mark.parametrize("centred", [True, False], ids=["vectors", "numbers"])
def test_no_neighbour_moves_the_codes_farther(centred: bool) -> None:
    rng, largest, farthest = np.random.default_rng(0), 0.0, 0.0
    d = 4 if centred else 1
    code = Encoding(3.0, 20, d, centred)
    for _ in range(4000):
        direction = rng.normal(size=d)
        one = direction * 10.0 ** rng.integers(-2, 9)
        other = rng.choice([-1.0, 0.0, 1e-9, 5.0]) * one + 1e-7 * rng.normal(size=d)
        if rng.random() < 0.3:
            other = np.full(d, np.nan)
        seed = int(rng.integers(10**6))
        a, b = (code.codes(v[None, :], SeededSource(seed))[0].astype(int) for v in (one, other))
        null = np.full(d, code.null)
        assert a.min() >= 0
        assert a.max() <= 20
        largest = max(largest, float(np.linalg.norm(a - b)))
        farthest = max(farthest, float(np.linalg.norm(a - null)))
        assert np.abs(a - b).max() <= 20
    assert 20 <= largest <= 20 + math.sqrt(d)
    half = 10 if centred else 20
    assert half <= farthest <= half + math.sqrt(d)
    claimed = Binomial(10**6, 0.5, 20, d, 1e-9, centred=centred)
    ratio = claimed.loss(relation="zero_out").mu / claimed.loss(relation="replace").mu
    assert ratio > 0.99 if not centred else ratio < 0.6


def test_codes_are_without_bias() -> None:
    code = Encoding(2.0, 10, 2)
    found = code.codes(np.tile([0.37, -1.1], (100_000, 1)), SystemSource())
    mean = (found.mean(axis=0) - code.null) * code.step
    error = SURE * code.step * 0.5 / math.sqrt(100_000)
    assert np.abs(mean - [0.37, -1.1]).max() < error


def test_who_is_long_is_shortened_and_who_is_broken_has_no_data() -> None:
    code = Encoding(1.0, 1000, 2)
    rows = np.array([[30.0, 40.0], [1e300, 0.0], [np.nan, 0.5], [np.inf, 0.0], [-0.6, 0.0]])
    found = (code.codes(rows, SeededSource(1)).astype(int) - 500) / 500
    wanted = [[0.6, 0.8], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-0.6, 0.0]]
    assert np.abs(found - wanted).max() < 0.003


def test_nobody_changes_how_others_are_rounded() -> None:
    code, rng = Encoding(1.0, 100, 3), np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * 0.1
    before = code.codes(rows, SeededSource(3))
    for odd in ([np.nan] * 3, [1e308, 1e308, -1e308], [5.0, 0.0, 0.0], [0.0] * 3):
        other = rows.copy()
        other[20] = odd
        after = code.codes(other, SeededSource(3))
        assert np.array_equal(np.delete(before, 20, axis=0), np.delete(after, 20, axis=0))


# -- the simulation is what all messages are --


def small(kind: type[Any] = VectorSum, coins: int = 6) -> Any:
    """A protocol with few coins, so that laws have few outcomes."""
    protocol = kind(n_users=3, dim=2, epsilon=8.0, delta=1e-3, honest_fraction=0.5)
    noise = Arrivals(2.0) if kind is PoissonSum else Coins(coins, 0.3)
    object.__setattr__(protocol, "design", Design(4, noise, 1e-6))
    return protocol


@pytest.mark.search(keep=0)
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_simulations_have_the_law_of_all_messages(kind: type[VectorSum]) -> None:
    protocol, times = small(kind), 2500
    vectors = np.array([[0.4, -0.9], [0.1, 0.2]])
    device, analyzer, source = protocol.randomizer(), protocol.analyzer(), SeededSource(4)
    rng = np.random.default_rng(5)

    def materialised() -> Array:
        messages = []
        for vector in (*vectors, None):
            for label, ones in enumerate(device.counts(vector, source)):
                zeros = 0 if kind is PoissonSum else 4 + 6 - ones
                messages += [(label, 1)] * ones + [(label, 0)] * zeros
        shuffled = rng.permutation(np.array(messages))
        value: Array = analyzer.estimate_messages(shuffled, 3).value
        return value

    def by_reports() -> Array:
        shuffler = protocol.shuffler()
        for vector in (*vectors, None):
            shuffler.receive(device.packing.pack(device.counts(vector, source), fresh(rng)))
        value: Array = analyzer.estimate(shuffler.release().to_bytes()).value
        return value

    def simulated() -> Array:
        value: Array = protocol.estimate([vectors], 3, source)
        return value

    ways = [
        np.array([way() for _ in range(times)]) for way in (materialised, by_reports, simulated)
    ]
    for coordinate in range(2):
        for other in ways[1:]:
            one, two = ways[0][:, coordinate], other[:, coordinate]
            edges = np.unique(np.quantile(np.concatenate([one, two]), np.linspace(0.02, 0.98, 12)))
            table = np.array(
                [
                    np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
                    for x in (one, two)
                ]
            )
            table = table[:, table.sum(axis=0) > 10]
            assert chi2_contingency(table).pvalue > CHANCE
    # And it can be told from another: one device less.
    less = np.array([protocol.estimate([vectors], 2, source) for _ in range(times)])[:, 0]
    edges = np.unique(np.quantile(ways[0][:, 0], np.linspace(0.05, 0.95, 8)))
    pair = [
        np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
        for x in (ways[0][:, 0], less)
    ]
    assert chi2_contingency(np.array(pair) + 1).pvalue < CHANCE


def test_sums_are_without_bias_and_err_as_they_say() -> None:
    protocol = VectorSum(n_users=40, dim=3, l2_bound=1.0, epsilon=2.0, delta=1e-4)
    vectors = np.random.default_rng(0).normal(size=(37, 3)) * 0.3
    vectors[0] = np.nan
    found = np.array([protocol.estimate([vectors], 40, SystemSource()) for _ in range(3000)])
    errors = found - np.nan_to_num(vectors).sum(axis=0)
    sd = errors.std()
    assert np.abs(errors.mean(axis=0)).max() < SURE * sd / math.sqrt(3000)
    assert 0.93 < sd / protocol.noise_sd < 1.06


def test_seeds_repeat_and_are_not_private() -> None:
    protocol, X = VectorSum(**HEADLINE), np.ones((1000, 100))
    assert np.array_equal(
        protocol.simulate(X, random_state=1), protocol.simulate(X, random_state=1)
    )
    assert not np.array_equal(protocol.simulate(X), protocol.simulate(X))
    with dg.budget(2.0, 1e-5) as budget:
        protocol.simulate(X, random_state=1)
    assert budget.guarantee is not None
    assert not budget.guarantee.private


def test_simulations_are_charged_round_by_round() -> None:
    protocol = VectorSum(**{**HEADLINE, "rounds": 4})
    X = np.ones((1000, 100))
    with dg.budget(1.0 + 1e-9, 4.1e-6) as budget:
        for _ in range(4):
            protocol.simulate(X)
        with pytest.raises(ParameterError, match="budget"):
            protocol.simulate(X)
    assert budget.guarantee is not None
    assert 0.9 < budget.guarantee.epsilon(1e-6) <= 1.0 + 1e-6


def test_scalars() -> None:
    protocol = ScalarSum(n_users=2000, bound=5.0, epsilon=1.0, delta=1e-6, relation="zero_out")
    x = np.concatenate([np.full(1000, 2.0), [np.nan, -3.0, 99.0]])
    found = [protocol.simulate(x, random_state=seed) for seed in range(40)]
    assert abs(np.mean(found) - 2005) < SURE * protocol.noise_sd / math.sqrt(40)
    assert protocol.guarantee.epsilon() <= 1.0
    # A removed user moves it as far as a replaced one.
    assert protocol.guarantee.epsilon(relation="replace") == protocol.guarantee.epsilon()


def test_a_large_delta_is_warned_of() -> None:
    protocol = VectorSum(n_users=1000, dim=1, l2_bound=1.0, epsilon=1.0, delta=1e-2)
    with pytest.warns(DeltaWarning):
        protocol.simulate(np.ones((1000, 1)))


# -- audits --

TRIALS = 4000
AUDITED = VectorSum(n_users=30, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-5)


def views(protocol: VectorSum, value: float, trials: int = TRIALS) -> Array:
    """The estimated sums with one user of this value, and others without data."""
    source = SystemSource()
    return np.array(
        [protocol.estimate([np.array([[value]])], 30, source)[0] for _ in range(trials)]
    )


def mu_below(present: Array, absent: Array) -> float:
    """A lower bound on the distance of two laws, in standard deviations."""
    cut, n = float(np.median(np.concatenate([present, absent]))), len(absent)
    hits, false = int((present >= cut).sum()), int((absent >= cut).sum())
    low = float(beta.ppf(CHANCE / 2, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - CHANCE / 2, false + 1, n - false)) if false < n else 1.0
    return float(ndtri(low) - ndtri(high))


def claimed(protocol: VectorSum, relation: Relation) -> float:
    return protocol.event.loss(relation=relation).mu


@pytest.mark.search(keep=0)
def test_audit() -> None:
    replaced = mu_below(views(AUDITED, 1.0), views(AUDITED, -1.0))
    assert 0.68 * claimed(AUDITED, "replace") < replaced <= claimed(AUDITED, "replace")
    removed = mu_below(views(AUDITED, 1.0), views(AUDITED, math.nan))
    assert 0.55 * claimed(AUDITED, "zero_out") < removed <= claimed(AUDITED, "zero_out")


@pytest.mark.search(keep=0)
def test_audit_finds_a_third_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = counts_of

    def less(law: BinomialLaw, size: int, source: Any) -> Any:
        return real(BinomialLaw(law.trials // 4, 0.5), size, source) + law.trials * 3 // 8

    monkeypatch.setattr(protocol_module, "counts_of", less)
    found = mu_below(views(AUDITED, 0.5), views(AUDITED, -0.5))
    assert found > claimed(AUDITED, "replace") / 2
    assert mu_below(views(AUDITED, 1.0), views(AUDITED, math.nan)) > claimed(AUDITED, "zero_out")


def test_audit_finds_a_missing_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "clipped", lambda vectors, bound: vectors)
    found = mu_below(views(AUDITED, 2.0), views(AUDITED, math.nan))
    assert found > claimed(AUDITED, "zero_out")


@pytest.mark.search(keep=0)
def test_audit_finds_the_wrong_unit() -> None:
    # A promise for a device does not protect a person with three.
    source = SystemSource()

    def seen(value: float) -> Array:
        three = np.full((3, 1), value)
        return np.array([AUDITED.estimate([three], 30, source)[0] for _ in range(TRIALS)])

    found = mu_below(seen(1.0), seen(math.nan))
    assert claimed(AUDITED, "zero_out") < found
    assert found <= AUDITED.event.loss(units=3, relation="zero_out").mu


def test_audit_finds_dishonest_devices() -> None:
    # Promised for half of the devices; a tenth of them add noise.
    protocol = VectorSum(
        n_users=30, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-5, honest_fraction=0.5
    )
    source, code = SystemSource(), protocol.encoding

    def seen(value: float, honest: int) -> Array:
        own = code.codes(np.full((TRIALS, 1), value), source)[:, 0]
        return np.asarray(own + counts_of(protocol.design.noise.law(honest), TRIALS, source) * 1.0)

    assert mu_below(seen(1.0, 15), seen(math.nan, 15)) <= claimed(protocol, "zero_out")
    assert mu_below(seen(1.0, 3), seen(math.nan, 3)) > claimed(protocol, "zero_out")
    told = protocol.guarantee_with(0.1).event.loss(relation="zero_out").mu
    assert mu_below(seen(1.0, 3), seen(math.nan, 3)) <= told


def test_counts_of_single_devices_are_not_private_even_without_names() -> None:
    # The analyzer sees the list of all devices' counts for one coordinate, shuffled: one is far off.
    protocol, times = VectorSum(**HEADLINE), 1500
    device, source, others = protocol.randomizer(), SystemSource(), HEADLINE["n_users"] - 1

    def lists(value: float) -> Array:
        noise = counts_of(protocol.design.noise.law(1), others * times, source)
        vector = np.zeros(100)
        vector[0] = value
        own = np.array([device.counts(vector, source)[0] for _ in range(times)])
        counts = np.column_stack([own, noise.reshape(times, others) + protocol.encoding.null])
        return np.asarray(counts.max(axis=1) + counts.min(axis=1), dtype=np.float64)

    apart = mu_below(lists(1.0), lists(-1.0))
    assert apart > 3 * claimed(protocol, "replace")


def test_messages_of_both_signs_are_not_private() -> None:
    # Skellam noise from +1 and −1 messages, of the variance that PoissonSum has: a user's own ones go
    # to the +1s, whose count the analyzer sees with half of that noise.
    protocol = PoissonSum(n_users=30, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-5)
    half = Arrivals(protocol.design.noise.law(1).mean / 2).law(30)
    grid = protocol.design.grid
    plus = counts_of(half, TRIALS, SystemSource()).astype(np.float64)
    again = counts_of(half, TRIALS, SystemSource()).astype(np.float64)
    assert mu_below(plus + grid, again) > claimed(protocol, "replace")
    # The difference alone, as a secure sum would show it, hides the user as well as promised.
    minus = counts_of(half, TRIALS, SystemSource())
    more = counts_of(half, TRIALS, SystemSource())
    assert mu_below(plus + grid - minus, again - more) <= claimed(protocol, "replace")


# -- parties --


def test_three_parties() -> None:
    protocol = VectorSum(n_users=30, dim=3, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler, analyzer = protocol.shuffler(), protocol.analyzer()
    device = protocol.randomizer()
    vectors = np.random.default_rng(0).normal(size=(30, 3)) * 0.3
    for vector in vectors:
        assert shuffler.receive(device.report(vector))
    assert not shuffler.receive(device.report(None))
    assert shuffler.reports == 30
    bag = shuffler.release()
    found = analyzer.estimate(bag)
    assert found.reports == 30
    assert found.dropped == Dropped(surplus=1)
    assert np.abs(found.value - vectors.sum(axis=0)).max() < 6 * found.standard_error
    assert "30 devices; 1 dropped" in str(found)
    assert "30 of 30 reports" in repr(shuffler)
    with pytest.raises(ParameterError, match="handed on"):
        shuffler.release()
    with pytest.raises(ParameterError, match="handed on"):
        shuffler.receive(b"")


def test_too_few_reports_are_kept_back() -> None:
    protocol = VectorSum(
        n_users=10, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4, honest_fraction=0.5
    )
    shuffler, device = protocol.shuffler(), protocol.randomizer()
    for _ in range(4):
        shuffler.receive(device.report([0.1]))
    with pytest.raises(ParameterError, match="4 of the 5 reports"):
        shuffler.release()
    shuffler.receive(device.report([0.1]))
    assert shuffler.release().reports == 5


def test_reports_of_other_rounds_and_protocols_do_not_count() -> None:
    protocol = VectorSum(n_users=10, dim=2, l2_bound=1.0, epsilon=8.0, delta=1e-4, rounds=4)
    other = VectorSum(n_users=10, dim=2, l2_bound=1.0, epsilon=7.0, delta=1e-4, rounds=4)
    shuffler = protocol.shuffler(3)
    assert shuffler.receive(protocol.randomizer(3).report([0.1, 0.2]))
    assert not shuffler.receive(protocol.randomizer(2).report([0.1, 0.2]))
    assert not shuffler.receive(other.randomizer(3).report([0.1, 0.2]))
    assert shuffler.dropped == Dropped(malformed=2)


def test_nobody_takes_part_twice() -> None:
    protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    enrolment = Enrolment()
    first, second = (protocol.shuffler(r, enrolment=enrolment) for r in (0, 1))
    reports = [protocol.randomizer(r).report([0.0]) for r in (0, 1)]
    assert first.receive(reports[0], device="ann")
    assert not first.receive(reports[0], device="ann")
    assert not second.receive(reports[1], device="ann")
    assert second.receive(reports[1], device="bob")
    assert second.dropped == Dropped(repeated=1)
    with pytest.raises(ParameterError, match="device must be said"):
        second.receive(reports[1])


def test_rounds_that_the_promise_does_not_count_are_refused() -> None:
    protocol = VectorSum(n_users=10, dim=2, epsilon=8.0, delta=1e-4, rounds=2)
    assert "each of which takes part in 2 rounds at most" in str(protocol.guarantee)
    protocol.shuffler(1)
    with pytest.raises(ParameterError, match="round 2 is beyond the 2 rounds"):
        protocol.shuffler(2)
    protocol.shuffler(2, enrolment=Enrolment())


def test_bytes_come_in_any_dress() -> None:
    protocol = VectorSum(n_users=10, dim=2, epsilon=8.0, delta=1e-4)
    shuffler, device = protocol.shuffler(), protocol.randomizer()
    assert shuffler.receive(bytearray(device.report(None)))
    assert shuffler.receive(memoryview(device.report(None)))


def test_a_report_that_is_sent_again_does_not_count() -> None:
    # Otherwise copies of one person's report, made without reading it, would drown all other noise.
    protocol = VectorSum(n_users=5, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler, report = protocol.shuffler(), protocol.randomizer().report([0.5])
    assert shuffler.receive(report)
    assert not shuffler.receive(report)
    assert shuffler.receive(protocol.randomizer().report([0.5]))
    assert shuffler.dropped == Dropped(repeated=1)


def test_reports_of_another_deployment_do_not_count() -> None:
    numbers: dict[str, Any] = {"n_users": 5, "dim": 1, "epsilon": 8.0, "delta": 1e-4}
    monday, tuesday = (VectorSum(**numbers, label=day) for day in ("monday", "tuesday"))
    shuffler = tuesday.shuffler()
    assert not shuffler.receive(monday.randomizer().report([0.5]))
    assert shuffler.receive(tuesday.randomizer().report([0.5]))
    with pytest.raises(ParameterError, match="label must be text"):
        VectorSum(**numbers, label=3)  # type: ignore[arg-type]


def test_corrupt_devices_are_not_counted_on() -> None:
    protocol = VectorSum(n_users=100, dim=1, epsilon=2.0, delta=1e-5, honest_fraction=0.5)
    sent = np.zeros((50, 1), dtype=np.int64)
    assert protocol.simulate(np.ones((50, 1)), corrupt=sent).shape == (1,)
    with pytest.raises(ParameterError, match="49 of the 50 honest reports"):
        protocol.simulate(np.ones((50, 1)), corrupt=sent, dropped=1)


@pytest.mark.parametrize(("share", "devices"), [(0.07, 7), (0.14, 14), (0.28, 28), (0.55, 55)])
def test_shares_are_taken_as_they_are_written(share: float, devices: int) -> None:
    protocol = VectorSum(n_users=100, dim=1, epsilon=2.0, delta=1e-5, honest_fraction=share)
    assert protocol.honest == devices
    assert protocol.event_with(devices).epsilon(1e-5, relation="replace") <= 2.0


def test_numbers_of_numpy_are_plain_numbers() -> None:
    kinds: dict[str, Any] = {"n_users": np.int16(100), "dim": np.uint8(20), "rounds": np.uint8(13)}
    reals: dict[str, Any] = {"epsilon": np.float32(1.0), "l2_bound": np.float32(2.0)}
    odd = VectorSum(**kinds, **reals, delta=1e-6)
    plain = VectorSum(n_users=100, dim=20, rounds=13, epsilon=1.0, delta=1e-6, l2_bound=2.0)
    assert odd == plain
    assert odd.design.leak == pytest.approx(1e-8 / 260)
    assert odd.simulate(np.ones((100, 20))).shape == (20,)


@pytest.mark.parametrize("odd", [None, "x", {}, 1j, 10**400, "0.5"], ids=str)
def test_odd_cells_are_no_data(odd: Any) -> None:
    protocol = VectorSum(n_users=50, dim=2, epsilon=4.0, delta=1e-4)
    rows: list[list[Any]] = [[0.1, 0.2], [odd, 0.1], [True, 0.3]]
    wanted: list[list[Any]] = [[0.1, 0.2], [0.5 if odd == "0.5" else math.nan, 0.1], [1.0, 0.3]]
    found = protocol.simulate(rows, random_state=1)
    assert np.array_equal(found, protocol.simulate(wanted, random_state=1))
    scalar = ScalarSum(n_users=50, epsilon=4.0, delta=1e-4)
    assert scalar.simulate([row[0] for row in rows], random_state=1) == (
        scalar.simulate([row[0] for row in wanted], random_state=1)
    )
    device = protocol.randomizer()
    assert device.report(rows[1], random_state=2) == device.report(wanted[1], random_state=2)


def test_rows_without_data_may_be_left_out_one_by_one() -> None:
    protocol = VectorSum(n_users=50, dim=2, epsilon=4.0, delta=1e-4)
    missing: list[Any] = [[0.1, 0.2], None, [0.5], [1.0, 2.0, 3.0], "abc", [0.3, 0.4]]
    nan = [math.nan, math.nan]
    wanted = [[0.1, 0.2], nan, nan, nan, nan, [0.3, 0.4]]
    found = protocol.simulate(missing, random_state=1)
    assert np.array_equal(found, protocol.simulate(wanted, random_state=1))


def test_a_copy_does_not_count_in_another_batch_either() -> None:
    protocol = VectorSum(n_users=5, dim=1, epsilon=8.0, delta=1e-4)
    enrolment, report = Enrolment(), protocol.randomizer().report([0.5])
    first, second = (protocol.shuffler(enrolment=enrolment) for _ in range(2))
    assert first.receive(report, device="ann")
    assert not second.receive(report, device="bob")


def test_what_is_too_wide_or_too_many_is_refused() -> None:
    for change, named in (({"dim": 1 << 21}, r"2\^20"), ({"n_users": 10**17}, "n_users")):
        with pytest.raises(ParameterError, match=named):
            VectorSum(**{**HEADLINE, **change})


def test_a_broken_report_does_not_use_up_a_place() -> None:
    protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler = protocol.shuffler(enrolment=Enrolment())
    assert not shuffler.receive(b"broken", device="ann")
    assert shuffler.receive(protocol.randomizer().report([0.0]), device="ann")


def test_messages_that_nobody_can_send_are_dropped_and_counted() -> None:
    protocol = small()
    analyzer = protocol.analyzer()
    good = [(0, 1)] * 30 + [(1, 0)] * 25
    bad = [(2, 1), (-1, 0), (0, 2), (0, -1), (1, 7)]
    found = analyzer.estimate_messages(np.array(good + bad + [(0, 1)] * 4), 3)
    assert found.dropped == Dropped(malformed=5, surplus=4)
    assert np.array_equal(found.value, analyzer.decoded(np.array([30, 0]), 3))
    odd = np.array([(0.5, 1.0), (np.nan, 0.0), (0.0, 1.0)])
    assert analyzer.estimate_messages(odd, 3).dropped.malformed == 2
    with pytest.raises(ParameterError, match="shape"):
        analyzer.estimate_messages(np.ones(3), 3)


def test_one_corrupt_device_can_do_so_much_and_no_more() -> None:
    protocol = VectorSum(
        n_users=50, dim=3, l2_bound=1.0, epsilon=4.0, delta=1e-4, honest_fraction=0.98
    )
    largest = protocol.randomizer().packing.largest
    X = np.zeros((49, 3))
    source = np.random.default_rng(0)
    results = {
        name: protocol.simulate(X, corrupt=[message], random_state=7)
        for name, message in {
            "all": [largest] * 3,
            "none": [0] * 3,
            "some": source.integers(0, largest + 1, 3).tolist(),
        }.items()
    }
    far = float(np.linalg.norm(results["all"] - results["none"]))
    assert far == pytest.approx(protocol.influence)
    assert np.linalg.norm(results["all"] - results["some"]) <= protocol.influence
    with pytest.raises(ParameterError, match="corrupt counts"):
        protocol.simulate(X, corrupt=[[largest + 1, 0, 0]])
    with pytest.raises(ParameterError, match="at most 49 rows"):
        protocol.simulate(np.zeros((50, 3)), corrupt=[[0, 0, 0]])


def test_devices_that_drop_out_take_their_noise_along() -> None:
    protocol = PoissonSum(
        n_users=100, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4, honest_fraction=0.6
    )
    X = np.full((100, 2), 0.5)
    found = np.array([protocol.simulate(X, dropped=40, random_state=s) for s in range(400)])
    sd = protocol.analyzer().standard_error(60)
    assert np.abs(found.mean(axis=0) - 30).max() < SURE * sd / 20
    assert 0.8 < found.std() / sd < 1.2
    gone = np.arange(100) % 2 == 0
    assert abs(protocol.simulate(X, dropped=gone & (np.arange(100) < 80))[0] - 30) < 8 * sd
    with pytest.raises(ParameterError, match="59 of the 60 honest reports"):
        protocol.simulate(X, dropped=41)


# -- whatever bytes come --


def fresh(generator: np.random.Generator) -> bytes:
    return generator.bytes(16)


def consistent(shuffler: Any, packing: Packing) -> bool:
    ones = shuffler._ones
    return bool(
        ones.min() >= 0
        and ones.max() <= shuffler.reports * packing.largest
        and shuffler.reports <= shuffler._size
    )


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_whatever_bytes_come_the_parties_stay_consistent(kind: type[VectorSum]) -> None:
    protocol = kind(n_users=50_000, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-7)
    shuffler, analyzer, device = protocol.shuffler(), protocol.analyzer(), protocol.randomizer()
    packing, rng = device.packing, random.Random(1)
    valid = [device.report(v) for v in (None, [1.0, 0.0, 0.0], [np.nan] * 3, [-1e300, 1.0, 1.0])]
    counted = 0
    for number in range(60_000):
        way = number % 6
        report: Any = bytearray(rng.choice(valid))
        if way == 0:
            report = rng.randbytes(rng.randrange(0, 40))
        elif way == 1:
            report[rng.randrange(len(report))] = rng.randrange(256)
        elif way == 2:
            report = report[: rng.randrange(len(report))]
        elif way == 3:
            report += rng.randbytes(rng.randrange(1, 4))
        elif way == 4:
            report = packing.tag + rng.randbytes(packing.size - len(packing.tag))
        report = bytes(report)
        if len(report) == packing.size and report.startswith(packing.tag):
            # Each has a number of its own, as of another device.
            start = len(packing.tag)
            report = report[:start] + rng.randbytes(16) + report[start + 16 :]
        known = packing.unpack(report)
        accepted = shuffler.receive(report)
        assert accepted == (known is not None)
        if known is not None:
            # Whatever is taken is a report that a device can send.
            assert packing.pack(known, packing.nonce_of(report)) == report
            counted += 1
    assert consistent(shuffler, packing)
    assert shuffler.reports == counted > 10_000
    assert shuffler.reports + shuffler.dropped.total == 60_000
    strangers: list[Any] = [None, "text", 7, [1], bytearray(b"rubbish")]
    for strange in strangers:
        assert not shuffler.receive(strange)
    shuffler._least = 0
    found = analyzer.estimate(shuffler.release().to_bytes())
    assert np.isfinite(found.value).all()


def test_every_small_report_is_read_or_refused() -> None:
    # All byte strings of the length of a report, for a packing that is small enough to try them.
    packing, nonce = Packing(b"", 2, 5), bytes(16)
    read = {}
    for number in range(256):
        report = nonce + bytes([number])
        integers = packing.unpack(report)
        if integers is not None:
            read[report] = tuple(integers)
            assert packing.pack(integers, nonce) == report
    assert sorted(read.values()) == [(i, j) for i in range(6) for j in range(6)]


def test_whatever_bag_comes_the_analyzer_refuses_or_answers() -> None:
    protocol = VectorSum(n_users=20, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    analyzer, shuffler = protocol.analyzer(), protocol.shuffler()
    for _ in range(20):
        shuffler.receive(protocol.randomizer().report(None))
    good, rng = shuffler.release().to_bytes(), random.Random(2)
    refused = 0
    for number in range(50_000):
        data = bytearray(good)
        if number % 3 == 0:
            data = bytearray(rng.randbytes(rng.randrange(0, 80)))
        else:
            for _ in range(number % 3):
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            found = analyzer.estimate(bytes(data))
        except ParameterError:
            refused += 1
        else:
            assert np.isfinite(found.value).all()
            assert 0 <= found.reports <= 20
            most = protocol.influence * 20
            assert np.abs(found.value).max() <= most
    assert 10_000 < refused < 50_000
    bag = Bag(np.array([1, 2, 3]), 20, Dropped(), analyzer.packing.tag)
    with pytest.raises(ParameterError, match="out of range"):
        analyzer.estimate(bag)


# -- parameters --


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_users": 0}, "n_users"),
        ({"dim": 0}, "dim"),
        ({"dim": 2.5}, "dim"),
        ({"l2_bound": 0.0}, "l2_bound"),
        ({"l2_bound": math.inf}, "l2_bound"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"relation": "add"}, "relation"),
        ({"rounds": 0}, "rounds"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"honest_fraction": 1.5}, "honest_fraction"),
        ({"analysis": "loose"}, "analysis"),
        ({"analysis": "printed", "epsilon": 16.0}, "epsilon ≤ 15"),
    ],
    ids=lambda value: (
        ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_wrong_parameters_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        VectorSum(**{**HEADLINE, **change})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda p: p.simulate(np.ones((5, 2))), "shape"),
        (lambda p: p.simulate(np.ones((11, 3))), "at most 10 rows"),
        (lambda p: p.shuffler("x"), "round"),
        (lambda p: p.shuffler(enrolment="x"), "enrolment must be"),
        (
            lambda p: p.shuffler().receive(p.randomizer().report(None), device=["a"]),
            "device must be",
        ),
        (lambda p: p.simulate(np.ones((1, 3), dtype="m8[s]")), "numbers"),
        (lambda p: p.estimate([np.ones((2, 1))], 10, SystemSource()), "3 coordinates"),
        (
            lambda p: p.estimate([np.ones((2, 3))], 9, SystemSource()),
            "enrolled must lie between 10",
        ),
        (lambda p: p.randomizer().report(np.ones((2, 3))), "3 coordinates"),
        (lambda p: p.simulate(np.ones((1, 3)), dropped=-1), "dropped"),
        (lambda p: p.simulate(np.ones((1, 3)), dropped=np.ones(3)), "dropped"),
        (lambda p: p.simulate(np.ones((1, 3)), corrupt=[[0.5, 0, 0]]), "corrupt"),
        (lambda p: p.randomizer(-1), "round"),
        (lambda p: p.guarantee_with(0.0), "honest_fraction"),
        (lambda p: p.analyzer().estimate(b"nothing"), "not a bag"),
    ],
    ids=[
        "columns",
        "rows",
        "round text",
        "enrolment",
        "device",
        "times",
        "tile",
        "enrolled",
        "matrix",
        "dropped",
        "truths",
        "corrupt",
        "round",
        "share",
        "bag",
    ],
)
def test_wrong_calls_are_named(call: Callable[[Any], Any], named: str) -> None:
    protocol = VectorSum(n_users=10, dim=3, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    with pytest.raises(ParameterError, match=named):
        call(protocol)


PROTOCOLS: dict[str, ShuffledSum] = {
    "vector": VectorSum(n_users=200, dim=3, epsilon=2.0, delta=1e-6, rounds=2, label="a"),
    "poisson": PoissonSum(n_users=200, dim=3, epsilon=2.0, delta=1e-6, honest_fraction=0.7),
    "scalar": ScalarSum(n_users=200, bound=3.0, epsilon=2.0, delta=1e-6, relation="zero_out"),
    "blind": BlindSum(n_users=200, dim=3, epsilon=2.0, delta=1e-6),
    "printed": VectorSum(n_users=20, dim=1, epsilon=2.0, delta=1e-6, analysis="printed"),
    "beside": VectorSum(
        n_users=200,
        dim=3,
        epsilon=2.0,
        delta=1e-6,
        beside=Gaussian(20.0, Contribution(block="user", layout="shared", coordinates="signed")),
    ),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_are_written_and_read(name: str) -> None:
    protocol = PROTOCOLS[name]
    read = ShuffledSum.from_json(protocol.to_json())
    assert read == protocol
    assert type(read) is type(protocol)
    assert read._packing(0) == protocol._packing(0)


def test_a_protocol_that_does_not_keep_its_promise_is_not_believed() -> None:
    values = json.loads(PROTOCOLS["vector"].to_json())
    values["design"]["noise"]["count"] //= 2
    with pytest.raises(ParameterError, match="do not keep epsilon = 2 at delta"):
        VectorSum.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"grid": 1}, "grid must be an even number"),
        ({"grid": 7}, "grid must be an even number"),
        ({"grid": 10**7}, "too large"),
        ({"noise": {"kind": "Coins", "count": 10**12, "probability": 0.5}}, "too large"),
        ({"noise": {"kind": "Coins", "count": 10**15, "probability": 1 - 2.0**-49}}, "2"),
        ({"noise": {"kind": "Coins", "count": -5, "probability": 0.5}}, "too large"),
        ({"leak": 0.2}, "do not keep"),
        ({"leak": 0}, "leak"),
    ],
    ids=["one", "odd", "fine", "many", "counts", "negative", "leaky", "nothing"],
)
def test_numbers_that_are_handed_on_are_checked(numbers: dict[str, Any], named: str) -> None:
    values = json.loads(VectorSum(n_users=200, dim=1, epsilon=0.5, delta=1e-6).to_json())
    values["design"] |= numbers
    with pytest.raises(ParameterError, match=named):
        VectorSum.from_json(json.dumps(values))


def test_protocols_that_are_equal_have_one_tag() -> None:
    one, other = (VectorSum(n_users=9, dim=1, epsilon=1, delta=1e-6, l2_bound=b) for b in (1, 1.0))
    assert one == other
    assert one._packing(0) == other._packing(0)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", '{"format": "dpgrain.shuffle/1"}', '{"format": "other"}', "[" * 200_000],
    ids=["nothing", "empty", "list", "number", "little", "other", "deep"],
)
def test_foreign_text_is_no_protocol(text: str) -> None:
    with pytest.raises(ParameterError, match="not a protocol"):
        VectorSum.from_json(text)
    values = json.loads(PROTOCOLS["scalar"].to_json())
    for broken in ({**values, "more": 1}, {**values, "protocol": "Other"}, {**values, "design": 3}):
        with pytest.raises(ParameterError, match="not a protocol"):
            VectorSum.from_json(json.dumps(broken))


def test_poisson_noise_has_no_printed_numbers() -> None:
    with pytest.raises(ParameterError, match="PoissonSum"):
        PoissonSum(**HEADLINE, analysis="printed")


@pytest.mark.search(keep=3)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 30.0, 1e3, 1e9])
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_extreme_promises_are_kept(kind: type[VectorSum], epsilon: float) -> None:
    for n, d in ((1, 1), (7, 3), (1000, 30)):
        protocol = kind(n_users=n, dim=d, epsilon=epsilon, delta=1e-9)
        assert protocol.guarantee.epsilon() <= epsilon
        found = protocol.estimate([np.zeros((1, d))], n, SystemSource())
        assert np.abs(found).max() < 7 * protocol.noise_sd


def test_too_small_an_epsilon_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon = 1e-06 is too small for 100 coordinates"):
        VectorSum(**{**HEADLINE, "epsilon": 1e-6})


def test_many_coordinates_and_few_users() -> None:
    wide = VectorSum(n_users=2, dim=5_000, l2_bound=1.0, epsilon=2.0, delta=1e-6)
    assert wide.guarantee.epsilon() <= 2.0
    alone = VectorSum(n_users=1, dim=1, l2_bound=1e-50, epsilon=0.01, delta=1e-9)
    assert alone.guarantee.epsilon() <= 0.01
    assert isinstance(alone.analyzer(), Analyzer)
