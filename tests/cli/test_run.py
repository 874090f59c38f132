"""`dpgrain run`, as a person runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Command
from tests.releases import cases

import dpgrain as dg

TABLE = '[table]\nsource = "visits.parquet"\nuser = "who"\nn_users = 600\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    cases.parquet(tmp_path)
    kinds = ["histogram", "count", "mean_of_users", "fit"]
    listed = "\n".join(
        cases.releases(f'share = 0.25\noutput = "{name}.json"', [name]) for name in kinds
    )
    return cases.written(tmp_path, 'report = "all.html"\n' + TABLE + cases.BUDGET + listed)


def test_a_dry_run_prints_the_plan_and_leaves_nothing(file: Path, command: Command) -> None:
    before = sorted(file.parent.iterdir())
    done = command("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert str(dg.plan_releases(file)) in done.stdout
    assert done.stdout.endswith("Nothing was read, charged or written: --dry-run.\n")
    assert sorted(file.parent.iterdir()) == before


def test_a_run_writes_all_and_is_not_repeated_unasked(file: Path, command: Command) -> None:
    done = command("run", file)
    assert done.returncode == 0, done.stderr
    assert "Together: ε = 2 at δ = 10⁻⁶" in done.stdout
    assert "User-level differential privacy with ε = 2 and δ = 10⁻⁶" in done.stdout or (
        "ε = 1.999" in done.stdout
    )
    for name in ("histogram", "count", "mean_of_users", "fit"):
        path = file.parent / f"{name}.json"
        assert f"Written: {path}\n" in done.stdout
        told = Path(f"{path}.guarantee.json").read_text(encoding="utf-8")
        assert dg.Guarantee.from_json(told).private
    page = (file.parent / "all.html").read_text(encoding="utf-8")
    assert "4 releases of" in page
    refused = command("run", file)
    assert refused.returncode == 2
    assert "is there already" in refused.stderr
    assert (file.parent / "all.html").read_text(encoding="utf-8") == page
    again = command("run", file, "--again")
    assert again.returncode == 0, again.stderr
    assert (file.parent / "all.html").read_text(encoding="utf-8") != page


def test_all_mistakes_are_printed(file: Path, command: Command) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("item =", "itm =").replace("bound =", "bond ="), encoding="utf-8")
    done = command("run", file)
    assert done.returncode == 2
    assert "has 4 mistakes; nothing was read or charged:\n" in done.stderr
    for said in ("did you mean item?", "did you mean bound?", "item must be", "bound must be"):
        assert said in done.stderr
    assert not done.stdout


def test_a_file_that_is_not_there(tmp_path: Path, command: Command) -> None:
    done = command("run", tmp_path / "none.toml")
    assert done.returncode == 1
    assert "cannot be read; name a file of releases" in done.stderr
