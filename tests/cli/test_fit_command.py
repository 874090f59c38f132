"""`dpgrain fit` and `dpgrain predict`, like a person's; the report of a fit."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

import dpgrain as dg
from dpgrain import learn
from dpgrain.learn import load
from dpgrain.learn.features import CategoryColumn, FeatureEncoding, NumberColumn, load_rows
from dpgrain.publishing.charge import Curator
from dpgrain.report import report as write_report

SIZE = 3000


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    minutes = generator.uniform(0, 60, SIZE)
    table = pa.table(
        {
            "person": generator.integers(0, 400, SIZE),
            "week": pa.array([f"w{i}" for i in generator.integers(0, 4, SIZE)]),
            "minutes": minutes,
            "pages": generator.integers(0, 20, SIZE).astype(np.int16),
            "device": pa.array(generator.choice(["phone", "desk", "other"], SIZE)),
            "new": generator.random(SIZE) < 0.5,
            "bought": (minutes + generator.normal(0, 10, SIZE) > 30).astype(np.int8),
            "paid": minutes / 10 + generator.normal(0, 1, SIZE),
        }
    )
    folder = tmp_path_factory.mktemp("learn")
    pq.write_table(table, folder / "visits.parquet")
    pyarrow.csv.write_csv(table, folder / "visits.csv")
    return folder / "visits.parquet"


def _fit(table: Path, model: Path, kind: str = "logistic", **options: str) -> list[str | Path]:
    base = {
        "target": "bought" if kind in ("logistic", "svm") else "paid",
        "features": "minutes,pages,new",
        "range": "minutes=0:60",
        "categories": "device=phone|desk",
        "user": "person",
        "unit": "user",
        "epsilon": "2",
        "delta": "1e-6",
        "rounds": "20",
        "feature-bound": "20",
        "output": str(model),
    }
    words: list[str | Path] = ["fit", kind, table]
    for name, value in (base | {key.replace("_", "-"): v for key, v in options.items()}).items():
        words += [f"--{name}", value]
    return words


@pytest.mark.slow
def test_fit_report_and_predict(visits: Path, tmp_path: Path, command: Command) -> None:
    model, page, found = tmp_path / "m.json", tmp_path / "fit.html", tmp_path / "p.csv"
    done = command(
        *_fit(
            visits,
            model,
            unit="element",
            element="week",
            intervals="0.2",
            report=str(page),
            epsilon="20",
        )
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "ε = 19.99" in done.stdout or "ε = 20 " in done.stdout
    assert "per element ('week'; users 'person'; zero_out" in done.stdout
    guarantee = str(load(model).guarantee_)
    assert "the range of 'minutes', 0 to 60, scaled to [0, 1]" in guarantee
    assert "the levels of 'device': phone, desk" in guarantee
    # Rows are divided by 20, so that nothing is known of the slopes of all but one feature.
    assert "Warning: there are no intervals: the curvature" in done.stdout
    assert "95% low" not in done.stdout
    for word in (
        "per",
        "60, from 0 to 60",
        "from no to yes",
        "device=phone",
        "intercept",
        f"Written: {model}",
        f"Written: {page}",
    ):
        assert word in done.stdout
    written = page.read_text(encoding="utf-8")
    assert "<summary>Training</summary>" in written
    # An intercept is per nothing.
    assert "&#39;&#39;" not in written

    done = command("predict", model, visits, "--keep", "person", "--output", found)
    assert done.returncode == 0, done.stderr
    assert f"{SIZE:,} rows predicted" in done.stdout
    rows = pd.read_csv(found)
    assert list(rows.columns) == ["person", "prediction", "probability 0", "probability 1"]
    truth = pq.read_table(visits).to_pandas()
    assert (rows.person == truth.person).all()
    # Noise moves the intercept, and with it where predictions change; it barely moves their order.
    assert rows["probability 1"].corr(truth.minutes, method="spearman") > 0.3
    assert np.allclose(rows["probability 0"] + rows["probability 1"], 1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("linear", {"clip": "auto"}),
        ("huber", {"threshold": "0.5", "relation": "replace"}),
        ("quantile", {"quantile": "0.8", "n_users": "500", "seed": "1"}),
        ("svm", {"classes": "0,1", "unit": "user", "element": "week", "max_elements": "2"}),
        ("poisson", {"unit": "record", "l2": "0.1", "sampling_rate": "0.5"}),
        ("linear", {"unit": "user", "trust": "shuffle", "n_users": "500"}),
    ],
)
def test_every_kind(
    visits: Path, tmp_path: Path, kind: str, options: dict[str, str], command: Command
) -> None:
    model, out = tmp_path / "m.json", tmp_path / "p.parquet"
    done = command(*_fit(visits, model, kind, **options))
    assert done.returncode == 0, done.stderr
    assert ("NOT PRIVATE" in done.stdout) == ("seed" in options)
    made = load(model)
    assert made.n_features_in_ == 5
    assert made.guarantee_.user == "person"
    assert ("500 enrolled users" in str(made.guarantee_)) == ("n_users" in options)
    done = command("predict", model, visits, "--output", out)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(out).column_names == ["prediction"]


def test_csv_and_parquet_tell_the_same(visits: Path, tmp_path: Path, command: Command) -> None:
    models = []
    for ending in (".parquet", ".csv"):
        out = tmp_path / f"m{ending}.json"
        # Columns of CSV are text, where yes and no are not numbers.
        types = ["--type", "minutes,pages,paid=double"] if ending == ".csv" else []
        done = command(*_fit(visits.with_suffix(ending), out, "linear", seed="1",
                             features="minutes,pages"), *types)  # fmt: skip
        assert done.returncode == 0, done.stderr
        models.append(load(out))
    assert np.allclose(models[0].coef_, models[1].coef_)


def test_bad_values_follow_the_rule_and_raise_nothing(tmp_path: Path, command: Command) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(
        'person,x,kind,y\n1,2,a,yes\n1,lots,,no\n2,,b,\n,1,a,yes\n3,inf,"c,d",maybe\n4,1e400,a,no\n'
    )
    done = command("fit", "logistic", rows, "--target", "y", "--classes", "no,yes", "--features", "x",
                   "--range", "x=-1:3", "--categories", "kind=a|c,d", "--user", "person",
                   "--unit", "user", "--epsilon", "1", "--delta", "1e-6", "--rounds", "3",
                   "--type", "x=double", "--output", tmp_path / "m.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no, yes, as stated" in str(load(tmp_path / "m.json").guarantee_)
    encoding = FeatureEncoding(
        (NumberColumn("x", (-1.0, 3.0)), CategoryColumn("kind", ("a", "c,d")))
    )
    found = load_rows(
        dg.read(rows, user="person", types={"x": "DOUBLE"}),
        encoding,
        Curator(),
        target="y",
        labels=True,
    )
    # A row without a target stays, for its user is on the roster.
    assert found.X["x"].tolist() == [0.75, 0.0, 0.0, 0.5, 0.0, 0.0]
    assert found.X["kind=a"].tolist() == [1, 0, 0, 1, 0, 1]
    assert found.X["kind=c,d"].tolist() == [0, 0, 0, 0, 1, 0]
    assert found.users is not None
    assert np.isnan(found.users).tolist() == [False, False, False, True, False, False]
    assert found.y is not None
    assert pd.isna(found.y).tolist() == [False, False, True, False, False, False]
    assert found.y[[0, 1, 3, 4, 5]].tolist() == ["yes", "no", "yes", "maybe", "no"]


def test_user_index_is_independent_of_other_users(tmp_path: Path, command: Command) -> None:
    # Batches of a stream are distinguished by indices: removing one user must not move another.
    rows = pd.DataFrame({"person": [0, 7, 3, 7, 12], "x": [0.1, 0.2, 0.3, 0.4, 0.5]})
    encoding = FeatureEncoding((NumberColumn("x"),))
    found = load_rows(dg.read(rows, user="person"), encoding, Curator(), named=True).users
    fewer = load_rows(dg.read(rows[1:], user="person"), encoding, Curator(), named=True).users
    assert found is not None
    assert fewer is not None
    assert found.tolist() == [0, 7, 3, 7, 12]
    assert fewer.tolist() == [7, 3, 7, 12]
    # The command uses them, by their indices in the stated roster.
    table, out = tmp_path / "t.csv", tmp_path / "m.json"
    rows.to_csv(table, index=False)
    words: list[str | Path] = ["fit", "linear", table, "--target", "x", "--features", "x2"]
    rows.assign(x2=1.0).to_csv(table, index=False)
    words += ["--user", "person", "--unit", "user", "--trust", "pan", "--epsilon", "1"]
    words += ["--delta", "1e-6", "--output", out, "--type", "x,x2=double"]
    done = command(*words)
    assert done.returncode == 2
    assert "--n-users must be passed with --trust pan" in done.stderr
    assert command(*words, "--n-users", "13").returncode == 0


WRONG = [
    ({"target": "nothing"}, 2, "target 'nothing' is not a column"),
    ({"target": "paid"}, 2, "has type DOUBLE, which cannot be used as a key"),
    ({"target": "pages"}, 2, "--target 'pages' must not also be a feature"),
    ({"features": "minutes,nothing"}, 2, "feature 'nothing' is not a column"),
    ({"features": "minutes,week"}, 2, "feature 'week' must be numeric, not text"),
    ({"features": "minutes,minutes"}, 2, "'minutes' is listed twice"),
    ({"categories": "device"}, 2, "--categories must be 'COLUMN=A|B|C'"),
    ({"categories": "device=a||b"}, 2, "without empty ones"),
    ({"range": "minutes"}, 2, "--range must be COLUMN=LOW:HIGH"),
    ({"range": "minutes=1:x"}, 2, "--range must be"),
    ({"range": "minutes=60:0"}, 2, "in increasing order"),
    ({"range": "paid=0:60"}, 2, "--range 'paid' must be a column of --features"),
    ({"user": "nobody"}, 2, "user 'nobody' is not a column"),
    ({"unit": "element"}, 2, "Pass --element"),
    ({"element": "week"}, 2, "--element is for"),
    ({"unit": "record", "max_elements": "2"}, 2, "--max-elements requires --unit user."),
    ({"epsilon": "0"}, 2, "epsilon must be positive and finite"),
    ({"delta": "0"}, 2, "delta"),
    ({"clip": "much"}, 2, "--clip must be a number or 'auto'"),
    ({"clip": "-1"}, 2, "clip must be positive and finite"),
    ({"sampling_rate": "2"}, 2, "--sampling-rate must be in [0, 1]"),
    ({"intervals": "1"}, 2, "intervals must be a share"),
    ({"output": "m.pkl"}, 2, "--output must end in .json, not 'm.pkl'"),
    ({"quantile": "0.5"}, 2, "--quantile is for quantile, not for logistic."),
    ({"classes": "a,b"}, 2, "--classes must be integers"),
    ({"classes": "0"}, 2, "classes must be at least two"),
    ({"seed": "-1"}, 2, "--seed must be at least 0"),
    ({"output": "/no/such/folder/m.json"}, 2, "cannot be written"),
    ({"report": "/no/such/folder/m.html"}, 2, "cannot be written"),
]


@pytest.mark.parametrize(("options", "code", "sentence"), WRONG, ids=lambda v: str(v)[:40])
def test_errors_are_one_sentence(
    visits: Path,
    tmp_path: Path,
    options: dict[str, str],
    code: int,
    sentence: str,
    command: Command,
) -> None:
    done = command(*_fit(visits, tmp_path / "m.json", **options))
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_predict_rejects_unusable_inputs(visits: Path, tmp_path: Path, command: Command) -> None:
    model = tmp_path / "m.json"
    assert command(*_fit(visits, model, "linear")).returncode == 0
    narrow = tmp_path / "narrow.parquet"
    pq.write_table(pa.table({"minutes": [1.0]}), narrow)
    wrong: list[tuple[list[str | Path], int, str]] = [
        (
            [model, visits, "--output", tmp_path / "p.xls"],
            2,
            "--output must end in .csv or .parquet",
        ),
        ([model, visits], 2, "Error: Pass --output, the file of the predictions, such as"),
        ([visits, visits, "--output", tmp_path / "p.csv"], 2, "is not a model of dpgrain"),
        ([tmp_path / "no.json", visits, "--output", tmp_path / "p.csv"], 1, "cannot be read"),
        ([model, narrow, "--output", tmp_path / "p.csv"], 2, "feature 'pages' is not a column"),
        ([model, visits, "--keep", "nothing", "--output", tmp_path / "p.csv"], 2, "keep 'nothing'"),
    ]
    for words, code, sentence in wrong:
        done = command("predict", *words)
        assert done.returncode == code, done.stderr
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "p.csv").exists()


NASTY = ["<script>alert(1)</script>", "$\\alpha_{$ {{ 7 * 7 }}", "x" * 3000, "漢字" * 30]


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [0.0, 0.3])
def test_the_report_of_a_fit_is_whole_and_safe(tmp_path: Path, intervals: float) -> None:
    generator = np.random.default_rng(1)
    rows = pd.DataFrame(generator.normal(size=(300, 4)), columns=NASTY)
    labels = np.array(["</style><img src=x>", "b", "c"])[generator.integers(0, 3, 300)]
    for model, y in (
        (
            learn.LogisticRegression(
                rounds=3, intervals=intervals, classes=list(np.unique(labels))
            ),
            labels,
        ),
        (learn.LogisticRegression(rounds=3, intervals=intervals), labels == "b"),
        (learn.PoissonRegressor(rounds=3, intervals=intervals, unit=dg.Record()), rows["x" * 3000]),
        (learn.QuantileRegressor(rounds=3, random_state=0, clip="auto"), rows["x" * 3000]),
    ):
        model.fit(rows, y)
        page = write_report(model, tmp_path / "fit.html").read_text(encoding="utf-8")
        assert page.count("<script") == 1, "the page's own, and none of the table's"
        assert "alert(1)</script" not in page
        assert "<img" not in page
        assert "49" not in re.findall(r"\{\{.{9}", page)
        assert "x" * 600 not in page
        assert not re.search(r'(?:src|href)="(?!#)', page)
        for part in ("Coefficients</h2>", "Training</summary>", "Settings</summary>"):
            assert f">{part}" in page
        assert "<h2>Guarantee" in page
        told = model.evidence_ is not None and model.confidence_intervals().resolved
        assert ("95% low" in page) == told
        assert ("NOT PRIVATE" in page) == (model.random_state is not None)
        assert len(page) < 600_000


@pytest.mark.slow
def test_the_report_of_a_wide_model_is_short(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(60, 500))
    model = learn.LinearRegression(rounds=3).fit(rows, rows[:, 0])
    page = write_report(model, tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "The first 200 of 501 coefficients" in page
    assert "The 30 coefficients of largest size" in page
    assert len(page) < 500_000
    guarantee = json.loads(
        page[page.index("<pre>{") + 5 : page.index("}</pre>") + 1].replace("&#34;", '"')
        .replace("&#39;", "'")
    )  # fmt: skip
    assert guarantee["level"] == "record"


def test_curator_file_counts_ignored_targets(tmp_path: Path, command: Command) -> None:
    table = pa.table(
        {
            "person": range(6),
            "minutes": [1.0] * 6,
            "said": ["yes", "no", "no", "maybe", None, "yes"],
        }
    )
    pq.write_table(table, tmp_path / "said.parquet")
    words: list[str | Path] = ["fit", "logistic", tmp_path / "said.parquet", "--target", "said"]
    words += ["--features", "minutes", "--user", "person", "--check"]
    for classes, lost in (("0,1", 5), ("yes,no", 1)):
        told = command(*words, "--classes", classes).stdout
        assert re.search(rf" {lost}  rows with said outside the domain \(dropped\)", told)
        assert re.search(r" 1  rows without an item \(dropped\)", told)
    assert "without an item" in command(*words).stdout
    words[1], words[4] = "linear", "minutes"
    words[words.index("--features") + 1] = "person"
    assert "non-numeric cells of 'minutes'" in command(*words).stdout


def test_fit_warns_of_ignored_targets(tmp_path: Path, command: Command) -> None:
    rng = np.random.default_rng(0)
    minutes = rng.uniform(size=4000)
    said = np.where(minutes > 0.5, "yes", "no")
    table = pa.table({"person": range(4000), "minutes": minutes, "said": said})
    pq.write_table(table, tmp_path / "said.parquet")
    words: list[str | Path] = ["fit", "logistic", tmp_path / "said.parquet", "--target", "said"]
    words += ["--features", "minutes", "--user", "person", "--unit", "user", "--n-users", "4000"]
    words += [
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--output",
        tmp_path / "model.json",
        "--seed",
        "0",
    ]
    told = " ".join(command(*words, "--classes", "0,1").stdout.split())
    assert "Warning: only about" in told
    assert "of 4,000 users have rows that affect the fit" in told
    told = " ".join(command(*words, "--classes", "no,yes").stdout.split())
    assert "Warning" not in told
    assert "describe the average person, not the average record" in told


def _interrupted(words: list[str | Path]) -> tuple[int, str]:
    """Run a command on a terminal, interrupt it once it shows a round, and return all it prints."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dpgrain", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    os.close(theirs)
    printed = b""
    while process.poll() is None and b"Round" not in printed:
        printed += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):
        # Reading from a terminal without a writer is an error.
        while more := os.read(ours, 4096):
            printed += more
    os.close(ours)
    told, _ = process.communicate(timeout=60)
    assert not told
    return process.returncode, printed.decode()


@pytest.mark.slow
def test_an_interrupted_fit_publishes_nothing_and_says_so(visits: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    code, printed = _interrupted(_fit(visits, model, rounds="2000000"))
    assert code == 130
    assert not model.exists()
    bar, said = printed.split("Interrupted. ")
    assert said.strip() == (
        "Nothing of the fit is published; a budget or ledger that was charged for it stays charged."
    )
    # The line of the bar is erased before, and the cursor is shown again.
    assert bar.rindex("\x1b[2K") > bar.rindex("Round")
    assert "\x1b[?25h" in bar
    assert "Traceback" not in printed


def test_a_fit_of_people(visits: Path, tmp_path: Path, command: Command) -> None:
    """Features and targets are numbers of whole people, and no smaller unit is promised."""
    numbers = [
        "--per-user",
        "n=count",
        "--per-user",
        "spent=paid:sum",
        "--per-user",
        "best=pages:max",
    ]
    model, found = tmp_path / "m.json", tmp_path / "p.csv"
    words = [
        "fit", "linear", visits, *numbers, "--target", "spent", "--features", "n,best", "--range",
        "n=0:20", "--user", "person", "--epsilon", "2", "--delta", "1e-6", "--output", model,
    ]  # fmt: skip
    done = command(*words, "--unit", "user", "--rounds", "10")
    assert done.returncode == 0, done.stderr
    told = "one row per person, with n (rows), spent (sum of paid), best (max of pages)"
    assert told in str(load(model).guarantee_)
    assert load(model).feature_names_in_.tolist() == ["n", "best"]
    again = command("predict", model, visits, "--user", "person", *numbers, "--output", found)
    assert again.returncode == 0, again.stderr
    people = len(set(pq.read_table(visits).column("person").to_pylist()))
    assert len(pd.read_csv(found)) == people
    done = command(*words, "--unit", "record")
    assert done.returncode == 2
    assert "unit must be User() if each row is derived" in done.stderr


def test_targets_and_elements_may_be_expressions(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    model = tmp_path / "m.json"
    words = _fit(visits, model, target="minutes > 30", unit="element", element="prefix(week, 2)")
    done = command(*words, "--classes", "false,true")
    assert done.returncode == 0, done.stderr
    promise = load(model).guarantee_
    assert promise.partition is not None
    assert "of 'week'" in str(promise.partition)
    assert load(model).coef_[0][0] > 0
    model.unlink()
    refused = command(*words, "--classes", "0,1")
    assert "must be false and true" in refused.stderr
    assert not model.exists()


def test_other_mistakes_come_before_missing_options(visits: Path, command: Command) -> None:
    words: list[str | Path] = [
        "fit",
        "logistic",
        visits,
        "--features",
        "minutes",
        "--user",
        "person",
    ]
    words += ["--unit", "user", "--target"]
    assert "target 'nothing' is not a column" in command(*words, "nothing").stderr
    missing = command(*words, "bought").stderr
    assert "Pass --output, --epsilon, --delta, such as --output model.json" in missing
    assert "Required: model file" in command("fit", "--help-all").stdout


def test_a_boolean_target_has_public_labels(visits: Path, tmp_path: Path, command: Command) -> None:
    model, output = tmp_path / "m.json", tmp_path / "p.csv"
    done = command(*_fit(visits, model, target="new", features="minutes"))
    assert done.returncode == 0, done.stderr
    assert json.loads(model.read_text())["classes"] == {"type": "bool", "labels": [False, True]}
    assert "selected" not in done.stdout
    assert command("predict", model, visits, "--output", output).returncode == 0
    header, first, *_ = output.read_text().splitlines()
    assert header == '"prediction","probability false","probability true"'
    assert first.split(",")[0] in ("false", "true")


def test_the_remedy_for_large_features_is_an_option(
    visits: Path, tmp_path: Path, command: Command
) -> None:
    words = ["--target", "bought", "--features", "minutes", "--user", "person", "--unit", "user"]
    words += ["--epsilon", "20", "--delta", "1e-6", "--output", str(tmp_path / "m.json")]
    done = command("fit", "logistic", visits, *words)
    assert "--range COLUMN=LOW:HIGH" in done.stdout
    assert "public number" not in done.stdout + done.stderr
