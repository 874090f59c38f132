"""The page and the files of `dpgrain run` contain what an officer needs to check them."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command
from tests.report.test_hashes import checks

import dpgrain as dg

FILE = """
[table]
source = "visits.parquet"
user = "who"
[budget]
unit = "user"
epsilon = 1.0
delta = 1e-6
[release.wards]
statistic = "count"
by = "ward"
domain = ["a", "b"]
share = 0.5
output = "wards.csv"
[release.paid]
statistic = "mean"
value = "paid"
bounds = [0, 3]
share = 0.5
output = "paid.json"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # A few users have far more records than the others.
    users = [who for who in range(400) for _ in range(1 + (who % 40 == 0) * 60 + who % 7 * 2)]
    wards = ["ab"[place // 3 % 2] for place in range(len(users))]
    paid = [float(place % 5) for place in range(len(users))]
    rows = pa.table({"who": users, "ward": wards, "paid": paid})
    pq.write_table(rows, tmp_path / "visits.parquet")
    (tmp_path / "releases.toml").write_text(FILE, encoding="utf-8")
    return tmp_path


def page_of(folder: Path, command: Command, *words: Any) -> tuple[str, str]:
    page = folder / "all.html"
    done = command("run", folder / "releases.toml", "--report", page, *words)
    assert done.returncode == 0, done.stderr
    return html.unescape(page.read_text(encoding="utf-8")), " ".join(done.stdout.split())


def test_page_of_a_run_can_be_checked_against_its_files(folder: Path, command: Command) -> None:
    page, _ = page_of(folder, command)
    found = checks(page)
    for name in ("wards.csv", "paid.json"):
        hash_, how = found[f"File {name}"]
        assert (hash_, how) == (
            hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            f"sha256sum {name}",
        )
    assert '<th scope="row">Charged on</th><td>no ledger</td>' in page
    assert "has a larger ε at a smaller δ: both are points of one curve" in page


def test_guarantee_files_contain_the_joint_guarantee(folder: Path, command: Command) -> None:
    page_of(folder, command)
    for name in ("wards.csv", "paid.json"):
        values = json.loads((folder / f"{name}.guarantee.json").read_text(encoding="utf-8"))
        together = dg.Guarantee.from_dict(values["together"])
        assert (together.delta, together.private) == (1e-6, True)
        assert 0.99 < together.epsilon() <= 1.0
        own = dg.Guarantee.read_for_output(folder / name)
        assert own == dg.Guarantee.from_json(json.dumps(values))
        assert own.delta < together.delta


def test_page_of_a_run_states_what_was_dropped_and_clipped(folder: Path, command: Command) -> None:
    page, printed = page_of(folder, command)
    assert page.count(">Invalid values<") == 2
    assert "mean of paid (records clipped), values are clamped to [0, 3]" in page
    for text in (page, printed):
        assert re.search("clipping may matter( in all groups|, especially in 1 of 2 groups)", text)
    assert "paid: share of clipped users: not estimated" in printed


def test_ledger_shows_epsilon_with_its_delta(folder: Path, command: Command) -> None:
    place = folder / "visits.ledger"
    dg.Ledger.create(place, name="v", promises=[dg.LastingPromise.of(dg.User(), 2.0, 2e-6)])
    page_of(folder, command, "--ledger", place)
    shown = command("ledger", "show", place).stdout
    for guarantee in dg.Ledger(place).entries[-1].guarantees:
        assert re.search(rf"{guarantee.epsilon():.2f}\d* at δ", shown), shown
