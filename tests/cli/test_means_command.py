"""`dpgrain mean-of-users`, the per-user mean, as a person runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

import dpgrain as dg

USERS, EACH = 2000, 3
TRUTH = {"steps": 7.0, "sleep": 8.0, "pulse, at rest": 6.0}


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(USERS), EACH)
    table = pa.table(
        {"person": pa.array([f"p{i}" for i in person])}
        | {name: mean + generator.normal(0, 3, len(person)) for name, mean in TRUTH.items()}
        | {"city": pa.array(["x"] * len(person)), "on": person % 4 > 0}
    )
    folder = tmp_path_factory.mktemp("means")
    pq.write_table(table, folder / "days.parquet")
    pyarrow.csv.write_csv(table, folder / "days.csv")
    return folder / "days.parquet"


def words(table: Path, **options: str | None) -> list[str]:
    base: dict[str, str | None] = {
        "columns": "steps,sleep",
        "bound": "100",
        "user": "person",
        "epsilon": "1",
        "delta": "1e-6",
    }
    listed = ["mean-of-users", str(table)]
    for name, value in (base | {key.replace("_", "-"): v for key, v in options.items()}).items():
        listed += [f"--{name}", value] if value is not None else []
    return listed


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_the_mean_of_vectors(days: Path, tmp_path: Path, ending: str, command: Command) -> None:
    out = tmp_path / "mean.json"
    more = ["--columns", "pulse, at rest", "--output", str(out)]
    if ending == ".csv":
        more += ["--type", "steps,sleep=double", "--type", "pulse, at rest=double"]
    done = command(*words(days.with_suffix(ending), epsilon="2"), *more)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for part in (
        "3 coordinates; each record clipped to norm 100; method recentred",
        "The whole vector is at most",
        "(l2 norm) from the clipped mean of users with records, with 95% confidence; this covers "
        "noise, the clipping of distant users, and the number",
        "users are enough to estimate their centre in 3 dimensions",
        "δ = 10⁻⁶ per user (users 'person'; zero_out",
        f"Full guarantee: {out}",
        f"Written: {out}",
    ):
        assert part in done.stdout
    told = json.loads(out.read_text(encoding="utf-8"))
    assert told["columns"] == list(TRUTH)
    assert np.allclose(told["estimate"], list(TRUTH.values()), atol=0.5)
    assert told["std_error"] < 0.05
    promise = dg.Guarantee.from_dict(told["guarantee"])
    assert dg.Guarantee.read_for_output(out) == promise
    assert promise.private
    assert 1.99 < promise.epsilon() <= 2.0
    # As printed, with two digits of the noise.
    for name, value in zip(TRUTH, told["estimate"], strict=True):
        (row,) = re.findall(rf"{name} +([\d.]+) +([\d.]+)", done.stdout)
        assert float(row[0]) == pytest.approx(value, abs=0.06 * told["std_error"])
        assert float(row[1]) == pytest.approx(told["std_error"], rel=0.06)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_of_means(days: Path, tmp_path: Path, ending: str, command: Command) -> None:
    out = tmp_path / f"mean{ending}"
    options = {"columns": "sleep,on", "method": "clip", "top": "1", "output": str(out)}
    done = command(*words(days, **options))
    assert done.returncode == 0, done.stderr
    assert "all: --output FILE, or a larger --top" in done.stdout
    found = pd.read_csv(out) if ending == ".csv" else pd.read_parquet(out)
    covers = ["covers"] if ending == ".csv" else []
    assert list(found.columns) == ["column", "estimate", "std_error", *covers]
    assert found["column"].tolist() == ["sleep", "on"]
    assert np.allclose(found["estimate"], [8.0, 0.75], atol=10 * found["std_error"][0])


@pytest.mark.parametrize("method", ["clip", "recentred", "softcore", "winsorized"])
def test_methods_and_the_rest(days: Path, method: str, command: Command) -> None:
    options = {"method": method, "radius": "2", "relation": "replace", "n_users": "2100"}
    done = command(*words(days, epsilon="4", **options))
    assert done.returncode == 0, done.stderr
    assert f"Method: {method}, as requested." in done.stdout
    assert "2,100 enrolled users" in done.stdout
    assert "replacing all of one user's records" in done.stdout
    assert ("No mean: too few users" in done.stdout) == (method == "softcore")


WRONG = [
    ({"columns": None}, 2, "Pass --columns, the columns of the vectors"),
    ({"bound": None}, 2, "Pass --bound"),
    ({"user": None}, 2, "Pass --user, the user id"),
    ({"user": "nobody"}, 2, "user 'nobody' is not a column"),
    ({"columns": "steps,person"}, 2, "--columns 'person' is the column of --user"),
    ({"columns": "steps,steps"}, 2, "--columns 'steps' is passed twice"),
    ({"columns": "steps,nothing"}, 2, "--columns 'nothing' is not a column of the table"),
    ({"columns": "steps,city"}, 2, "--columns 'city' must be numeric, not text"),
    ({"epsilon": None}, 2, "Pass --epsilon"),
    ({"epsilon": "0"}, 2, "--epsilon must be positive and finite"),
    ({"delta": None}, 2, "Pass --delta"),
    ({"delta": "2"}, 2, "--delta must be in [0, 1)"),
    ({"bound": "-1"}, 2, "--bound must be positive and finite"),
    ({"radius": "200"}, 2, "--radius must be between a millionth of the bound, 100"),
    ({"n_users": "0"}, 2, "--n-users must be an integer"),
    ({"n_users": "3", "method": "softcore"}, 2, "--n-users = 3 is too small"),
    (
        {"n_users": "9", "method": "recentred"},
        2,
        "--n-users = 9 is too small for the method 'recentred'",
    ),
    ({"output": "mean.txt"}, 2, "--output must end in .json, .csv, .parquet"),
    ({"output": "/no/such/folder/m.json"}, 2, "cannot be written"),
]


@pytest.mark.parametrize(("options", "code", "sentence"), WRONG, ids=lambda v: str(v)[:50])
def test_errors_are_one_sentence(
    days: Path, options: dict[str, str | None], code: int, sentence: str, command: Command
) -> None:
    done = command(*words(days, **options))
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_options_of_other_commands_are_rejected(days: Path, command: Command) -> None:
    for option in ("--by", "--clip", "--unit", "--value"):
        done = command(*words(days), option, "city")
        assert done.returncode == 2
        assert f"No such option: {option}" in done.stderr
