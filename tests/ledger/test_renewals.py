"""The total of a renewed promise counts what it renews, in every form."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Command
from tests.ledger import cases

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.accounting import gaussian_epsilon
from dpgrain.ledger import AnyDays, LastingPromise
from dpgrain.ledger.deployment_registry import registry_yaml
from dpgrain.publishing import Price
from dpgrain.publishing.caps import Caps
from dpgrain.words.odds import Odds

MU = 0.2
CONDITION = "if no renewal's budget was chosen from results"


@pytest.fixture
def renewed(tmp_path: Path) -> dg.Ledger:
    """A ledger with one release, whose promise was then renewed by a smaller one."""
    made = cases.made(tmp_path / "visits.ledger")
    made.charge(cases.of_users(1 / MU))
    made.renew(1, made.promises[1].renewed(0.3, 1e-6))
    return made


def test_renewed_promise_states_the_total_in_python(renewed: dg.Ledger) -> None:
    total = renewed.total(3)
    assert (total.renewed, total.delta) == ([1], 2e-6)
    assert total.epsilon > cases.USERS.epsilon
    assert total.spent_epsilon == pytest.approx(gaussian_epsilon(2e-6, MU), rel=1e-6)
    text = renewed.remaining_text(3)
    spent, of = rounded_up(total.spent_epsilon, 3), rounded_up(total.epsilon)
    assert text.startswith(
        f"ε = {spent} of {of} spent at δ = 2·10⁻⁶, together with line 1, which it renews."
    )
    promised = f"together they promise ε = {of} at δ = 2·10⁻⁶, {CONDITION}."
    assert f"It renews line 1; {promised}" in str(renewed)
    assert CONDITION in registry_yaml(renewed)


def test_commands_and_report_state_the_total(renewed: dg.Ledger, command: Command) -> None:
    place, total = Path(renewed.place), renewed.total(3)
    of = rounded_up(total.epsilon)
    for words in (("show",), ("report", "--output", place.with_suffix(".html"))):
        assert command("ledger", words[0], place, *words[1:]).returncode == 0
    assert f"of {of} spent at δ = 2·10⁻⁶" in " ".join(
        command("ledger", "show", place).stdout.split()
    )
    assert CONDITION in " ".join(command("ledger", "show", place).stdout.split())
    page = html.unescape(place.with_suffix(".html").read_text(encoding="utf-8"))
    assert CONDITION in page
    odds = Odds(total.epsilon, total.delta, renewed.risk(3))
    assert f"of {of} spent at δ = 2·10⁻⁶" in page
    assert f"at most\n{odds.guess} of the time: no outcome is more than {odds.factor} times" in page
    (promise,) = json.loads(command("ledger", "export", place).stdout)["promises"]
    assert promise["total"] == total.to_dict()
    assert promise["total"]["renews"] == [1]
    told = " ".join(command("ledger", "renew", "--help").stdout.split())
    assert "Choose the new budget without using results" in told


@pytest.mark.parametrize("pure", [None, 0.5])
def test_risk_of_a_promise_follows_from_its_caps(pure: float | None, tmp_path: Path) -> None:
    first = LastingPromise.of(dg.User(), 3.0, 1e-6, pure=pure)
    made = cases.made(tmp_path / "l", first)
    made.renew(1, first.renewed(0.3, 1e-6))
    both = Caps(first.caps + made.promises[2].caps)
    risk, total = made.risk(2), made.total(2)
    # Half of one plus the largest total variation distance.
    exact = 0.5 + both.delta(0.0) / 2
    assert exact <= risk.guess <= 1 - (1 - total.delta) / (1 + math.exp(total.epsilon))
    if pure is None:
        assert risk.guess == pytest.approx(exact, abs=1e-9)
    assert made.risk(2, so_far=True).guess == pytest.approx(0.5, abs=1e-9)


def test_risk_names_the_protected_window(tmp_path: Path) -> None:
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(7, "day<"))
    made = cases.made(tmp_path / "l", promise)
    who = "1 user, in any 7 days in a row of 'day<'"
    for so_far in (False, True):
        assert str(made.risk(1, so_far=so_far)).startswith(f"Risk of {who} (zero_out)")
    made.report(tmp_path / "l.html")
    page = (tmp_path / "l.html").read_text(encoding="utf-8")
    assert "row of &#39;day&lt;&#39;) are present" in page
    assert f"whether these records ({who}) are present" in html.unescape(page)


def test_report_limits_a_risk_to_the_promise_and_what_it_renews(
    renewed: dg.Ledger, tmp_path: Path
) -> None:
    before = cases.made(tmp_path / "l")
    pages = []
    for made in (before, renewed):
        made.report(tmp_path / "l.html")
        pages.append((tmp_path / "l.html").read_text(encoding="utf-8"))
    charged = "who sees all releases charged to this promise"
    assert f"{charged}, knows" in pages[0]
    assert f"{charged} and to those that it renews, knows" in pages[1]


def test_risk_so_far_counts_renewed_releases(renewed: dg.Ledger) -> None:
    expected = cases.of_users(1 / MU).risk().guess
    assert renewed.risk(3, so_far=True).guess == pytest.approx(expected, rel=1e-6)
    assert renewed.risk(3, so_far=True).guess >= expected
    assert Price() == renewed.total(3).spent[3].spent(cases.USERS.caps)


def test_total_of_a_renewal_chosen_from_results_adds_delta() -> None:
    """A Gaussian fills the first promise; then the holder takes the renewal with more left."""
    first = LastingPromise.of(dg.User(), 1.0, 1e-6, leak=0.0)
    renewals = [
        LastingPromise.of(dg.User(), epsilon, 1e-6, pure=pure, leak=0.0)
        for epsilon, pure in ((1.0, None), (0.46676, 0.466759))
    ]
    totals = [first.together(renewal) for renewal in renewals]
    epsilon = max(total.epsilon(2e-6) for total in totals)
    mu, step = first.caps.mu, 2e-3
    shown = np.arange(-9.0, 9.0, step)
    density = np.exp(-((shown - mu) ** 2) / 2) / math.sqrt(2 * math.pi) * step
    losses = mu * shown - mu**2 / 2
    left = np.array([[each.whole.delta(epsilon - one) for one in losses] for each in renewals])
    assert density @ left[0] <= 2.0001e-6
    assert density @ left[1] <= 2.0001e-6
    assert 3.6e-6 < density @ left.max(axis=0) <= sum(total.delta(epsilon) for total in totals)
