"""Releases of a file equal the single functions' releases, and are always charged as one."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests import killed
from tests.refusals import no_room, refuses
from tests.releases import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain import learn
from dpgrain._files import guarantee_path
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.publishing import Price
from dpgrain.releases.run import _together
from dpgrain.releases.table_queries import mean_of_columns

SPEND = "epsilon = 0.5\ndelta = 1e-7"
PROMISE: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-7, "random_state": 5}
USER: dict[str, Any] = {**PROMISE, "unit": dg.User()}
BOUNDS = (0, 200)


def _fitted(table: dg.UserTable) -> learn.LinearModel:
    model = learn.LogisticRegression(classes=[0, 1], rounds=5, n_users=600, **USER)
    encoding = FeatureEncoding(
        (NumberColumn("seconds", (0.0, 200.0)), NumberColumn("age", (0.0, 100.0)))
    )
    return dg.publish(model.query(ColumnRows(table, encoding, "bought"), None))


# The single functions, inside a budget, because the noise distribution depends on it.
SINGLE: dict[str, Any] = {
    "histogram": lambda table: dg.histogram(table, "page", **USER),
    "top": lambda table: dg.top(table, "page", k=3, **USER),
    "count": lambda table: dg.count(table, by="topic", domain=["t0", "t1", "t2"], **USER),
    "sum": lambda table: dg.sum(table, "seconds", bounds=BOUNDS, **USER),
    "mean": lambda table: dg.mean(table, "seconds", bounds=BOUNDS, **USER),
    "variance": lambda table: dg.variance(table, "seconds", bounds=BOUNDS, **USER),
    "quantiles": lambda table: dg.quantiles(table, "seconds", [0.5], bounds=BOUNDS, **USER),
    "distribution": lambda table: dg.distribution(table, "seconds", [10, 50], **USER),
    "marginals": lambda table: dg.marginals(
        table,
        ["topic", "page"],
        workload=[["topic", "page"], ["topic"]],
        domain={"topic": ["t0", "t1", "t2"], "page": ["p0", "p1"]},
        **USER,
    ),
    "elements_per_user": lambda table: dg.elements_per_user(table, by="topic", **USER),
    "mean_of_users": lambda table: mean_of_columns(
        table, ["seconds", "age"], bound=300.0, n_users=600, **PROMISE
    ),
    "fit": _fitted,
}


def _numbers(release: Any) -> Any:
    for name in ("estimate", "value", "coef_"):
        if hasattr(release, name):
            return getattr(release, name)
    raise AssertionError(release)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dg.Releases:
    path = cases.written(tmp_path_factory.mktemp("run"), cases.STATED + cases.releases(SPEND))
    return dg.releases(path, cases.table(), random_state=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_release_equals_the_single_function(name: str, made: dg.Releases) -> None:
    with dg.budget(10.0, 1e-5):
        alone = SINGLE[name](cases.table())
    assert np.array_equal(_numbers(made[name]), _numbers(alone))
    assert list(made) == list(SINGLE)
    assert not made.guarantee.private


@pytest.mark.parametrize("name", cases.KINDS)
def test_a_release_keeps_its_query(name: str, made: dg.Releases) -> None:
    release = made[name]
    kept = json.loads(json.dumps(getattr(release, "query_", None) or release.query))
    assert "random_state" not in kept["parameters"]
    kept["parameters"]["random_state"] = PROMISE["random_state"]
    with dg.budget(10.0, 1e-5):
        again = dg.publish(dg.Query.from_dict(kept, inputs={"table": cases.table()}))
    np.testing.assert_array_equal(_numbers(again), _numbers(release))


@pytest.mark.slow(full=True)
@pytest.mark.usefixtures("spark")
def test_spark_releases_equal_duckdb(tmp_path: Path) -> None:
    cases.parquet(tmp_path)
    # A cluster fits exactly and with all blocks, for any request.
    fit = 'rounds = 5\nexact = true\nsampling = "full"'
    listed = cases.STATED + cases.releases(SPEND).replace("rounds = 5", fit)
    made = []
    for engine in ("spark", "duckdb"):
        path = cases.written(tmp_path, f'{cases.TABLE}engine = "{engine}"\n{listed}')
        made.append(dg.releases(path, random_state=5))
    there, here = made
    assert there.plan.file.tables[""].engine == "spark"
    for name in SINGLE:
        assert np.array_equal(_numbers(there[name]), _numbers(here[name])), name
    assert there.promise == here.promise


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_plan_reads_no_rows_and_failures_stay_charged(tmp_path: Path) -> None:
    cases.without_its_rows(cases.parquet(tmp_path))
    text = cases.TABLE + 'engine = "spark"\n' + cases.STATED + cases.releases(SPEND, ["count"])
    path = cases.written(tmp_path, text)
    with dg.budget(2.0, 1e-5) as whole:
        plan = dg.plan_releases(path)
        assert whole.spent == Price()
        with pytest.raises(dg.DataError, match="cannot be read completely by Spark"):
            plan.run()
        assert whole.spent != Price()


@pytest.mark.slow
def test_outputs_are_written_with_their_guarantees(tmp_path: Path) -> None:
    endings = {"histogram": "csv", "count": "json", "mean": "parquet", "fit": "json"}
    endings |= {"mean_of_users": "csv"}
    text = cases.BUDGET + "\n".join(
        cases.releases(f'share = 0.2\noutput = "{name}.{ending}"', [name])
        for name, ending in endings.items()
    )
    made = dg.releases(cases.written(tmp_path, text), cases.table())
    assert made.guarantee.private
    for name, ending in endings.items():
        path = tmp_path / f"{name}.{ending}"
        told = guarantee_path(path).read_text(encoding="utf-8")
        own = made[name].guarantee_ if name == "fit" else made[name].guarantee
        assert dg.Guarantee.from_json(told) == dg.Guarantee.read_for_output(path) == own
    rows = pq.read_table(tmp_path / "mean.parquet")
    assert rows.column("estimate").to_pylist() == made["mean"].estimate.tolist()
    assert json.loads((tmp_path / "count.json").read_text())[0]["topic"] == "t0"
    assert learn.load(tmp_path / "fit.json").guarantee_ == made["fit"].guarantee_
    # Together they equal the plan.
    assert made.guarantee == made.plan.guarantee
    assert (
        "fixed in advance: 600 enrolled users; the facts in the guarantee of each release."
        in str(made.promise)
    )


def test_budget_charges_all_together_before_any(tmp_path: Path) -> None:
    path = cases.written(tmp_path, cases.STATED + cases.releases(SPEND, ["count", "mean"]))
    with dg.budget(2.0, 1e-5) as whole:
        dg.releases(path, cases.table())
        spent = whole.spent
    with dg.budget(2.0, 1e-5) as single:
        for name in ("count", "mean"):
            SINGLE[name](cases.table())
    assert spent.mu == pytest.approx(single.spent.mu)
    with dg.budget(0.6, 1e-6) as small:
        with no_room():
            dg.releases(path, cases.counted())
        assert cases.Counted.opened == 0
        assert small.spent == Price()


def test_a_file_is_a_plan_of_a_budget(tmp_path: Path) -> None:
    path = cases.written(tmp_path, cases.STATED + cases.releases(SPEND, ["count", "mean"]))
    with dg.budget(2.0, 1e-5, plan=[dg.plan_releases(path, cases.unread()).guarantee]) as whole:
        dg.releases(path, cases.table())
        assert whole.spent == Price()
        dg.releases(path, cases.table())
        assert whole.spent.mu > 0
    with refuses("plan", "functions"):
        dg.budget(2.0, 1e-5, plan=[lambda: dg.releases(path, cases.unread())])


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_failed_run_was_charged_for_all(fails_at: int, tmp_path: Path) -> None:
    names = ["count", "mean", "mean_of_users"]
    text = cases.STATED + "\n".join(
        cases.releases(f'{SPEND}\noutput = "{name}.csv"', [name]) for name in names
    )
    path = cases.written(tmp_path, text)
    with dg.budget(2.0, 1e-5) as whole:
        with pytest.raises(dg.DataError, match="on fire"):
            dg.releases(path, cases.counted(fails_at))
        failed = whole.spent
    with dg.budget(2.0, 1e-5) as whole:
        dg.releases(path, cases.table(), again=True)
        assert failed == whole.spent
    for name in names:
        (tmp_path / f"{name}.csv").unlink()


def test_releases_before_a_failure_remain(tmp_path: Path) -> None:
    text = cases.STATED + "\n".join(
        cases.releases(f'{SPEND}\noutput = "{name}.csv"', [name]) for name in ("count", "mean")
    )
    path = cases.written(tmp_path, text)
    with pytest.raises(dg.DataError, match="on fire"):
        dg.releases(path, cases.counted(2))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "count.csv",
        "count.csv.guarantee.json",
        "releases.toml",
    ]
    before = (tmp_path / "count.csv").read_text()
    # Nothing is published a second time without a request.
    with pytest.raises(
        dg.RefusedError,
        match=r"exists already, so an earlier run was probably charged .*again=True \(--again\)",
    ) as told:
        dg.releases(path, cases.counted())
    assert cases.Counted.opened == 0
    mean = tmp_path / "mean.csv"
    missing = f"{str(mean)!r}, {str(guarantee_path(mean))!r}"
    assert str(told.value).endswith(f" Its missing outputs: {missing}.")
    assert (tmp_path / "count.csv").read_text() == before
    dg.releases(path, cases.table(), again=True)
    assert (tmp_path / "count.csv").read_text() != before
    assert mean.exists()
    with pytest.raises(dg.RefusedError, match=r"or choose other outputs\.$"):
        dg.releases(path, cases.counted())


TWO_OUTPUTS = cases.STATED + "\n".join(
    cases.releases(f'{SPEND}\noutput = "{name}.csv"', [name]) for name in ("count", "mean")
)


def _kill_at_the_second_release(path: Path, *, again: bool) -> None:
    """Run a file in a process that is killed when its second release opens the table."""
    code = f"""
        import os, signal
        import dpgrain as dg
        from tests.releases import cases

        class Killed(cases.Counted):
            def __enter__(self):
                if cases.Counted.opened == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__enter__()

        dg.releases({str(path)!r}, cases.table(engine=Killed), again={again})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_run_leaves_complete_files_and_is_not_repeated(tmp_path: Path) -> None:
    path = cases.written(tmp_path, TWO_OUTPUTS)
    _kill_at_the_second_release(path, again=False)
    assert len((tmp_path / "count.csv").read_text().splitlines()) == 4
    assert not (tmp_path / "mean.csv").exists()
    with pytest.raises(dg.ParameterError, match="exists already"):
        dg.releases(path, cases.table())


@pytest.mark.slow
def test_repeated_run_replaces_outputs_together(tmp_path: Path) -> None:
    path = cases.written(tmp_path, TWO_OUTPUTS)
    dg.releases(path, cases.table())
    outputs = [*tmp_path.glob("*.csv"), *tmp_path.glob("*.guarantee.json")]
    before = {output: output.read_bytes() for output in outputs}
    assert len(before) == 4
    _kill_at_the_second_release(path, again=True)
    assert {output: output.read_bytes() for output in outputs} == before
    # An error after the charge loses no finished replacement.
    with pytest.raises(dg.DataError, match="on fire"):
        dg.releases(path, cases.counted(fails_at=2), again=True)
    count, mean = tmp_path / "count.csv", tmp_path / "mean.csv"
    assert count.read_bytes() != before[count]
    assert mean.read_bytes() == before[mean]


@pytest.mark.slow
def test_killed_replacement_leaves_no_foreign_guarantee(
    tmp_path: Path,
) -> None:
    """Each table and model has its own guarantee next to it, or none, wherever the run ends."""
    endings = {"count": "csv", "fit": "json"}
    rows, kept = cases.table(engine=InMemory), tmp_path / "kept"
    kept.mkdir()

    def asked(epsilon: float) -> str:
        spend = f"epsilon = {epsilon}\ndelta = 1e-6"
        return cases.STATED + "\n".join(
            cases.releases(f'{spend}\noutput = "{name}.{ending}"', [name])
            for name, ending in endings.items()
        )

    dg.releases(cases.written(kept, asked(0.4)), rows)
    cases.written(kept, asked(3.0))
    states = set()
    for number in itertools.count():
        folder = shutil.copytree(kept, tmp_path / str(number))
        path = folder / "releases.toml"
        ended = not killed.at(number, partial(dg.releases, path, rows, again=True))
        for name, ending in endings.items():
            output = folder / f"{name}.{ending}"
            beside = guarantee_path(output).exists()
            state = "none"
            if output.exists():
                state = "new" if output.read_bytes() != (kept / output.name).read_bytes() else "old"
            epsilon = "no"
            if beside and output.exists():
                epsilon = str(round(dg.Guarantee.read_for_output(output).epsilon(), 1))
            states.add((state, epsilon))
        if ended:
            break
    assert states == {("old", "0.4"), ("old", "no"), ("none", "no"), ("new", "3.0")}


def test_output_next_to_foreign_guarantee_is_rejected_when_read(
    tmp_path: Path,
) -> None:
    text = cases.STATED + cases.releases(f'{SPEND}\noutput = "fit.json"', ["fit"])
    path = cases.written(tmp_path, text)
    made = dg.releases(path, cases.table(), folder=tmp_path / "one")["fit"]
    dg.releases(path, cases.table(), folder=tmp_path / "two")
    one, two = tmp_path / "one" / "fit.json", tmp_path / "two" / "fit.json"
    shutil.copy(one, two)
    for read in (dg.Guarantee.read_for_output, learn.load):
        with pytest.raises(dg.DataError, match="guarantee file for other numbers"):
            read(two)
        read(one)
    # A replaced file loses its guarantee.
    made.save(two)
    assert not guarantee_path(two).exists()
    learn.load(two)
    with pytest.raises(
        dg.DataError, match=r"no guarantee next to it: .*\.guarantee\.json. is missing"
    ):
        dg.Guarantee.read_for_output(two)


def test_releases_are_a_mapping(made: dg.Releases) -> None:
    assert len(made) == len(SINGLE)
    assert made["mean"].value == made["mean"].estimate[0]
    assert repr(made).startswith("Releases(histogram, top, ")
    with pytest.raises(KeyError):
        made["nothing"]


def test_releases_are_private_together_if_each_is() -> None:
    part = dg.count.query(cases.table(), unit=dg.User(), epsilon=1.0, delta=1e-7).plan.guarantee

    @dataclass
    class Made:
        guarantee: dg.Guarantee

    for private in itertools.product((True, False), repeat=2):
        made = {str(at): Made(replace(part, private=each)) for at, each in enumerate(private)}
        plan: Any = None
        assert _together(plan, part, made).guarantee.private == all(private)
