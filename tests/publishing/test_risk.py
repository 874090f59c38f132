"""The risk of a unit in a release, as stated by a guarantee."""

from __future__ import annotations

import math
import time

import pytest
from scipy.stats import norm
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Parallel,
    PureDP,
    SampledGaussian,
    Selection,
)
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.publishing.facts import Fact
from dpgrain.scope.regions import Region, Side, days
from dpgrain.units import Level, Relation
from dpgrain.words.odds import risk_lines


def of(event: Event, level: Level = "user", relation: Relation = "zero_out") -> dg.Guarantee:
    return dg.Guarantee(level, "", relation, 1e-6, event, (Fact("bins"),))


ELEMENTS = of(Gaussian(4.0, Contribution(cells=12)), "element")


@pytest.mark.parametrize(
    ("asked", "moved"),
    [
        ({}, 1.0),
        ({"units": 4}, 2.0),
        ({"units": 4, "relation": "replace"}, math.sqrt(8)),
        ({"unit": dg.User()}, math.sqrt(12)),
        ({"unit": dg.User(3)}, math.sqrt(3)),
    ],
)
def test_the_risk_of_gaussian_noise_is_exact(asked: dict[str, object], moved: float) -> None:
    mu, risk = moved / 4, ELEMENTS.risk(**asked)  # type: ignore[arg-type]
    assert risk.exact == ("relation" not in asked)
    assert risk.mu == pytest.approx(mu)
    assert risk.guess == pytest.approx(norm.cdf(mu / 2), abs=1e-9)
    assert risk.detection == pytest.approx(norm.sf(norm.isf(0.05) - mu), abs=1e-8)
    detected = norm.sf(norm.isf(0.05) - mu)
    assert risk.posterior == pytest.approx(detected / (detected + 0.05), abs=1e-8)


def test_posterior_agrees_with_the_test() -> None:
    risk = ELEMENTS.risk(false_alarms=0.2, prior=0.1)
    power = norm.sf(norm.isf(0.2) - 0.25)
    assert risk.posterior == pytest.approx(0.1 * power / (0.1 * power + 0.9 * 0.2), abs=1e-8)
    # At this prior the best guess is that the records are absent.
    assert risk.guess == pytest.approx(0.9, abs=1e-3)
    assert risk.posterior < ELEMENTS.risk(false_alarms=0.01, prior=0.1).posterior


def test_the_delta_of_a_release_plays_no_part() -> None:
    one, other = of(Gaussian(2.0, Contribution("user"))), of(Gaussian(2.0, Contribution("user")))
    assert one.risk() == dg.Guarantee.from_dict({**other.to_dict(), "delta": 0.01}).risk()


@pytest.mark.parametrize(
    ("level", "unit"), [("element", dg.User()), ("record", dg.User()), ("record", dg.Element())]
)
def test_nothing_limits_the_risk_if_nothing_bounds_the_unit(level: Level, unit: dg.User) -> None:
    risk = of(Gaussian(4.0, Contribution(block=level)), level).risk(unit=unit)
    assert (risk.guess, risk.detection, risk.posterior) == (1.0, 1.0, 1.0)
    assert risk.mu == math.inf
    assert not risk.exact


def test_exact_values_are_marked() -> None:
    assert (
        of(Gaussian(4.0, Contribution("user")) + Gaussian(2.0, Contribution("user"))).risk().exact
    )
    for event in (
        PureDP(1.0),
        Laplace(2.0, Contribution("user", norm="l1")),
        Gaussian(4.0, Contribution("user")) + Laplace(2.0, Contribution("user", norm="l1")),
        Gaussian(4.0, Contribution("user", coordinates="stated")),
        Gaussian(4.0, Contribution("user", norm="l1")),
    ):
        assert not of(event).risk().exact
    # Whether tables attain the distance of two blocks depends on the coordinates.
    assert not of(Gaussian(4.0, Contribution("user")), relation="replace").risk().exact
    kept = Gaussian(4.0, Contribution(max_elements=3))
    assert not of(kept, "element").risk().exact
    # Records inside an element move a clipped sum in more than one way.
    assert not ELEMENTS.risk(unit=dg.Record()).exact


def test_risk_of_two_releases_covers_both() -> None:
    both = ELEMENTS + ELEMENTS
    assert both.risk().mu == pytest.approx(math.sqrt(2) / 4)
    assert both.risk().guess > ELEMENTS.risk().guess


def test_risk_of_two_regions_is_the_worst() -> None:
    def of_a_day(day: str) -> dg.Guarantee:
        scope = Region((Side("day", days(day, day)),))
        return dg.Guarantee("record", "", "zero_out", 1e-6, event, scope=scope)

    event = Gaussian(4.0, Contribution("record"))
    monday, tuesday = of_a_day("2026-11-23"), of_a_day("2026-11-24")
    apart, again = (monday + tuesday).risk(), (monday + monday).risk()
    assert apart.guess == pytest.approx(monday.risk().guess, abs=1e-9)
    assert again.guess > apart.guess


def test_a_delta_mass_has_no_mu() -> None:
    event = Selection(8.0, 45.0, 1)
    risk = of(event, event.level).risk()
    assert risk.mu == math.inf
    assert risk.guess < 0.6


def test_printed_values_are_rounded_up() -> None:
    told = str(ELEMENTS.risk(unit=dg.User(), false_alarms=0.001, prior=0.01))
    assert "Risk of 1 user (zero_out), exact:" in told
    assert "0.1% false alarms" in told
    assert "from a prior of 1%" in told
    assert str(ELEMENTS.risk(unit=dg.User(3))).startswith("Risk of 1 user with at most 3 elements")
    assert "upper limits" in str(of(PureDP(1.0)).risk())
    assert "μ = ∞" in str(of(Gaussian(4.0), "element").risk(unit=dg.User()))


@pytest.mark.parametrize("alpha", [1e-12, 6e-9, 1.2345678e-3, 1 / 3])
def test_printed_false_alarms_are_exact(alpha: float) -> None:
    (line,) = [
        line for line in str(ELEMENTS.risk(false_alarms=alpha)).splitlines() if "det" in line
    ]
    detected, alarms = (float(word[:-1]) / 100 for word in line.split() if word.endswith("%"))
    assert alarms == pytest.approx(alpha, rel=1e-15)
    assert detected >= norm.sf(norm.isf(alpha) - 0.25)


def test_few_false_alarms_have_the_detection_of_gaussian_noise() -> None:
    for alpha in (1e-12, 1e-100):
        expected = norm.cdf(norm.ppf(alpha) + 0.25)
        found = ELEMENTS.risk(false_alarms=alpha).detection
        assert expected <= found <= expected * (1 + 1e-6)


def test_many_sampled_rounds_have_a_limit() -> None:
    event = SampledGaussian(1.0, 0.1, 1000)
    for line in risk_lines(of(event, event.level))[:1]:
        assert "nothing limits the risk" not in line
    risk = of(event, event.level).risk(false_alarms=1e-9)
    assert risk.guess < 1
    assert risk.detection < 0.1


def test_risk_is_at_most_the_mu_bound() -> None:
    either = Parallel((Gaussian(4.0, Contribution("user")), PureDP(0.8)))
    for alpha in (0.001, 0.05, 0.3):
        risk = of(either).risk(units=3, false_alarms=alpha)
        assert risk.detection <= norm.sf(norm.isf(alpha) - risk.mu) * (1 + 1e-6)
        assert risk.guess <= norm.cdf(risk.mu / 2) + 1e-9


def test_a_risk_takes_less_than_a_second() -> None:
    start = time.perf_counter()
    for units in (1, 2, 5, 10, 12):
        ELEMENTS.risk(units=units)
    assert time.perf_counter() - start < 1


def test_wrong_arguments_are_rejected() -> None:
    for value in (0.0, 1.0, -0.1, math.nan):
        with refuses("false_alarms"):
            ELEMENTS.risk(false_alarms=value)
        with refuses("prior"):
            ELEMENTS.risk(prior=value)
    with refuses("units"):
        ELEMENTS.risk(units=0)


def test_calibrated_risk_of_a_promise_follows_its_mu() -> None:
    """Gaussian noise for ε = 1 and δ = 10⁻⁶ has a risk far below the bound from (ε, δ)."""
    mu = gaussian_mu(1.0, 1e-6)
    found = of(Gaussian(1 / mu, Contribution("user"))).risk()
    assert found.guess == pytest.approx(norm.cdf(mu / 2), abs=1e-6)
    assert found.guess < 0.6 < math.e / (1 + math.e)
