"""The commands of ledgers, and the option of other commands that charges one."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.ledger import cases

import dpgrain as dg
from dpgrain._formatting import powers
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise
from dpgrain.scope.partitions import Partition, Rule

OF_USERS = ("--name", "visits", "--unit", "user", "--epsilon", "1", "--delta", "1e-6")
COUNT = ("--user", "who", "--unit", "user", "--clip", "5", "--epsilon", "0.5", "--delta", "1e-7")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    table = pa.table(
        {"who": np.arange(900) % 300, "day": np.arange(900) % 30, "paid": np.ones(900)}
    )
    pq.write_table(table, tmp_path / "visits.parquet")
    return tmp_path / "visits.parquet"


@pytest.fixture
def place(tmp_path: Path, command: Command) -> Path:
    done = command("ledger", "init", tmp_path / "visits.ledger", *OF_USERS)
    assert done.returncode == 0, done.stderr
    return tmp_path / "visits.ledger"


@pytest.mark.parametrize(
    ("words", "promise"),
    [
        (("--unit", "user"), LastingPromise.of(dg.User(), 1.0, 1e-6)),
        (("--element", "day"), LastingPromise.of(dg.Element("day"), 1.0, 1e-6)),
        (
            ("--unit", "element", "--element", "at=week", "--element", "a=b", "--zone", "UTC"),
            LastingPromise.of(
                dg.Element(Partition((Rule("at", "week", "UTC"), Rule("a=b")))), 1.0, 1e-6
            ),
        ),
        (
            ("--unit", "user", "--any-days", "30", "--day", "day", "--relation", "replace"),
            LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day"), relation="replace"),
        ),
        (
            ("--unit", "user", "--any-hours", "720", "--day", "at"),
            LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(720, "at")),
        ),
        (
            ("--unit", "record", "--pure", "0.5", "--leak", "0"),
            LastingPromise.of(dg.Record(), 1.0, 1e-6, pure=0.5, leak=0.0),
        ),
    ],
)
def test_a_promise_is_stated_by_options(
    words: tuple[str, ...], promise: LastingPromise, tmp_path: Path, command: Command
) -> None:
    asked = ("--name", "visits", "--epsilon", "1", "--delta", "1e-6", *words)
    done = command("ledger", "init", tmp_path / "l", *asked)
    assert done.returncode == 0, done.stderr
    assert list(dg.Ledger(tmp_path / "l").promises.values()) == [promise]


@pytest.mark.parametrize("private", [True, False])
def test_seeded_release_is_shown_as_not_private(
    private: bool, tmp_path: Path, command: Command
) -> None:
    place = tmp_path / "l"
    with cases.made(place) as opened:
        opened.charge(cases.of_users())
        opened.charge(cases.of_users(private=private))
        opened.charge(cases.of_users())
    for name in ("show", "verify"):
        done = command("ledger", name, place)
        assert done.returncode == 0, done.stderr
        assert ("NOT PRIVATE: seeded noise in line 3, so these" in done.stdout) == (not private)
        told = json.loads(command("ledger", name, place, "--json").stdout)
        assert told["seeded_lines"] == ([] if private else [3])
    assert command("ledger", "show", place).stdout.count("(NOT PRIVATE") == (not private)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "Choose what to protect"),
        (("--unit", "user", "--element", "day"), "--element COLUMN is for --unit element"),
        (("--unit", "element"), "Pass --element"),
        (
            ("--unit", "user", "--any-days", "3"),
            "--any-days (or --any-hours) and --day must be passed together",
        ),
        (
            ("--unit", "user", "--any-days", "3", "--any-hours", "3", "--day", "at"),
            "--any-days (or --any-hours) and --day must be passed together",
        ),
        (("--unit", "user", "--leak", "1"), "--leak must be at most"),
    ],
)
def test_incompatible_options_are_rejected(
    words: tuple[str, ...], told: str, tmp_path: Path, command: Command
) -> None:
    asked = ("--name", "visits", "--epsilon", "1", "--delta", "1e-6", *words)
    done = command("ledger", "init", tmp_path / "l", *asked)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "l").exists()


def test_releases_are_charged_and_shown(
    place: Path, visits: Path, tmp_path: Path, command: Command
) -> None:
    done = command("count", visits, *COUNT, "--ledger", place)
    assert done.returncode == 0, done.stderr
    receipt = dg.Ledger(place).entries[-1].receipt
    assert receipt.hash in done.stdout
    shown = command("ledger", "show", place)
    assert shown.returncode == 0, shown.stderr
    for text in (
        receipt.hash,
        "76.4%",
        "per user, for records of any time",
        "of 1 spent at δ = 10⁻⁶",
        "This ledger assumes (and cannot enforce)",
    ):
        assert text in shown.stdout
    told = json.loads(command("ledger", "show", place, "--json").stdout)
    assert (told["name"], told["promises"][0]["line"]) == ("visits", 1)
    over = (*COUNT[:-4], "--epsilon", "0.99", "--delta", "1e-6")
    done = command("count", visits, *over, "--ledger", place, "--output", tmp_path / "o.csv")
    assert done.returncode == 7
    assert "has no room for this release" in done.stderr
    assert not (tmp_path / "o.csv").exists()


FILE = """
[table]
source = "visits.parquet"
user = "who"
[budget]
unit = "user"
epsilon = 1.0
delta = 5e-7
[release.visits]
statistic = "count"
clip = 5.0
share = 0.5
[release.days]
statistic = "top"
item = "day"
share = 0.5
"""


@pytest.mark.slow
def test_file_planned_at_opening_costs_the_caps_nothing(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    planned, other = tmp_path / "planned.toml", tmp_path / "other.toml"
    planned.write_text(FILE)
    other.write_text(FILE.replace("share = 0.5", "share = 0.25"))
    place = tmp_path / "planned.ledger"
    asked = ("--name", "visits", "--user", "who", "--unit", "user", "--delta", "1e-6")
    # The plan must fit into the promise itself.
    done = command("ledger", "init", place, *asked, "--epsilon", "0.9", "--plan", planned)
    assert (done.returncode, place.exists()) == (2, False), done.stderr
    done = command("ledger", "init", place, *asked, "--epsilon", "2", "--plan", planned)
    assert done.returncode == 0, done.stderr
    assert "2 planned" in done.stdout
    (promise,) = dg.Ledger(place).promises.values()
    alone = LastingPromise.of(dg.User(), 2.0, 1e-6)
    assert promise.caps.mu < alone.caps.mu, "the plan takes its part of the promise"
    left = []
    for path, again in ((planned, ()), (other, ()), (planned, ("--again",))):
        done = command("run", path, "--ledger", place, *again)
        assert done.returncode == 0, done.stderr
        left.append(dg.Ledger(place).left(1))
    assert left[0] == 1.0, "the planned file costs the caps nothing"
    assert left[0] > left[1] > left[2], "another file is charged, and the planned one a second time"
    first, second, third = (entry.charged for entry in dg.Ledger(place).entries[2:])
    assert [each.planned for each in (*first, *second, *third)] == [0, 1, None, None]


@pytest.mark.slow
def test_a_plan_is_of_the_users_of_the_ledger(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "planned.toml").write_text(FILE)
    asked = ("--epsilon", "2", "--delta", "1e-6", "--unit", "user")
    place, plan = tmp_path / "l", ("--plan", tmp_path / "planned.toml")
    done = command("ledger", "init", place, "--name", "v", "--user", "person", *asked, *plan)
    assert (done.returncode, place.exists()) == (2, False)
    assert "users by 'who', but the ledger by 'person'" in done.stderr
    assert command("ledger", "init", place, "--name", "v", "--user", "who", *asked).returncode == 0
    for words in (("promise", place), ("renew", place, "1")):
        done = command("ledger", *words, *(asked if words[0] == "promise" else asked[:4]), *plan)
        assert done.returncode == 0, done.stderr
        assert "2 planned" in done.stdout


@pytest.mark.slow
def test_days_of_times_are_elements_and_windows(tmp_path: Path, command: Command) -> None:
    first = datetime.datetime(2026, 3, 28, 12, tzinfo=datetime.UTC)
    times = [first + datetime.timedelta(hours=hour) for hour in range(96)]
    table = pa.table({"who": np.arange(96) % 7, "at": pa.array(times)})
    pq.write_table(table, tmp_path / "t.parquet")
    place = tmp_path / "days.ledger"
    zone = ("--zone", "Europe/Paris")
    asked = ("--name", "v", "--element", "at=day", *zone, "--epsilon", "1", "--delta", "1e-6")
    assert command("ledger", "init", place, *asked).returncode == 0
    week = (
        "--unit",
        "user",
        "--any-days",
        "7",
        "--day",
        "at",
        *zone,
        "--epsilon",
        "5",
        "--delta",
        "1e-6",
    )
    assert command("ledger", "promise", place, *week).returncode == 0
    own = (
        "--user",
        "who",
        "--element",
        "day",
        "--clip",
        "5",
        "--epsilon",
        "0.9",
        "--delta",
        "1e-9",
    )
    for day in ("2026-03-28", "2026-03-29", "2026-03-30"):
        words = ("--days", "day=at:Europe/Paris", "--where", f"day={day}", "--ledger", place)
        done = command("count", tmp_path / "t.parquet", *own, *words)
        assert done.returncode == 0, done.stderr
    assert "the day of 'at' (Europe/Paris)" in done.stdout
    opened = dg.Ledger(place)
    promised = zip(opened.entries[-1].charged, opened.promises.values(), strict=True)
    once, thrice = (each.price.share_of(promise.caps) for each, promise in promised)
    assert opened.left(1) == pytest.approx(1 - once, abs=1e-6)
    assert opened.left(2) == pytest.approx(1 - 3 * thrice, abs=1e-6)
    shown = command("ledger", "show", place).stdout
    assert f"Promise on line 1 (fullest account: {opened.fullest(1)}): " in " ".join(shown.split())
    for wrong, code, told in (
        ("day", 2, "--days must be NAME=COLUMN"),
        ("day=at:Mars", 2, "zone must be a zone"),
        ("day=who", 2, "must contain timestamps"),
    ):
        done = command("count", tmp_path / "t.parquet", *own, "--days", wrong)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    done = command(
        "count", tmp_path / "t.parquet", "--user", "who", "--element", "at", "--epsilon", "1"
    )
    assert (done.returncode, "--days day=at" in done.stderr) == (2, True), done.stderr


RUNS: dict[str, tuple[str, ...]] = {
    "mean": ("mean-of-users", "--columns", "paid", "--bound", "1"),
    "fit": ("fit", "linear", "--target", "paid", "--features", "day", "--range", "day=0:30",
            "--rounds", "3", "--n-users", "300"),
    "top": ("top", "--item", "day"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_every_publishing_command_charges(
    name: str, place: Path, visits: Path, tmp_path: Path, command: Command
) -> None:
    kind, *words = RUNS[name]
    words = [*words[:1], str(visits), *words[1:]] if kind == "fit" else [str(visits), *words]
    out = ("--output", str(tmp_path / "m.json")) if kind == "fit" else ()
    unit = () if kind == "mean-of-users" else ("--unit", "user")
    promise = ("--user", "who", *unit, "--epsilon", "0.3", "--delta", "1e-7")
    done = command(kind, *words, *promise, *out, "--ledger", place)
    assert done.returncode == 0, done.stderr
    (guarantee,) = dg.Ledger(place).entries[-1].guarantees
    assert guarantee.epsilon() == pytest.approx(0.3, rel=1e-3)


def test_a_ledger_is_checked_and_exported(
    place: Path, visits: Path, tmp_path: Path, command: Command
) -> None:
    command("count", visits, *COUNT, "--ledger", place)
    receipt = dg.Ledger(place).entries[-1].receipt
    done = command("ledger", "verify", place, "--expected", receipt.hash)
    assert done.returncode == 0, done.stderr
    assert str(receipt) in done.stdout
    assert command("ledger", "verify", place, "--expected", "0" * 64).returncode == 1
    # A beginning is weaker evidence, and is no false alarm either.
    done = command("ledger", "verify", place, "--expected", receipt.hash[:12])
    assert (done.returncode, "a hash of 64 digits in full" in done.stderr) == (2, True)
    out = tmp_path / "visits.json"
    assert command("ledger", "export", place, "--output", out).returncode == 0
    exported: dict[str, Any] = json.loads(out.read_text())
    assert [line["kind"] for line in exported["lines"]] == ["ledger", "promise", "release"]
    assert exported["lines"][-1]["hash"] == receipt.hash
    assert json.loads(command("ledger", "export", place).stdout) == exported
    # A ledger is not overwritten.
    done = command("ledger", "export", place, "--output", place)
    assert done.returncode == 2
    done = command("count", visits, *COUNT, "--ledger", place, "--output", place)
    assert done.returncode == 2
    assert dg.Ledger(place).verify() == receipt


def test_show_and_verify_state_delta_and_the_new_place(
    place: Path, visits: Path, tmp_path: Path, command: Command
) -> None:
    command("count", visits, *COUNT, "--ledger", place)
    (one,) = dg.Ledger(place).entries[-1].guarantees
    done = command("ledger", "show", place)
    assert "│ ε of each release" in done.stdout.replace("┃", "│")
    assert re.search(rf"│ +[0-9.]+ at δ = {powers(one.delta)} +│", done.stdout), done.stdout
    new = tmp_path / "new.ledger"
    assert command("ledger", "import", place, new).returncode == 0
    told = f"It was moved to {str(new)!r} and accepts no charges here."
    for name in ("show", "verify"):
        done = command("ledger", name, place)
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stdout.splitlines() if "Last line: " in line]
        assert told in line
    assert "moved to" not in command("ledger", "verify", new).stdout


def test_promises_are_added_and_renewed(place: Path, visits: Path, command: Command) -> None:
    more = (
        "--unit",
        "user",
        "--any-days",
        "7",
        "--day",
        "day",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    )
    done = command("ledger", "promise", place, *more)
    assert done.returncode == 0, done.stderr
    assert "any 7 days in a row" in done.stdout
    command("count", visits, *COUNT, "--ledger", place)
    assert command("ledger", "promise", place, *more).returncode == 2
    done = command("ledger", "renew", place, "1", "--epsilon", "1", "--delta", "1e-6")
    assert done.returncode == 0, done.stderr
    assert "Line 4 renews line 1; together they promise ε = 1.40" in done.stdout
    assert "Units and regions that were published before have this budget again." in done.stdout
    assert command("ledger", "renew", place, "1", "--epsilon", "1").returncode == 2
    assert "renews line 1" in command("ledger", "show", place).stdout


def test_invalid_ledger_is_reported(visits: Path, tmp_path: Path, command: Command) -> None:
    done = command("ledger", "show", tmp_path / "none")
    assert (done.returncode, "ledger init" in done.stderr) == (2, True)
    done = command("count", visits, *COUNT, "--ledger", tmp_path / "none")
    assert done.returncode == 2
    assert not (tmp_path / "none").exists()
