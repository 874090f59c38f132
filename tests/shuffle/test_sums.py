"""Shuffled sums: the work of the three parties, their guarantees, and attacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.apart import mu_below
from tests.refusals import refuses
from tests.shuffle import cases
from tests.untouched import Untouched

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import Contribution
from dpgrain.errors import DeltaWarning, ParameterError, RefusedError
from dpgrain.noise import SystemSource
from dpgrain.noise.counts import draw_counts
from dpgrain.publishing import Promise
from dpgrain.shuffle import (
    PoissonNoise,
    PoissonSum,
    ScalarSum,
    VectorSum,
)
from dpgrain.shuffle.protocol import RoundQuery
from dpgrain.units import Relation

Array = NDArray[np.float64]


# -- promises --


def test_other_releases_share_the_promise() -> None:
    beside = Gaussian(10.0, Contribution(block="user", layout="shared", coordinates="signed"))
    protocol = VectorSum(**cases.HEADLINE, beside=beside)
    assert 0.99 < (protocol.event + beside).epsilon(1e-6, relation="replace") <= 1.0
    assert protocol.guarantee.epsilon() < 0.95


# -- the simulation equals the sum of all messages --


@pytest.mark.slow
def test_sums_are_unbiased_with_the_stated_error() -> None:
    protocol = VectorSum(n_users=40, dim=3, l2_bound=1.0, epsilon=2.0, delta=1e-4)
    vectors = np.random.default_rng(0).normal(size=(37, 3)) * 0.3
    vectors[0] = np.nan
    found = np.array([protocol.estimate([vectors], 40, SystemSource()) for _ in range(3000)])
    errors = found - np.nan_to_num(vectors).sum(axis=0)
    sd = errors.std()
    assert np.abs(errors.mean(axis=0)).max() < cases.SURE * sd / math.sqrt(3000)
    assert 0.93 < sd / protocol.noise_sd < 1.06


def test_seeds_repeat_and_are_not_private() -> None:
    protocol, X = VectorSum(**cases.HEADLINE), np.ones((1000, 100))
    assert np.array_equal(
        protocol.simulate(X, random_state=1), protocol.simulate(X, random_state=1)
    )
    assert not np.array_equal(protocol.simulate(X), protocol.simulate(X))
    with dg.budget(2.0, 1e-5) as budget:
        protocol.simulate(X, random_state=1)
    assert budget.guarantee is not None
    assert not budget.guarantee.private


@pytest.mark.parametrize("kind", [VectorSum, PoissonSum, ScalarSum])
def test_nothing_is_read_before_it_is_paid_for(kind: Any) -> None:
    promise = {"n_users": 1000, "epsilon": 1.0, "delta": 1e-6}
    shape = {} if kind is ScalarSum else {"dim": 4}
    protocol, X = kind(**promise, **shape), Untouched(900, *shape.values())
    query = RoundQuery(Promise(dg.User(), 1.0, 1e-6, "replace"), protocol, X, 900)
    assert query.plan.guarantee == protocol.guarantee
    with dg.budget(0.5, 1e-6) as budget:
        for wrong in ({"dropped": 1001}, {"dropped": 1}, {"corrupt": [[0.5] * 4]}):
            with pytest.raises(ParameterError, match=r"dropped|honest reports|corrupt"):
                protocol.simulate(X, **wrong)
        with refuses("vectors", "numbers"):
            protocol.simulate(Untouched(900, 5))
        with refuses("X", "1,000"):
            protocol.simulate(Untouched(1001, *X.shape[1:]))
        with pytest.raises(RefusedError):
            protocol.simulate(X)
        assert budget.left == 1.0
        with pytest.raises(AssertionError, match="it was read"):
            protocol.simulate(X, share=0.5)
        assert budget.left == pytest.approx(0.5, abs=0.01)


def test_simulations_are_charged_round_by_round() -> None:
    protocol = VectorSum(**{**cases.HEADLINE, "rounds": 4})
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
    assert abs(np.mean(found) - 2005) < cases.SURE * protocol.noise_sd / math.sqrt(40)
    assert protocol.guarantee.epsilon() <= 1.0
    # A removed user changes it by as much as a replaced one.
    assert protocol.guarantee.epsilon(relation="replace") == protocol.guarantee.epsilon()


def test_a_large_delta_is_warned_of() -> None:
    protocol = VectorSum(n_users=1000, dim=1, l2_bound=1.0, epsilon=1.0, delta=1e-2)
    with pytest.warns(DeltaWarning):
        protocol.simulate(np.ones((1000, 1)))


# -- audits --


TRIALS = 4000
SHAPE: dict[str, Any] = {"n_users": 30, "dim": 1, "l2_bound": 1.0, "epsilon": 8.0, "delta": 1e-5}


def views(protocol: VectorSum | PoissonSum, value: float, trials: int = TRIALS) -> Array:
    """The estimated sums with one user of this value, and others without data."""
    source = SystemSource()
    return np.array(
        [protocol.estimate([np.array([[value]])], 30, source)[0] for _ in range(trials)]
    )


def claimed(protocol: VectorSum | PoissonSum, relation: Relation) -> float:
    return protocol.event.loss(relation=relation).mu


@pytest.mark.slow
@pytest.mark.proof("audit", "Binomial", "Poisson")
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_audit(kind: type[VectorSum | PoissonSum]) -> None:
    audited = kind(**SHAPE)
    one = views(audited, 1.0)
    replaced = mu_below(one, views(audited, -1.0))
    assert 0.68 * claimed(audited, "replace") < replaced <= claimed(audited, "replace")
    removed = mu_below(one, views(audited, math.nan))
    assert 0.55 * claimed(audited, "zero_out") < removed <= claimed(audited, "zero_out")


def test_audit_finds_dishonest_devices() -> None:
    # Promised for half of the devices; a tenth of them add noise.
    protocol = VectorSum(
        n_users=30, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-5, honest_fraction=0.5
    )
    source, code = SystemSource(), protocol.encoding

    def seen(value: float, honest: int) -> Array:
        own = code.codes(np.full((TRIALS, 1), value), source)[:, 0]
        return np.asarray(
            own + draw_counts(protocol.design.noise.law(honest), TRIALS, source) * 1.0
        )

    assert mu_below(seen(1.0, 15), seen(math.nan, 15)) <= claimed(protocol, "zero_out")
    assert mu_below(seen(1.0, 3), seen(math.nan, 3)) > claimed(protocol, "zero_out")
    told = protocol.guarantee_with(0.1).event.loss(relation="zero_out").mu
    assert mu_below(seen(1.0, 3), seen(math.nan, 3)) <= told


@pytest.mark.slow
def test_single_device_counts_are_not_private_without_names() -> None:
    # The analyzer sees the list of all devices' counts for one coordinate, shuffled: one is far off.
    protocol, times = VectorSum(**cases.HEADLINE), 1500
    device, source, others = protocol.randomizer(), SystemSource(), cases.HEADLINE["n_users"] - 1

    def lists(value: float) -> Array:
        noise = draw_counts(protocol.design.noise.law(1), others * times, source)
        vector = np.zeros(100)
        vector[0] = value
        own = np.array([device.counts(vector, source)[0] for _ in range(times)])
        counts = np.column_stack([own, noise.reshape(times, others) + protocol.encoding.null])
        return np.asarray(counts.max(axis=1) + counts.min(axis=1), dtype=np.float64)

    apart = mu_below(lists(1.0), lists(-1.0))
    assert apart > 3 * claimed(protocol, "replace")


def test_messages_of_both_signs_are_not_private() -> None:
    # Skellam noise from +1 and −1 messages with PoissonSum's variance: a user's own messages are
    # +1s, and the analyzer sees their count with half of that noise.
    protocol = PoissonSum(n_users=30, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-5)
    half = PoissonNoise(protocol.design.noise.law(1).mean / 2).law(30)
    grid = protocol.design.grid
    plus = draw_counts(half, TRIALS, SystemSource()).astype(np.float64)
    again = draw_counts(half, TRIALS, SystemSource()).astype(np.float64)
    assert mu_below(plus + grid, again) > claimed(protocol, "replace")
    # The difference, as a secure sum would show it, protects the user as stated.
    minus = draw_counts(half, TRIALS, SystemSource())
    more = draw_counts(half, TRIALS, SystemSource())
    assert mu_below(plus + grid - minus, again - more) <= claimed(protocol, "replace")


# -- parties --


@pytest.mark.parametrize(("share", "devices"), [(0.07, 7), (0.14, 14), (0.28, 28), (0.55, 55)])
def test_shares_are_used_as_written(share: float, devices: int) -> None:
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
def test_malformed_cells_are_empty(odd: Any) -> None:
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


def test_rows_without_data_may_be_dropped_individually() -> None:
    protocol = VectorSum(n_users=50, dim=2, epsilon=4.0, delta=1e-4)
    missing: list[Any] = [[0.1, 0.2], None, [0.5], [1.0, 2.0, 3.0], "abc", [0.3, 0.4]]
    nan = [math.nan, math.nan]
    wanted = [[0.1, 0.2], nan, nan, nan, nan, [0.3, 0.4]]
    found = protocol.simulate(missing, random_state=1)
    assert np.array_equal(found, protocol.simulate(wanted, random_state=1))


def test_too_wide_or_long_input_is_rejected() -> None:
    for change, named in (({"dim": 1 << 21}, r"2\^20"), ({"n_users": 10**17}, "n_users")):
        with pytest.raises(ParameterError, match=named):
            VectorSum(**{**cases.HEADLINE, **change})


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
        VectorSum(**{**cases.HEADLINE, **change})


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
            "enrolled must be between 10",
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
