"""The comparison page matches its results and the installed versions."""

from __future__ import annotations

import copy
import importlib
import json
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

page: Any = importlib.import_module("benchmarks.peers.page")
environments: Any = importlib.import_module("benchmarks.peers.environments")
SHOWN = page.PAGE.read_text(encoding="utf-8")


def test_page_matches_the_results() -> None:
    assert page.text(page.results()) == SHOWN


@pytest.mark.parametrize("part", ["users", "records", "granularity", "fits", "networks"])
def test_another_figure_makes_another_page(part: str) -> None:
    found = page.results()
    _change(found[part])
    assert page.text(found) != SHOWN


def _change(found: Any) -> None:
    for key, of in found.items():
        if "not private" in key:
            continue
        if key in ("rmse", "ratio"):
            found[key] = 10 * of
            return
        if isinstance(of, dict) and any(word in json.dumps(of) for word in ('"rmse"', '"ratio"')):
            _change(of)
            return


def test_every_version_is_the_pinned_one() -> None:
    """A changed pin requires new results."""
    made = page.results()["environments"]
    for environment, needs in environments.NEEDS.items():
        versions = {name.lower(): of for name, of in made[environment]["versions"].items()}
        for name, version in _pinned(needs):
            if _plain(name) in {_plain(told) for told in versions}:
                found = next(of for told, of in versions.items() if _plain(told) == _plain(name))
                assert found.split("+")[0] == version


def test_every_pinned_peer_is_reported() -> None:
    told = {_plain(name) for names in environments.TOLD.values() for name in names}
    for needs in environments.NEEDS.values():
        for name, _ in _pinned(needs):
            assert _plain(name) in told | {"pyarrow"}


def _pinned(needs: tuple[str, ...]) -> list[tuple[str, str]]:
    found = (re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)", need) for need in needs)
    return [(match[1].lower(), match[2]) for match in found if match]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


def test_more_accurate_peer_is_named() -> None:
    found = copy.deepcopy(page.results())
    by = found["users"]["tasks"]["records per item"]
    by["OpenDP"]["rmse"] = by["dpgrain"]["rmse"] / 2
    told = page.text(found).split("A peer is more accurate")[1].split("Processor time")[0]
    assert re.search(r"Records per item, [\d,]+: OpenDP", " ".join(told.split()))


def test_chance_differences_do_not_count_as_better() -> None:
    few, many = {"rmse": 1.0, "off": 0.1}, {"rmse": 1.0, "off": 0.004}
    assert [page._ahead({"rmse": of, "off": 0.1}, few) for of in (0.7, 0.8, 1.5)] == [
        True, False, False,
    ]  # fmt: skip
    assert [page._ahead({"rmse": of, "off": 0.004}, many) for of in (0.98, 0.995)] == [True, False]
    assert not page._ahead({"failed": "an error"}, few)


def test_best_error_is_bold_and_failures_are_shown() -> None:
    tasks = {
        "a": {"x": {"rmse": 2.0, "runs": 20}, "y": {"rmse": 1.0, "runs": 2}},
        "b": {"x": {"rmse": 3.0, "runs": 5}, "y": {"failed": "an error"}},
        "c": {
            "x": {"rmse": 3.0, "off": 0.05, "runs": 5},
            "dpgrain": {"rmse": 2.8, "off": 0.05, "runs": 5, "printed": 2.5},
        },
    }
    lines = page._errors(tasks, ("x", "y", "dpgrain")).splitlines()[2:]
    # The table also has the printed error and the number of draws; a result within chance is marked
    # as best.
    assert lines == [
        "| a | 2 | **1** | – | – | 20; y 2 |",
        "| b | **3** | fails | – | – | 5 |",
        "| c | **3** | – | **2.8** | 2.5 | 5 |",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.00123, "0.0012"), (4.25, "4.25"), (104.2, "104"), (12345.6, "12,346")],
)
def test_numbers_are_written_for_readers(value: float, shown: str) -> None:
    assert page.number(value) == shown


def test_program_lines_are_counted_without_docstrings(tmp_path: Path) -> None:
    first = importlib.import_module("benchmarks.peers.first")
    assert first.lines('"""What it does."""\n\nimport x\n\nprint(x)\n') == 2
    assert set(page.results()["first"]) == {*first.TABLES, *first.NETWORKS}
    for name, script in page.results()["first"].items():
        text = (first.SCRIPTS / f"with_{name}.py").read_text(encoding="utf-8")
        assert script["lines"] == first.lines(text)


SERVED = """
import sys
sys.path.insert(0, {folder!r})
from serving import serve
def shouting(x):
    print("a library says something")
    return lambda: 2.0 * x
def failing(x):
    raise ValueError("no such thing")
serve({{"double": shouting, "fail": failing}})
"""


def test_process_answers_with_cost_and_result() -> None:
    program = SERVED.format(folder=str(environments.HERE))
    words = ["double", 4], ["fail", 1], ["unknown"], ["double", 5]
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="".join(json.dumps(line) + "\n" for line in words),
        capture_output=True,
        text=True,
        check=True,
    )
    first, failed, unknown, second = map(json.loads, done.stdout.splitlines())
    assert (first["value"], second["value"]) == (8.0, 10.0)
    assert first["seconds"] >= 0
    assert first["clock"] > 0
    assert failed == {"failed": "ValueError: no such thing"}
    assert unknown["failed"].startswith("KeyError")


def test_error_covers_all_groups_within_the_public_range() -> None:
    tasks = importlib.import_module("benchmarks.peers.tasks")
    count = tasks.Task("records per item", "user", "count", "item")
    exact = {"a": 3.0, "b": 4.0}
    assert tasks.rmse(exact, count, {"a": 3.0}) == pytest.approx(math.sqrt(8))
    mean = tasks.Task("mean price", "user", "mean", "", "price", (0, 20))
    assert tasks.rmse({"all": 2.0}, mean, {"all": 50.0}) == 18.0


def test_the_truth_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = importlib.import_module("benchmarks.peers.tasks")
    rows = pd.DataFrame({"user": [1, 1, 2], "item": ["a", "a", "b"], "quantity": [1, 2, 100]})
    monkeypatch.setattr(tasks, "rows", lambda: rows)
    users = tasks.Task("users per item", "user", "users", "item")
    assert tasks.truth(users) == {"a": 1.0, "b": 1.0}
    assert tasks.truth(tasks.Task("quantity", "user", "sum", "", "quantity")) == {"all": 103.0}


def test_every_task_passes_each_library_its_parameters() -> None:
    tasks = importlib.import_module("benchmarks.peers.tasks")
    for task in tasks.USER_TASKS:
        assert set(task.bounds) == {"dpgrain, given bound", "PipelineDP", "OpenDP", "Tumult"}
        told = json.loads(json.dumps(task.asked("OpenDP")))
        assert (told["epsilon"], told["delta"]) == (tasks.EPSILON, tasks.DELTA)
    for task in tasks.RECORD_TASKS:
        assert task.asked("diffprivlib")["delta"] == 0


def test_draws_go_on_until_an_error_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alike errors are known at once; normal ones take 200 draws; a failure ends them."""
    released = importlib.import_module("benchmarks.peers.released")
    rng = np.random.default_rng(1)

    def error(estimates: dict[str, float]) -> float:
        return abs(estimates["all"])

    known = partial(released._known, error)
    for value, told in ((lambda: 2.0, 5), (lambda: float(rng.normal()), 200)):
        monkeypatch.setattr(
            released, "asked", lambda *_, of=value: {"value": {"all": of()}, "seconds": 1.0}
        )
        answers = released.drawn(None, "release", {}, known, released.Limits())
        assert abs(len(answers) - told) <= told / 4
        figures = released._figures(answers, error, {})
        assert figures["off"] <= 0.06
    assert len(released.drawn(None, "release", {}, known, released.Limits(seconds=0))) == 2
    monkeypatch.setattr(released, "asked", lambda *_: {"failed": "no such thing"})
    assert released.drawn(None, "release", {}, known, released.Limits()) == [
        {"failed": "no such thing"}
    ]


def test_versions_of_other_machines_are_retained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results.json")
    page.keep({"environments": {"opacus": {"versions": {"opacus": "1"}}, "opendp": 1}})
    page.keep({"users": {}, "environments": {"opendp": 2}})
    assert page.results()["environments"] == {"opacus": {"versions": {"opacus": "1"}}, "opendp": 2}
