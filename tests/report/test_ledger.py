"""The report of a ledger shows the guarantee, the remaining budget, and past releases by time."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from tests.ledger import cases
from tests.report import cases as cases_of_pages
from tests.report.test_shuffle import _Page

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.ledger import LastingPromise
from dpgrain.scope.regions import Region, Side, Span


def page_of(ledger: dg.Ledger, folder: Path) -> str:
    page = ledger.report(folder / "page.html").read_text(encoding="utf-8")
    parser = _Page()
    parser.feed(page)
    assert parser.open == []
    assert all(reference.startswith("#") for reference in parser.references)
    cases_of_pages.check_safe(page)
    return html.unescape(page)


@pytest.fixture
def ledger(tmp_path: Path) -> dg.Ledger:
    whole = LastingPromise.of(dg.Element(cases.DAYS), 1.0, 1e-6).caps.mu
    wide = LastingPromise.of(dg.Element(cases.DAYS), 9.0, 1e-6)
    made = cases.made(tmp_path / "visits.ledger", cases.OF_DAYS, wide)
    made.charge(cases.of_days(1 / whole, cases.on("2026-01-01")))
    made.charge(cases.of_days(2**0.5 / whole, cases.on("2026-01-02")), mark="<b>daily</b>")
    return made


def test_an_empty_ledger_has_a_page(tmp_path: Path) -> None:
    page = page_of(cases.made(tmp_path / "visits.ledger"), tmp_path)
    assert "There are no releases yet." in page

    assert "Line 1: 100% of the budget remaining" in page
    assert str(cases.USERS)[1:] in page


def test_releases_of_no_window_are_by_no_column(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "visits.ledger")
    made.charge(cases.of_users())
    page = page_of(made, tmp_path)
    assert "No release had a window, so each read all records." in page
    assert "''" not in page


@pytest.mark.slow
def test_each_promise_is_shown_with_its_remaining_budget(ledger: dg.Ledger, tmp_path: Path) -> None:
    page = page_of(ledger, tmp_path)
    assert "Line 1: 0% of the budget remaining in the fullest window" in page
    left = re.search(r"Line 2: ([\d.]+)% of the budget remaining in the fullest window", page)
    assert left is not None
    assert float(left[1]) == pytest.approx(100 * ledger.left(2), abs=0.1)
    assert page.count("Used so far: 100%") == 1
    for line in (1, 2):
        joint = ledger.remaining_text(line)
        assert joint.startswith("ε = ")
        assert (
            f"All releases so far together, about the records of the fullest window: {joint}"
            in page
        )
    assert "Shares of a budget are not shares of ε" in page


@pytest.mark.slow
def test_use_beyond_the_stated_windows_is_reported(ledger: dg.Ledger, tmp_path: Path) -> None:
    sentence = "Used outside of the figure: at most 0% for day to 2025-12-31"
    assert page_of(ledger, tmp_path).count(sentence) == 2
    # A later release of all days after one is used there, and not before.
    on = cases.on("2026-01-03")
    (side,) = on.sides
    later = Span("date", side.values.low)  # type: ignore[union-attr]
    ledger.charge(cases.of_days(100.0, Region((Side("day", later),))))
    page = page_of(ledger, tmp_path)
    more = re.escape(sentence) + r" and at most 0\.19\d*% for day from 2026-01-03\."
    assert re.search(more, page)


@pytest.mark.parametrize("window", [dg.AnyDays(3, "day"), dg.AnyHours(72, "day")], ids=str)
def test_windows_outside_of_the_figure_do_not_reach_into_it(
    window: dg.AnyDays | dg.AnyHours, tmp_path: Path
) -> None:
    made = cases.made(tmp_path / "l", LastingPromise.of(dg.User(), 1.0, 1e-6, window=window))
    whole = 1 / made.promises[1].caps.mu
    made.charge(cases.of_users(4 * whole, scope=cases.on("2026-01-05", "2026-01-06")))
    sentence = "Used by windows entirely outside of the figure: at most 0% for"
    page = page_of(made, tmp_path)
    outside = f"{sentence} day to 2026-01-04 and at most 0% for day from 2026-01-07."
    assert outside in page
    assert "so a window can have a larger ε than a person for all times" in page
    # The next day is only in windows that begin before or in the figure, or after its end.
    made.charge(cases.of_users(40 * whole, scope=cases.on("2026-01-07", "2026-01-07")))
    made.charge(cases.of_users(20 * whole, scope=Region((Side("day", Span("date", None, None)),))))
    assert outside not in page_of(made, tmp_path)


def test_composed_releases_list_epsilon_of_several_units(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    made.charge(cases.of_users())
    one = cases.of_users()
    page = page_of(made, tmp_path)
    five = rounded_up(one.epsilon(1e-6, units=5))
    assert (
        f"Number of users removed or replaced together: ε = {rounded_up(one.epsilon(1e-6))} for 1"
        in page
    )
    assert f"ε = {five} for 5," in page


@pytest.mark.slow
def test_each_release_is_shown_with_sentence_and_window(ledger: dg.Ledger, tmp_path: Path) -> None:
    page = page_of(ledger, tmp_path)
    for entry in ledger.entries[3:]:
        assert str(entry.guarantees[0]) in page
        assert str(entry.guarantees[0].scope) in page
        # The release carries it, so that an officer finds its line.
        assert entry.receipt.hash in page.split("Guarantee of each release")[1]
    assert "<b>daily</b>" in page
    assert "<b>daily" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_total_is_shown_at_the_promised_delta(ledger: dg.Ledger, tmp_path: Path) -> None:
    one, two = (entry.guarantees[0] for entry in ledger.entries[3:])
    page = page_of(ledger, tmp_path)
    told = re.search(r"2 releases together: .*? with ε = ([\d.]+) and δ = 10⁻⁶", page)
    assert told is not None
    assert float(told[1]) == pytest.approx((one + two).epsilon(1e-6), rel=1e-5)
    # The two days are disjoint, so that a day costs what the dearer release does.
    assert float(told[1]) == pytest.approx(one.epsilon(1e-6), rel=1e-5)


@pytest.mark.slow
def test_seeded_noise_is_reported_without_guarantee(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "visits.ledger")
    made.charge(cases.of_users(private=False))
    assert "NOT PRIVATE: seeded noise" in page_of(made, tmp_path)


@pytest.mark.slow
def test_renewed_promise_shows_both_budgets(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "visits.ledger")
    made.charge(cases.of_users())
    made.renew(1, made.promises[1].renewed(1.0, 1e-6))
    page = page_of(made, tmp_path)
    assert re.search(
        r"Line \d renews line 1; together they promise ε = 1\.4\d* at δ = 2·10⁻⁶", page
    )


def test_published_parts_of_a_plan_are_counted(tmp_path: Path) -> None:
    plan = [cases.of_users(9.0), cases.of_users(12.0)]
    made = cases.made(tmp_path / "visits.ledger", cases.USERS.renewed(1.0, 1e-6, plan=plan))
    made.charge(cases.of_users(9.0))
    page = page_of(made, tmp_path)
    assert "1 of 2 planned releases published, at no further cost. Used beyond the plan: 0%" in page
    made.charge(cases.of_users(12.0))
    assert "2 of 2 planned releases published" in page_of(made, tmp_path)


def test_a_renewed_plan_counts_as_used_up(tmp_path: Path) -> None:
    planned = cases.USERS.renewed(1.0, 1e-6, plan=[cases.of_users(5.0)])
    made = cases.made(tmp_path / "visits.ledger", planned)
    made.renew(1, cases.USERS)
    page = page_of(made, tmp_path)
    assert "1 planned" not in page
    assert re.search(
        r"Line \d renews line 1; together they promise ε = 1\.4\d* at δ = 2·10⁻⁶", page
    )
