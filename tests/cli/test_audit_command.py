"""``dpgrain audit``: verdicts as exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dpgrain.cli.app import app
from dpgrain.publishing import draws

FILE = """
[table]
source = "visits.parquet"
user = "who"
[budget]
unit = "user"
[release.visits]
statistic = "count"
noise = "gaussian"
clip = 5.0
epsilon = 1.0
delta = 1e-6
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"who": [1, 2]}), tmp_path / "visits.parquet")
    path = tmp_path / "releases.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.slow
def test_an_audit_is_printed_and_drawn(file: Path) -> None:
    picture = file.with_name("audit.png")
    told = CliRunner().invoke(
        app, ["audit", str(file), "--units", "1", "--seconds", "4", "--plot", str(picture)]
    )
    assert told.exit_code == 0, told.output
    assert "visits: Lower bounds on ε of users at δ = 10⁻⁶" in told.output
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_a_refuted_claim_has_its_own_exit_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = draws.with_noise
    monkeypatch.setattr(
        draws,
        "with_noise",
        lambda part, sums, scale, source: draw(part, sums, np.asarray(scale) / 4, source),
    )
    told = CliRunner().invoke(app, ["audit", str(file), "--units", "1", "--seconds", "4", "--json"])
    assert told.exit_code == 4, told.output
    document = json.loads(told.output)
    assert document["verdict"] == document["releases"]["visits"]["verdict"] == "violated"


def test_unaudited_release_has_a_separate_exit_code(file: Path) -> None:
    # No page is "UP" in lower case.
    file.write_text(FILE + '\nby = "lower(page)"\ndomain = ["UP"]\n', encoding="utf-8")
    pq.write_table(pa.table({"who": [1], "page": ["a"]}), file.parent / "visits.parquet")
    told = CliRunner().invoke(app, ["audit", str(file), "--units", "1,2", "--seconds", "4"])
    assert told.exit_code == 6, told.output
    assert "not audited (visits)." in told.output
    assert told.output.startswith("Audit of releases.toml, mark ")
    for wrong in ("1;2", "1.5"):
        told = CliRunner().invoke(app, ["audit", str(file), "--units", wrong])
        assert "--units must be integers such as 1,2,4" in str(told.exception)
    told = CliRunner().invoke(app, ["audit", str(file.with_name("visits.parquet"))])
    assert "TOML in UTF-8, with a table [release.NAME]" in str(told.exception)


def test_mistakes_match_the_file(file: Path) -> None:
    file.write_text(FILE.replace("clip", "clop"), encoding="utf-8")
    assert CliRunner().invoke(app, ["audit", str(file)]).exit_code != 0
    assert CliRunner().invoke(app, ["audit", str(file), "--plot", "audit.txt"]).exit_code != 0
