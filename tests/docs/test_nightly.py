"""The code of docs/nightly.md works, except for the scheduler that starts it."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml
from tests.docs.pages import ROOT

import dpgrain as dg

NIGHTLY = ROOT / "examples" / "nightly"
PAGE = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
DAY = "2026-03-01"


# A process with loaded modules forks one child for each command, with the caller's arguments,
# folder, environment and open files. It ends when the socket closes.
SERVER = """
import importlib, os, pkgutil, socket, sys, traceback
import duckdb, jinja2, matplotlib.backends.backend_svg, matplotlib.figure, pyarrow.csv
import pyarrow.dataset, pyarrow.parquet, pydantic, rich.console, rich.markdown, scipy.stats
import dpgrain

for module in pkgutil.walk_packages(dpgrain.__path__, "dpgrain."):
    if not module.name.endswith("__main__") and "torch" not in module.name:
        importlib.import_module(module.name)
from dpgrain.cli import main

def command(words, folder, environment, files):
    for place, file in enumerate(files):
        os.dup2(file, place)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dpgrain", *words]
    code = 70
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

listens = socket.socket(socket.AF_UNIX)
listens.bind(sys.argv[1])
listens.listen()
print("ready", flush=True)
while True:
    asks, _ = listens.accept()
    text, files, _, _ = socket.recv_fds(asks, 1 << 20, 3)
    child = os.fork()
    if child == 0:
        command(*eval(text), files)
    for file in files:
        os.close(file)
    asks.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255]))
    asks.close()
"""
ASK = """#!{python} -ISE
import os, socket, sys
asks = socket.socket(socket.AF_UNIX)
asks.connect({place!r})
text = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
socket.send_fds(asks, [text], [0, 1, 2])
sys.exit(asks.recv(1)[0])
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = str(tmp_path_factory.mktemp("program") / "socket")
    words = [sys.executable, "-W", "ignore", "-c", SERVER, place]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield ASK.format(python=sys.executable, place=place)
        server.kill()


@pytest.fixture
def folder(program: str, tmp_path: Path) -> Path:
    """A folder with all that a night needs, and the ledger of the page."""
    for file in NIGHTLY.iterdir():
        shutil.copy(file, tmp_path / file.name)
    rng = np.random.default_rng(0)
    rows = pa.table({"person": rng.integers(0, 900, 9000),
                     "page": rng.choice(["/news", "/sport"], 9000),
                     "day": rng.choice([DAY, "2026-03-02"], 9000)})  # fmt: skip
    ds.write_dataset(rows, tmp_path / "visits", format="parquet", partitioning=["day"],
                     partitioning_flavor="hive")  # fmt: skip
    (tmp_path / "dpgrain").write_text(program)
    (tmp_path / "dpgrain").chmod(0o755)
    (made,) = re.findall(r"^dpgrain ledger init(?:.*\\\n)*.*$", PAGE, re.M)
    done = run(tmp_path, made)
    assert done.returncode == 0, done.stderr
    return tmp_path


def run(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env={**os.environ, "PATH": path, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def twice(folder: Path, command: str, output: Path, **environment: str) -> None:
    """The second run is rejected, and not charged; the published file is unchanged."""
    done = run(folder, command, **environment)
    assert done.returncode == 0, done.stderr
    published = output.read_bytes()
    lines = run(folder, "dpgrain ledger show visits.ledger --json").stdout
    done = run(folder, command, **environment)
    assert done.returncode == 3, done.stderr
    assert run(folder, "dpgrain ledger show visits.ledger --json").stdout == lines
    assert output.read_bytes() == published


@pytest.mark.slow
def test_the_script_of_cron_charges_a_night_once(folder: Path) -> None:
    twice(folder, f"./nightly.sh {DAY}", folder / DAY / "pages.csv")
    assert run(folder, "./nightly.sh 2026-03-02").returncode == 0


@pytest.mark.slow
def test_cron_line_ends_with_the_codes_of_the_page(folder: Path) -> None:
    cron = next(line for line in PAGE.splitlines() if line.startswith("15 3 * * * "))
    night = cron.removeprefix("15 3 * * * ").replace("/srv/visits", str(folder))
    # A test that runs past midnight shall not have two yesterdays.
    asked = folder / "date"
    asked.write_text(f'#!/bin/sh\n[ "$*" = "-d yesterday +%F" ] && echo {DAY}\n')
    asked.chmod(0o755)
    assert run(folder, night).returncode == 0
    log = folder / "nightly.log"
    # The same request is rejected again, with the missing part.
    (folder / DAY / "pages.csv").unlink()
    assert run(folder, night).returncode == 5
    assert f"Its missing outputs: '{DAY}/pages.csv'." in log.read_text()
    assert f"day {DAY}" in run(folder, "dpgrain ledger show visits.ledger").stdout
    # The folder of a day that is not there, and a file that is wrong.
    (folder / "visits" / f"day={DAY}").rename(folder / "late")
    assert run(folder, night).returncode == 1
    (folder / "late").rename(folder / "visits" / f"day={DAY}")
    (folder / "releases.toml").write_text("[table", encoding="utf-8")
    assert run(folder, night).returncode == 2


@pytest.mark.slow
def test_script_finds_the_program_and_secrets_without_the_environment(folder: Path) -> None:
    """Cron starts a script with a short PATH, and without the variables of a login."""
    home = folder / ".venv" / "bin"
    home.mkdir(parents=True)
    (folder / "dpgrain").rename(home / "program")
    asks = f'#!/bin/sh\n[ "$PGPASSWORD" = secret ] && exec {home / "program"} "$@"\n'
    (home / "dpgrain").write_text(asks)
    (home / "dpgrain").chmod(0o755)
    (folder / "visits.env").write_text("PGPASSWORD=secret\n")
    done = subprocess.run(
        ["sh", "-c", f"{folder / 'nightly.sh'} {DAY}"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / DAY / "pages.csv").exists()


@pytest.mark.slow
def test_bad_file_of_another_day_stops_only_runs_of_the_folder(folder: Path) -> None:
    (bad,) = (folder / "visits" / "day=2026-03-02").iterdir()
    bad.write_bytes(bad.read_bytes()[:99])
    done = run(folder, f"./nightly.sh {DAY}")
    assert done.returncode == 1
    assert f"The file 'visits/day=2026-03-02/{bad.name}' cannot be read" in done.stderr
    (sed,) = re.findall(r"`(sed .*?)`", PAGE)
    (source,) = re.findall(r"`(source = .*?)`", PAGE)
    text = (folder / "releases.toml").read_text()
    assert 'source = "visits"' in text
    text = text.replace('source = "visits"', source)
    (folder / "releases.template").write_text(text)
    words = '--where day="$day" --folder "$day" --ledger visits.ledger'
    for day, code in ((DAY, 0), ("2026-03-02", 1), ("2026-03-03", 2)):
        done = run(folder, f'day={day}; {sed} && dpgrain run "$day.toml" {words}')
        assert done.returncode == code, done.stderr
    shown = run(folder, "dpgrain ledger show visits.ledger").stdout
    assert "Last 1 of 1 line with releases" in shown


@pytest.mark.slow
def test_lost_day_is_published_only_after_a_renewal(folder: Path) -> None:
    assert run(folder, f"./nightly.sh {DAY}").returncode == 0
    (folder / DAY / "pages.csv").unlink()
    again, show = re.findall(r"^(dpgrain run releases.toml .*--again)$", PAGE, re.M), "pages.csv"
    (renew,) = re.findall(r"^(dpgrain ledger renew .*)$", PAGE, re.M)
    (command,) = (each.replace("2026-11-28", DAY) for each in again)
    done = run(folder, command)
    assert done.returncode == 7
    # The page states what is left of a day.
    assert "A Gaussian release with ε ≤ 0.34" in done.stderr
    assert not (folder / DAY / show).exists()
    assert run(folder, renew).returncode == 0
    done = run(folder, command)
    assert done.returncode == 0, done.stderr
    assert (folder / DAY / show).exists()


@pytest.mark.slow
def test_container_has_its_start_command(folder: Path) -> None:
    text = (NIGHTLY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (.*) \./$", text, re.M)[0].split()
    assert all((NIGHTLY / name).exists() for name in copied)
    words = ast.literal_eval(re.findall(r"^ENTRYPOINT (.*)$", text, re.M)[0])
    dry = ast.literal_eval(re.findall(r"^CMD (.*)$", text, re.M)[0])
    place = {"DPGRAIN_LEDGER": str(folder / "visits.ledger")}
    done = run(folder, shlex.join([*words, *dry]), **place)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("*.csv"))
    command = shlex.join([*words, "--where", f"day={DAY}", "--folder", DAY])
    twice(folder, command, folder / DAY / "pages.csv", **place)


class SkipError(Exception):
    """Stands for AirflowSkipException."""


class FailError(Exception):
    """Stands for AirflowFailException."""


def task_of_airflow(begin: str, ds: str, folder: Path) -> tuple[str, Callable[[], None]]:
    """The day of the task as rendered for a run at 3:15 on 2 March, and what the task does.

    Airflow is not here: ``ds`` and the beginning of the interval are as Airflow 2.10 and 3.3 set them.
    """
    made = dict[str, Any]()
    operators = "airflow.providers.standard.operators"
    names = ("airflow", "airflow.exceptions", "airflow.providers", "airflow.providers.standard")
    modules = {name: ModuleType(name) for name in (*names, operators, f"{operators}.python")}
    python: Any = modules[f"{operators}.python"]
    python.PythonOperator = lambda **options: made.update(options)
    airflow: Any = modules["airflow"]
    airflow.DAG = lambda *_, **__: nullcontext()
    exceptions: Any = modules["airflow.exceptions"]
    exceptions.AirflowSkipException, exceptions.AirflowFailException = SkipError, FailError
    text = (NIGHTLY / "airflow_dag.py").read_text()
    with pytest.MonkeyPatch.context() as patched:
        for name, module in modules.items():
            patched.setitem(sys.modules, name, module)
        exec(text.replace("/srv/visits", str(folder)), {})
    environment = jinja2.Environment()
    environment.filters["ds"] = lambda at: f"{at:%Y-%m-%d}"
    macros = SimpleNamespace(
        ds_add=lambda day, by: str(date.fromisoformat(day) + timedelta(days=by))
    )
    (day,) = made["op_args"]
    rendered = environment.from_string(day).render(
        ds=ds,
        macros=macros,
        data_interval_start=datetime.fromisoformat(begin),
        data_interval_end=datetime(2026, 3, 2, 3, 15),
    )
    return rendered, lambda: made["python_callable"](rendered)


@pytest.mark.parametrize(
    ("begin", "ds"), [("2026-03-01T03:15", "2026-03-01"), ("2026-03-02T03:15", "2026-03-02")]
)
def test_airflow_publishes_the_day_before_the_run(begin: str, ds: str, tmp_path: Path) -> None:
    assert task_of_airflow(begin, ds, tmp_path)[0] == DAY
    assert "--again" not in (NIGHTLY / "airflow_dag.py").read_text()


@pytest.mark.slow
def test_the_task_of_airflow_retries_only_repairable_failures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    _, publish = task_of_airflow(f"{DAY}T03:15", DAY, folder)
    (folder / "visits").rename(folder / "late")
    with pytest.raises(FileNotFoundError):
        publish()
    (folder / "late").rename(folder / "visits")
    publish()
    with pytest.raises(SkipError):
        publish()
    (folder / DAY / "pages.csv").unlink()
    with pytest.raises(FailError):
        publish()
    (folder / "releases.toml").write_text("[table", encoding="utf-8")
    with pytest.raises(FailError):
        publish()


@pytest.mark.slow
def test_the_model_of_dbt_publishes_a_day_once(folder: Path) -> None:
    """dbt is not installed: it passes its settings and its reference to a model."""
    names: dict[str, Any] = {}
    exec((NIGHTLY / "dbt_model.py").read_text(), names)
    stated = yaml.safe_load((NIGHTLY / "schema.yml").read_text())["models"][0]
    assert stated["name"] == "dbt_model"
    assert stated["config"].keys() == {"folder"}
    settings: dict[str, Any] = {**stated["config"], "folder": str(folder), "day": DAY}

    class Config:
        def __call__(self, **options: Any) -> None:
            settings.update(options)

        def get(self, name: str) -> Any:
            return settings.get(name)

    with duckdb.connect() as session:
        files = str(folder / "visits" / "*" / "*.parquet")
        session.execute(
            f"CREATE TABLE visits AS FROM read_parquet('{files}', hive_partitioning=true)"
        )
        dbt = SimpleNamespace(config=Config(), ref=session.table)
        made = names["model"](dbt, session)
        assert made.column("page").to_pylist() == ["/news", "/sport"]
        assert set(made.column("day").to_pylist()) == {DAY}
        assert {column["name"] for column in stated["columns"]} <= set(made.column_names)
        with pytest.raises(dg.RefusedError):
            names["model"](dbt, session)
    assert settings["materialized"] == "incremental"
