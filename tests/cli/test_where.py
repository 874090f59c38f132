"""``--where`` of the commands with a table: only a region is read, as the guarantee states."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.origins import ArrayOrigin, array_origin, current_origin
from dpgrain.scope.regions import EVERYTHING, Region, Side, days

PROMISE = ("--epsilon", "1", "--delta", "1e-6")
JANUARY = Region((Side("day", days("2026-01-01", "2026-01-31")),))


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    lines = ["who,day,country,x,y"]
    for who in range(40):
        day = f"2026-0{1 + who % 2}-{1 + who % 28:02}"
        lines.append(f"{who},{day},{'FR' if who % 3 else ''},{who % 7},{who % 2}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_statistics_read_a_region(visits: Path, tmp_path: Path, command: Command) -> None:
    saved = tmp_path / "saved.parquet"
    done = command(
        "count", visits, "--user", "who", "--unit", "user", *PROMISE, "--type", "day=date",
        "--where", "day=2026-01-01..2026-01-31", "--where", "country=FR", "--where", "country=",
        "--save", saved,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    words = "country FR or missing, day from 2026-01-01 to 2026-01-31"
    assert f"only rows with {words}" in " ".join(done.stdout.split())
    assert str(dg.Estimates.load(saved).guarantee.scope) == words


def test_curator_sees_the_region(visits: Path, command: Command) -> None:
    done = command(
        "count", visits, "--user", "who", "--unit", "user", "--where", "who=3", "--check"
    )
    assert "               1  rows\n" in done.stdout


def test_means_and_fits_state_their_region(visits: Path, tmp_path: Path, command: Command) -> None:
    done = command(
        "mean-of-users", visits, "--user", "who", *PROMISE, "--columns", "x", "--bound", "7",
        "--n-users", "40", "--type", "x=double", "--where", "country=FR",
    )  # fmt: skip
    assert "Only these records are read: country FR." in done.stdout, done.stderr
    model = tmp_path / "model.json"
    done = command(
        "fit", "linear", visits, "--user", "who", "--element", "day", *PROMISE, "--target", "y",
        "--features", "x", "--type", "x,y=double", "--type", "day=date", "--where", "day=2026-01",
        "--rounds", "2", "--output", model,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    guarantee: Guarantee = dg.learn.load(model).guarantee_
    assert guarantee.scope == JANUARY
    assert str(guarantee.partition) == "the day of 'day'"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("day", "--where must be COLUMN=VALUE or COLUMN=FIRST..LAST"),
        ("nowhere=1", "--where 'nowhere' is not a column"),
        ("day=2026-01..2026-02", "declare its type, such as --type day=date"),
    ],
)
def test_invalid_region_is_rejected(where: str, words: str, visits: Path, command: Command) -> None:
    done = command("count", visits, "--user", "who", "--unit", "user", *PROMISE, "--where", where)
    assert done.returncode != 0
    assert words in " ".join(done.stderr.split())


def test_the_origin_of_arrays_ends_with_its_block() -> None:
    with array_origin(ArrayOrigin(JANUARY)):
        assert current_origin().scope == JANUARY
    assert current_origin().scope == EVERYTHING
