"""The page, the plot and the plan of shuffled sums: numbers are the protocol's own, whatever it is."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import dpgrain as dg
from dpgrain import learn
from dpgrain._wording import rounded_up
from dpgrain.accounting import Binomial, Contribution, Gaussian
from dpgrain.noise import SeededSource
from dpgrain.planning.shuffled import (
    central_sd,
    corrupt,
    deployment,
    honest_curve,
    replaced,
    shares_of_honest,
)
from dpgrain.recipes import Trust
from dpgrain.shuffle import BlindSum, PoissonSum, ScalarSum, VectorSum
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.units import Relation

OTHER = Gaussian(10.0, Contribution(block="user"))
PROTOCOLS: dict[str, ShuffledSum] = {
    "vectors": VectorSum(n_users=1000, dim=10, epsilon=1.0, delta=1e-6),
    "poisson, nine in ten": PoissonSum(
        n_users=1000, dim=3, epsilon=1.0, delta=1e-6, honest_fraction=0.9, relation="zero_out"
    ),
    "one coordinate, three users": VectorSum(
        n_users=3, dim=1, l2_bound=2.5, epsilon=0.5, delta=1e-5, honest_fraction=0.1, rounds=3
    ),
    "one user": VectorSum(n_users=1, dim=2, epsilon=1.0, delta=1e-6),
    "numbers": ScalarSum(n_users=50, bound=3.0, epsilon=1.0, delta=1e-6),
    "blind": BlindSum(n_users=1000, dim=2, epsilon=1.0, delta=1e-6, honest_fraction=0.8),
    "beside something": VectorSum(n_users=100, dim=2, epsilon=1.0, delta=1e-6, beside=OTHER),
}
VOID = {"br", "col", "hr", "img", "input", "link", "meta"}


class _Page(HTMLParser):
    """Whether tags nest, and what a page could load."""

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


@dataclass(frozen=True)
class Written:
    protocol: ShuffledSum
    page: str

    def rows(self, table: str) -> list[list[str]]:
        """The cells of a table of that class, row by row."""
        found = re.search(rf'<table class="{table}">(.*?)</table>', self.page, re.DOTALL)
        assert found is not None, table
        rows = re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
        return [
            [
                html.unescape(re.sub(r"<small>.*?</small>|<[^>]*>", "", cell)).strip()
                for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
            ]
            for row in rows
            if "<td" in row
        ]

    @property
    def text(self) -> str:
        """The words of the page, in one line."""
        body = self.page[self.page.index("<body>") :]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", "", body)).split())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {}
    for place, (name, protocol) in enumerate(PROTOCOLS.items()):
        path = protocol.report(folder / f"{place}.html")
        pages[name] = Written(protocol, path.read_text(encoding="utf-8"))
    return pages


def _shown(epsilon: float) -> str:
    return "∞ (no promise)" if math.isinf(epsilon) else rounded_up(epsilon)


@pytest.mark.parametrize("name", PROTOCOLS)
class TestPages:
    def test_it_is_well_formed_and_loads_nothing(
        self, name: str, written: dict[str, Written]
    ) -> None:
        parser = _Page()
        parser.feed(written[name].page)
        assert parser.open == []
        assert all(reference.startswith("#") for reference in parser.references)
        assert not {"script", "img", "link", "iframe", "object", "base"} & parser.tags
        assert "default-src 'none'" in written[name].page
        assert len(written[name].page) < 1_000_000

    def test_the_promise_is_in_it(self, name: str, written: dict[str, Written]) -> None:
        asked = written[name]
        assert str(asked.protocol.guarantee) in html.unescape(asked.page)
        text = re.search(r"for an audit</summary>\s*<pre>(.*?)</pre>", asked.page, re.DOTALL)
        assert text is not None
        read = dg.Guarantee.from_dict(json.loads(html.unescape(text[1])))
        assert read == asked.protocol.guarantee

    def test_every_share_of_honest_devices_is_what_the_protocol_says(
        self, name: str, written: dict[str, Written]
    ) -> None:
        protocol, n = written[name].protocol, written[name].protocol.n_users
        rows = written[name].rows("honest")
        devices = [int(row[0].replace(",", "")) for row in rows]
        assert devices == sorted(set(devices), reverse=True)
        assert devices[0] == n
        for row, count in zip(rows, devices, strict=True):
            # ⌈γn⌉ of a share just below count/n.
            promise = protocol.guarantee_with((count - 0.5) / n)
            assert row[2] == _shown(promise.epsilon()), row
            share = float(row[1].removesuffix("%")) / 100
            # Written with four digits.
            assert abs(share * n - count) < 1 + 1e-4 * n
        own = re.findall(r'class="own">([\d,]+)<small>promised', written[name].page)
        assert own == [f"{protocol.honest:,}"]

    def test_several_users_are_what_the_guarantee_says(
        self, name: str, written: dict[str, Written]
    ) -> None:
        promise = written[name].protocol.guarantee
        rows = written[name].rows("groups")
        assert len(rows) == 4
        for row, users in zip(rows, (1, 2, 5, 10), strict=True):
            assert row[0] == f"the data of {users} user{'s' if users > 1 else ''}"
            assert row[1:] == [
                _shown(promise.epsilon(units=users, relation=relation))
                for relation in ("zero_out", "replace")
            ]

    def test_noise_and_bytes(self, name: str, written: dict[str, Written]) -> None:
        protocol = written[name].protocol
        table = written[name].rows("noise")
        values = [[float(cell) for cell in row[1:]] for row in table]
        sd, central = protocol.noise_sd, central_sd(protocol)
        wanted = [[sd, central], [sd / protocol.n_users, central / protocol.n_users]]
        np.testing.assert_allclose(values, wanted, rtol=1e-3)
        assert f"is {rounded_up(sd / central)} times that of the Gaussian" in written[name].text
        size = protocol.randomizer().report_bytes  # type: ignore[attr-defined]
        assert f"{size:,} bytes" in written[name].text
        assert f"{size * protocol.n_users:,} bytes" in written[name].text

    def test_who_is_trusted(self, name: str, written: dict[str, Written]) -> None:
        blind = isinstance(written[name].protocol, BlindSum)
        who = [row[0] for row in written[name].rows("trust")]
        assert who == [
            "Devices",
            f"The shuffler ({'blind' if blind else 'trusted'})",
            "The analyzer",
        ]
        assert ("Counts that no device can send are dropped" in written[name].text) != blind
        beside = written[name].protocol.beside is not None
        assert ("shares the asked ε = 1 with something else" in written[name].text) == beside

    def test_the_plot_holds_the_curve(self, name: str, written: dict[str, Written]) -> None:
        protocol = written[name].protocol
        ax = protocol.plot(Figure().subplots())
        curve = [line for line in honest_curve(protocol) if math.isfinite(line.epsilon)]
        drawn = ax.lines[0]
        assert list(np.asarray(drawn.get_xdata())) == [line.fraction for line in curve]
        assert list(np.asarray(drawn.get_ydata())) == [line.epsilon for line in curve]
        marked = ax.lines[-1]
        assert list(np.asarray(marked.get_xdata())) == [protocol.honest_fraction]
        assert list(np.asarray(marked.get_ydata())) == [protocol.guarantee.epsilon()]
        assert len(ax.patches) == (len(curve) < len(honest_curve(protocol)))


def test_a_blind_sum_says_from_where_nothing_is_promised(written: dict[str, Written]) -> None:
    protocol = PROTOCOLS["blind"]
    endless = [line for line in honest_curve(protocol) if math.isinf(line.epsilon)]
    assert 0 < len(endless) < 10
    assert math.isinf(protocol.guarantee_with(endless[0].fraction).epsilon())
    assert f"From a share of {endless[0].share} downwards nothing" in written["blind"].text
    assert "downwards nothing" not in written["vectors"].text


def test_a_plot_without_any_promise_says_so() -> None:
    from dpgrain.planning.shuffled import Honest
    from dpgrain.report.shuffle import plot_honest

    ax = plot_honest([Honest(1.0, 5, math.inf, promised=True)], 1e-6, Figure().subplots())
    assert [text.get_text() for text in ax.texts] == ["no promise at this δ"]
    assert not ax.lines


def test_an_honest_device_and_a_corrupt_one_move_sums_so_far() -> None:
    for protocol in PROTOCOLS.values():
        encoding = protocol.encoding
        if isinstance(protocol, BlindSum):
            continue
        assert corrupt(protocol) == pytest.approx(protocol.influence, rel=1e-12)
        # The codes of the two ends of what one coordinate may be.
        ends = np.zeros((2, encoding.dim))
        ends[:, 0] = (-encoding.bound if protocol.centred else 0.0), encoding.bound
        codes = np.array([encoding.codes(end[None], SeededSource(1))[0] for end in ends])
        moved = np.linalg.norm((codes[1] - codes[0]) * encoding.step)
        assert moved == pytest.approx(replaced(protocol), abs=3 * encoding.step)


def test_shares_of_one_corrupt_device_move_a_blind_sum_beyond_any_report() -> None:
    protocol = BlindSum(n_users=20, dim=2, epsilon=1.0, delta=1e-6)
    shuffler, device = protocol.shuffler(random_state=4), protocol.randomizer()
    for seed in range(19):
        shuffler.receive(device.report(None, seed))
    one = device.plain.packing.largest
    shuffler.receive(device.shares.messages(np.full(2, 9 * one), SeededSource(19)))
    moved = float(np.linalg.norm(protocol.analyzer().estimate(shuffler.release(), 20).value))
    alone = one * protocol.encoding.step * math.sqrt(2)
    assert 8 * alone < moved <= corrupt(protocol)


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_the_central_mechanism(relation: Relation) -> None:
    user = Contribution(block="user", layout="shared", coordinates="signed")
    vectors = VectorSum(
        n_users=100, dim=2, l2_bound=3.0, epsilon=1.0, delta=1e-6, rounds=4, relation=relation
    )
    # Four rounds of it, of sums in bounds.
    event = Gaussian(central_sd(vectors) / 3, user, 4)
    assert event.epsilon(1e-6, relation=relation) == pytest.approx(1.0, rel=1e-3)
    numbers = ScalarSum(n_users=100, bound=3.0, epsilon=1.0, delta=1e-6, relation=relation)
    # A number between 0 and 3 moves by 3, removed or replaced.
    event = Gaussian(central_sd(numbers) / 3, user)
    assert event.epsilon(1e-6, relation="zero_out") == pytest.approx(1.0, rel=1e-3)
    assert 1.0 < deployment(numbers)["times the central noise"] < 1.1


@pytest.mark.parametrize("place", ["missing/page.html", "folder"])
def test_no_file_is_left_where_it_cannot_be_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(dg.DataError, match="cannot be written"):
        PROTOCOLS["one user"].report(tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


class TestFits:
    @staticmethod
    def page(trust: Trust, folder: Path) -> tuple[dg.Guarantee, Written]:
        rows = np.random.default_rng(7).normal(size=(400, 2))
        model = learn.LinearRegression(
            trust=trust, clip=1.0, epsilon=2.0, n_users=400, random_state=1
        )
        model.fit(rows, rows[:, 0], users=np.arange(400))
        path = model.report(folder / "fit.html")
        return model.guarantee_, Written(PROTOCOLS["vectors"], path.read_text(encoding="utf-8"))

    def test_a_shuffled_fit_tells_what_less_honest_devices_mean(self, tmp_path: Path) -> None:
        promise, fit = self.page("shuffle", tmp_path)
        rows = fit.rows("honest")
        assert [row[0] for row in rows] == ["100%", "90%", "75%", "50%", "20%", "10%"]
        assert [row[1] for row in rows] == [_shown(e) for _, e in shares_of_honest(promise)]
        assert rows[0][1] == _shown(promise.epsilon())
        epsilons = [epsilon for _, epsilon in shares_of_honest(promise)]
        assert epsilons == sorted(epsilons)
        assert epsilons[0] < epsilons[1]

    def test_a_pan_private_fit_tells_of_one_look(self, tmp_path: Path) -> None:
        _, fit = self.page("pan", tmp_path)
        assert "sees the state of the fit once, at any time between two users" in fit.text
        assert '<table class="honest">' not in fit.page

    def test_a_central_fit_says_nothing_of_either(self, tmp_path: Path) -> None:
        promise, fit = self.page("central", tmp_path)
        assert shares_of_honest(promise) == ()
        assert "Who sees data</h2>" not in fit.page


def test_shares_of_honest_devices_are_those_of_the_protocol() -> None:
    protocol = VectorSum(n_users=1000, dim=5, epsilon=1.0, delta=1e-6)
    for share, epsilon in shares_of_honest(protocol.guarantee):
        assert epsilon == pytest.approx(protocol.guarantee_with(share).epsilon(), rel=1e-12)
    poisson = PoissonSum(n_users=1000, dim=5, epsilon=1.0, delta=1e-6).guarantee
    assert dict(shares_of_honest(poisson))[0.5] > poisson.epsilon()
    both = dg.Guarantee(
        "user", "", "replace", 1e-6, Binomial(10**7, 0.5, 50, 5, 1e-9) + OTHER, (), True
    )
    told = dict(shares_of_honest(both))
    rest = Binomial(5 * 10**6, 0.5, 50, 5, 1e-9) + OTHER
    assert told[0.5] == rest.epsilon(1e-6, relation="replace")


class TestPlan:
    ASKED = ("--users", "1000", "--dim", "10", "--epsilon", "1", "--delta", "1e-6")

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
        for row in deployment(protocol).rows():
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
        assert values["a corrupt device moves the sum by"] == pytest.approx(protocol.influence)
        assert plan["event"] == protocol.event.to_dict()
        assert [line["epsilon"] for line in plan["honest"]] == [
            line.epsilon for line in honest_curve(protocol)
        ]
        assert "PoissonSum" in page.read_text(encoding="utf-8")

    def test_a_blind_plan_has_no_epsilon_where_nothing_is_promised(self) -> None:
        plan = json.loads(self.run(*self.ASKED, "--blind", "--json"))
        shares = BlindSum(n_users=1000, dim=10, epsilon=1.0, delta=1e-6).shares()
        values = {row["name"]: row["value"] for row in plan["rows"]}
        assert values["messages of a device"] == shares.slots
        assert values["all messages of a device"] == shares.slots * shares.message_bytes
        assert plan["honest"][-1]["epsilon"] is None
        assert "no promise" in self.run(*self.ASKED, "--blind")

    def test_help_has_an_example(self) -> None:
        assert "Example:\n  dpgrain plan shuffle" in self.run("--help")

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--blind", "--noise", "poisson"), "noise must be 'binomial' for a blind shuffler"),
            (("--honest", "0"), "honest must be above 0"),
            (("--honest", "1.5"), r"honest must lie in \[0, 1\], not 1.5"),
            (("--bound", "-1"), "bound must be finite and above 0, not -1.0"),
            (("--delta", "0"), "delta = 0 needs pure privacy"),
        ],
        ids=["both", "nobody", "more than all", "bound", "pure"],
    )
    def test_errors_are_a_sentence(self, words: tuple[str, ...], sentence: str) -> None:
        with pytest.raises(dg.ParameterError, match=sentence) as raised:
            self.run(*self.ASKED, *words)
        assert "\n" not in str(raised.value)

    def test_a_page_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(dg.DataError, match="cannot be written"):
            self.run(*self.ASKED, "--report", str(tmp_path / "missing" / "page.html"))
