"""The report, plot and plan of shuffled sums: numbers match any protocol."""

from __future__ import annotations

import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.report import cases, sums

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.planning.shuffle_plans import (
    central_sd,
    deployment,
    honest_curve,
)
from dpgrain.shuffle import PoissonSum, VectorSum

VOID = {"br", "col", "hr", "img", "input", "link", "meta"}


class _Page(HTMLParser):
    """Whether tags nest, and the resources that a page could load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.references.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        # A list item or a paragraph may be left open.
        while self.open[-1] != tag and self.open[-1] in ("p", "li"):
            self.open.pop()
        assert self.open.pop() == tag


@pytest.mark.slow
@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_it_is_well_formed_and_loads_nothing(name: str, written: dict[str, sums.Written]) -> None:
    parser = _Page()
    parser.feed(written[name].page)
    assert parser.open == []
    assert all(reference.startswith("#") for reference in parser.references)
    cases.check_safe(written[name].page)
    assert len(written[name].page) < 1_000_000


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_the_promise_is_in_it(name: str, written: dict[str, sums.Written]) -> None:
    asked = written[name]
    assert str(asked.protocol.guarantee) in html.unescape(asked.page)
    text = re.search(r"for an audit</summary>\s*<pre>(.*?)</pre>", asked.page, re.DOTALL)
    assert text is not None
    read = dg.Guarantee.from_dict(json.loads(html.unescape(text[1])))
    assert read == asked.protocol.guarantee


@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_every_honest_share_agrees_with_the_protocol(
    name: str, written: dict[str, sums.Written]
) -> None:
    protocol, n = written[name].protocol, written[name].protocol.n_users
    rows = written[name].rows("honest")
    devices = [int(row[0].replace(",", "")) for row in rows]
    assert devices == sorted(set(devices), reverse=True)
    assert devices[0] == n
    for row, count in zip(rows, devices, strict=True):
        # ⌈γn⌉ of a share just below count/n.
        promise = protocol.guarantee_with((count - 0.5) / n)
        assert row[2] == sums.shown(promise.epsilon()), row
        share = float(row[1].removesuffix("%")) / 100
        # Written with four digits.
        assert abs(share * n - count) < 1 + 1e-4 * n
    own = re.findall(r'class="own">([\d,]+)<small>guaranteed', written[name].page)
    assert own == [f"{protocol.honest:,}"]


@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_several_users_agree_with_the_guarantee(
    name: str, written: dict[str, sums.Written]
) -> None:
    promise = written[name].protocol.guarantee
    rows = written[name].rows("groups")
    assert len(rows) == 4
    for row, users in zip(rows, (1, 2, 5, 10), strict=True):
        assert row[0] == f"the data of {users} user{'s' if users > 1 else ''}"
        assert row[1:] == [
            sums.shown(promise.epsilon(units=users, relation=relation))
            for relation in ("zero_out", "replace")
        ]


@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_noise_and_bytes(name: str, written: dict[str, sums.Written]) -> None:
    protocol = written[name].protocol
    table = written[name].rows("noise")
    values = [[float(cell) for cell in row[1:]] for row in table]
    sd, central = protocol.noise_sd, central_sd(protocol)
    wanted = [[sd, central], [sd / protocol.n_users, central / protocol.n_users]]
    np.testing.assert_allclose(values, wanted, rtol=1e-3)
    assert f"is {rounded_up(sd / central)} times that of the Gaussian" in written[name].text
    size = protocol.randomizer().report_bytes
    assert f"{size:,} bytes" in written[name].text
    assert f"{size * protocol.n_users:,} bytes" in written[name].text


@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_trusted_party_is_shown(name: str, written: dict[str, sums.Written]) -> None:
    who = [row[0] for row in written[name].rows("trust")]
    assert who == ["Devices", "Shuffler (trusted)", "Analyzer"]
    beside = written[name].protocol.beside is not None
    assert ("shares the requested ε = 1 with another publication" in written[name].text) == beside


def test_report_states_a_missing_guarantee(written: dict[str, sums.Written]) -> None:
    protocol = sums.PROTOCOLS["large epsilon"]
    endless = [line for line in honest_curve(protocol) if math.isinf(line.epsilon)]
    assert 0 < len(endless) < 10
    assert math.isinf(protocol.guarantee_with(endless[0].fraction).epsilon())
    assert (
        f"From a share of {endless[0].share} downwards there is no guarantee"
        in written["large epsilon"].text
    )
    assert "downwards there is" not in written["vectors"].text


@pytest.mark.parametrize("place", ["missing/page.html", "folder"])
def test_unwritable_place_leaves_no_file(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(dg.DataError, match="cannot be written"):
        sums.PROTOCOLS["one user"].report(tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


class TestPlan:
    ASKED = ("--n-users", "1000", "--dimension", "10", "--epsilon", "1", "--delta", "1e-6")

    @staticmethod
    def run(*words: str) -> str:
        from typer.testing import CliRunner

        from dpgrain.cli.app import app

        done = CliRunner().invoke(app, ["plan", "shuffle", *words], env={"COLUMNS": "200"})
        if done.exception is not None:
            raise done.exception
        return done.output

    def test_it_prints_the_numbers_and_the_curve(self) -> None:
        shown = self.run(*self.ASKED, "--honest", "0.75")
        protocol = VectorSum(n_users=1000, dim=10, epsilon=1.0, delta=1e-6, honest_fraction=0.75)
        rows = {
            cells[0]: cells[1:]
            for cells in (
                [cell.strip() for cell in line.strip("│").split("│")]
                for line in shown.splitlines()
                if line.startswith("│")
            )
        }
        for row in deployment(protocol).rows:
            assert rows[row.name] == [row.text, row.unit]
        assert rows["steps of the grid, g"] == [f"{protocol.design.grid:,}", ""]
        assert rows["coins of a device and coordinate, b"] == [
            f"{protocol.design.noise.count:,}",  # type: ignore[union-attr]
            "",
        ]
        size = protocol.randomizer().report_bytes
        assert rows["report of a device"] == [f"{size}", "bytes"]
        assert rows["900"] == ["90%", rounded_up(protocol.guarantee_with(0.9).epsilon())]
        own = rounded_up(protocol.guarantee.epsilon())
        assert rows["750"] == ["75%", f"{own} (promised)"]

    @pytest.mark.slow
    def test_json_and_a_page(self, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        asked = ("--relation", "zero_out", "--rounds", "2", "--bound", "3", "--noise", "poisson")
        plan = json.loads(self.run(*self.ASKED, *asked, "--json", "--report", str(page)))
        protocol = PoissonSum(
            n_users=1000,
            dim=10,
            l2_bound=3.0,
            epsilon=1.0,
            delta=1e-6,
            relation="zero_out",
            rounds=2,
        )
        values = {row["name"]: row["value"] for row in plan["rows"]}
        assert values["noise sd of the sum"] == protocol.noise_sd
        assert values["ones that a device adds to a coordinate, mean"] == (
            protocol.design.noise.mean  # type: ignore[union-attr]
        )
        assert values["a corrupt device changes the sum by"] == pytest.approx(protocol.influence)
        assert plan["event"] == protocol.event.to_dict()
        assert [line["epsilon"] for line in plan["honest"]] == [
            line.epsilon for line in honest_curve(protocol)
        ]
        assert "PoissonSum" in page.read_text(encoding="utf-8")

    def test_plan_without_guarantee_has_no_epsilon(self) -> None:
        few = ("--n-users", "100", "--epsilon", "8", "--delta", "1e-6")
        plan = json.loads(self.run(*few, "--json"))
        assert plan["honest"][-1]["epsilon"] is None
        assert " none " in self.run(*few)
        assert " none " not in self.run(*self.ASKED)

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--honest", "0"), "honest must be above 0"),
            (("--honest", "1.5"), r"honest must be in \[0, 1\], not 1.5"),
            (("--bound", "-1"), "bound must be positive and finite, not -1.0"),
            (("--delta", "0"), "delta must be above 0"),
        ],
        ids=["nobody", "more than all", "bound", "pure"],
    )
    def test_errors_are_a_sentence(self, words: tuple[str, ...], sentence: str) -> None:
        asked = list(self.ASKED)
        if words[0] in asked:
            # An option of one value is stated once.
            place = asked.index(words[0])
            del asked[place : place + 2]
        with pytest.raises(dg.ParameterError, match=sentence) as raised:
            self.run(*asked, *words)
        assert "\n" not in str(raised.value)

    def test_unwritable_report_is_rejected(self, tmp_path: Path) -> None:
        with pytest.raises(dg.DataError, match="cannot be written"):
            self.run(*self.ASKED, "--report", str(tmp_path / "missing" / "page.html"))
