"""A rejection reports the release's cost to the guarantee, and the required noise."""

from __future__ import annotations

import math
import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.ledger import cases

import dpgrain as dg
from dpgrain._formatting import powers
from dpgrain.accounting import ApproximateDP, gaussian_epsilon
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.ledger import LastingPromise
from dpgrain.words.ledger_text import compared_shares


def refused(ledger: dg.Ledger, guarantee: dg.Guarantee) -> str:
    with pytest.raises(dg.ParameterError) as caught:
        ledger.charge(guarantee)
    return str(caught.value)


@pytest.mark.parametrize("times", [1.5, 4.0, 9.0])
def test_it_reports_the_price_and_the_fitting_noise(times: float, tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    mu = cases.USERS.caps.mu
    made.charge(cases.of_users(2 / mu))
    said = refused(made, cases.of_users(1 / mu / times))
    wanted = re.search(
        r"needs ([\d,.]+)% of the promise, and 7[45][\d.]*% remains for the affected units", said
    )
    assert wanted is not None, said
    assert float(wanted[1].replace(",", "")) == pytest.approx(100 * times**2, rel=0.01)
    louder = re.search(r"about ([\d.]+) times the noise", said)
    assert louder is not None
    assert float(louder[1]) == pytest.approx(times / 0.75**0.5, rel=0.1)
    made.charge(cases.of_users(float(louder[1]) / mu / times))


@pytest.mark.parametrize("times", [3, 7, 12, 20, 31])
def test_reported_epsilon_fits(times: int, tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    caps = cases.USERS.caps
    made.charge(cases.of_users(math.sqrt(times) / caps.mu))
    said = refused(made, cases.of_users(0.5 / caps.mu))
    named = re.search(r"A Gaussian release with ε ≤ ([\d.]+) at δ = (\S+) per user would fit", said)
    assert named is not None
    assert named[2] == powers(caps.leak)
    made.charge(cases.of_users(1 / gaussian_mu(float(named[1]), caps.leak)))
    # No offer exceeds the promise, even if a smaller δ would allow more.
    is_capped = float(named[1]) == cases.USERS.epsilon
    assert made.left(1) < (0.25 if is_capped else 0.01)


def test_exhausted_selection_delta_is_named_with_its_remedy(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    leak = cases.USERS.caps.leak

    def naming(share: float) -> dg.Guarantee:
        return dg.Guarantee("user", "", "zero_out", 1e-9, ApproximateDP(0.0, share * leak))

    made.charge(naming(0.75))
    assert made.remaining_text(1).endswith(
        f" Also remaining: δ = {powers(leak / 4, up=False)} of {powers(leak)} for names that are not "
        "listed in advance (leak)."
    )
    said = refused(made, naming(0.5))
    assert f"a part of the release's δ, {powers(leak / 2)}"[:28] in said
    assert f"of δ = {powers(leak)} is left in the ledger for such parts" in said
    assert said.endswith("or create a ledger with a larger leak=.")
    assert "would fit" not in said
    # If noise is also too small, a larger leak would not help.
    both = dg.Guarantee(
        "user", "", "zero_out", 1e-9, ApproximateDP(0.0, leak / 2) + cases.of_users(1.0).event
    )
    assert "larger leak" not in refused(made, both)


@pytest.mark.parametrize("times", [1.2, 1.5, 2.0, 3.0, 5.0, 20.0])
def test_remaining_budget_is_reported_in_epsilon(times: float, tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    mu = cases.USERS.caps.mu / math.sqrt(times)
    made.charge(cases.of_users(1 / mu))
    said = re.fullmatch(
        r"ε = ([\d.]+) of 1 spent at δ = 10⁻⁶\. A Gaussian release with ε ≤ ([\d.]+) at δ = \S+ "
        r"per user would fit this promise\.",
        made.remaining_text(1),
    )
    assert said is not None, made.remaining_text(1)
    assert float(said[1]) == pytest.approx(gaussian_epsilon(1e-6, mu), rel=0.02)
    made.charge(cases.of_users(1 / gaussian_mu(float(said[2]), cases.USERS.caps.leak)))


def test_infinite_price_is_reported_as_such(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    assert "more than 100 times the promise" in refused(made, cases.of_users(0.01))


def test_nothing_is_named_if_nothing_remains(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    made.charge(cases.of_users(1 / cases.USERS.caps.mu))
    said = refused(made, cases.of_users(100.0))
    assert "The promise is exhausted" in said
    assert "times the noise" not in said


def test_line_reading_a_column_as_another_type_is_named(tmp_path: Path) -> None:
    day = pa.array([date(2026, 3, 1 + i % 5) for i in range(100)])
    days = pa.table({"who": range(100), "day": day, "page": ["a", "b"] * 50})
    texts = days.set_column(1, "day", day.cast(pa.string()))
    promise = dg.LastingPromise.of(dg.Element("day"), 1.0, 1e-6)

    def count(rows: pa.Table, **where: str) -> None:
        table = dg.read(rows, user="who").where(**where)
        dg.count(table, unit=dg.Element("day"), clip=2.0, epsilon=0.9, delta=1e-8)

    with cases.made(tmp_path / "l", promise):
        count(days, day="2026-03-01")
        count(days, day="2026-03-02")
        with (
            pytest.warns(UserWarning, match="uses '2026-03-03' as text, which 'day' must equal"),
            pytest.raises(dg.RefusedError) as told,
        ):
            count(texts, day="2026-03-03")
        text = str(told.value).partition(" With epsilon")[0]
        assert text.endswith(
            " Line 2 reads 'day' as DATE, and this release as VARCHAR, so the two regions are charged "
            "as if they overlapped: declare one type for all releases."
        )
        # Releases that read the column in the same way, or another column, get no such note.
        with pytest.raises(dg.RefusedError, match=r"would fit[^:]*\.$"):
            count(days, day="2026-03-01")
        with pytest.raises(dg.RefusedError, match=r"would fit[^:]*\.$"):
            count(days, page="a")


def test_dates_in_another_format_are_named_with_the_remedy(tmp_path: Path) -> None:
    """The text 01/02/2025 is 1 February in one format, and 2 January in the other."""
    texts = pa.table({"who": range(100), "day": ["01/02/2025"] * 100})
    promise = dg.LastingPromise.of(dg.Element("day"), 1.0, 1e-6)

    def count(dates: str, day: str) -> None:
        table = dg.read(texts, user="who", types={"day": "DATE"}, dates=dates).where(day=day)
        dg.count(table, unit=dg.Element("day"), clip=2.0, epsilon=0.9, delta=1e-8)

    with cases.made(tmp_path / "l", promise):
        count("31/12/2025", "2025-02-01")
        # Every row is in both regions, so the second release must not have another account.
        with pytest.raises(dg.RefusedError) as told:
            count("12/31/2025", "2025-01-02")
    text = str(told.value).partition(" With epsilon")[0]
    assert text.endswith(
        " Line 2 reads 'day' as DATE written like 31/12/2025, and this release as DATE written like "
        "12/31/2025, so the two regions are charged as if they overlapped, because one text can be "
        "another date, or none, in each format: store dates as 2025-12-31 in all tables."
    )


@pytest.mark.parametrize("delta", [0.0, 1e-8])
def test_gaussian_noise_is_advised_only_without_delta(delta: float, tmp_path: Path) -> None:
    table = dg.read(pa.table({"who": range(100)}), user="who")
    with cases.made(tmp_path / "l"), pytest.raises(dg.RefusedError) as told:
        dg.count(table, unit=dg.User(), clip=2.0, epsilon=3.0, delta=delta)
    assert ("Pass a δ, because Gaussian noise costs less." in str(told.value)) == (delta == 0)


def test_text_days_are_charged_to_all_time_with_note(tmp_path: Path) -> None:
    rows = pa.table({"who": range(100), "day": [f"2026-03-0{1 + i % 5} 12" for i in range(100)]})
    promise = dg.LastingPromise.of(dg.User(), 1.0, 1e-6, window=dg.AnyDays(2, "day"))

    def count(day: str) -> None:
        table = dg.read(rows, user="who").where(day=day)
        dg.count(table, unit=dg.User(), clip=2.0, epsilon=0.9, delta=1e-8)

    with cases.made(tmp_path / "l", promise):
        count("2026-03-01 12")
        with pytest.raises(dg.RefusedError) as told:
            count("2026-03-05 12")
    text = str(told.value).partition(" With epsilon")[0]
    assert text.endswith(
        " 'day' is read as VARCHAR, not as dates or timestamps, so every window is charged: declare "
        "its type."
    )


def test_seeded_lines_are_named(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "l")
    whole = cases.of_users(1 / cases.USERS.caps.mu)
    made.charge(cases.of_users(), mark="first")
    for lines in ("line 3", *(f"lines 3, {last}" for last in ("4", "4, 5", "4, 5, 6"))):
        made.charge(cases.of_users(private=False), mark="a seed")
        assert f" NOT PRIVATE: seeded noise in {lines}, so these releases" in refused(made, whole)
    made.charge(cases.of_users(private=False))
    made.charge(cases.of_users(private=False))
    assert "in lines 3, 4, 5, 6, 7 and 1 more, so these" in refused(made, whole)
    for mark, seeded in (("first", False), ("a seed", True)):
        with pytest.raises(dg.RefusedError) as caught:
            made.charge(cases.of_users(), mark=mark, again=False)
        assert ("NOT PRIVATE: seeded noise in line 6" in str(caught.value)) == seeded


def test_release_of_names_at_a_ledgers_delta_fits(tmp_path: Path) -> None:
    table = dg.read(pa.table({"who": range(300), "page": ["a", "b", "c"] * 100}), user="who")
    promise = LastingPromise.of(dg.User(), 2.0, 1e-6)
    with dg.Ledger.create(tmp_path / "l", name="l", promises=[promise], user="who") as ledger:
        dg.count(table, by="page", unit=dg.User(), epsilon=1.0, delta=1e-6)
        assert ledger.left(1) < 0.02
        assert "would fit" in ledger.remaining_text(1)
        listed: dict[str, Any] = {"by": "page", "domain": ["a", "b", "c"], "delta": 5e-7}
        dg.count(table, **listed, unit=dg.User(), epsilon=1.0)


@pytest.mark.parametrize("left", [0.9688, 0.1, 1.0, 0.123456789, 0.5])
def test_printed_shares_compare_like_the_shares(left: float) -> None:
    for needed in (left * factor for factor in (0.1, 0.99, 0.9999, 1 - 1e-7, 1, 1 + 1e-5, 1.01)):
        remaining, taken = compared_shares(left, needed)
        at_least, at_most = float(remaining[:-1]), float(taken[:-1])
        assert (needed <= left) == (at_most <= at_least), (remaining, taken)
        assert at_least <= 100 * left * (1 + 1e-9)
        assert at_most >= 100 * needed * (1 - 1e-6)
