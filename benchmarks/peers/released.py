"""Statistics of users, of records and of elements: errors at one promise, and what a release took."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import tasks
from .environments import ENVIRONMENTS, asked, serving
from .tasks import Task

#: Who publishes statistics: the name on the page, with its environment.
OF_USERS = {
    "not private": "dpgrain",
    "dpgrain": "dpgrain",
    "dpgrain, given bound": "dpgrain",
    "OpenDP": "opendp",
    "PipelineDP": "pipeline_dp",
    "Tumult": "tumult",
}
OF_RECORDS = {
    "not private": "dpgrain",
    "dpgrain": "dpgrain",
    "diffprivlib": "diffprivlib",
    "OpenDP": "opendp",
}
#: Spark takes seconds for what others do in one, so Tumult draws fewer times.
FEWER = {"Tumult": 4}
#: One run of thousands of items says as much as many of one number.
RUNS_OF_ITEMS = 5


def run(which: str, runs: int, only: str = "") -> dict[str, Any]:
    """Let all libraries do the tasks about users or records.

    Args:
        which: ``users`` or ``records``.
        runs: how often each statistic of few groups is published.
        only: the one library that is asked, by default all.
    """
    folder = ENVIRONMENTS / "data"
    tasks.write(folder)
    given, libraries = {
        "users": (tasks.USER_TASKS, OF_USERS),
        "records": (tasks.RECORD_TASKS, OF_RECORDS),
    }[which]
    wanted = {name: of for name, of in libraries.items() if only in ("", name)}
    found = {task.name: dict(_by_all(task, wanted, runs, folder)) for task in given}
    return {"rows": len(tasks.rows()), "people": tasks.rows()["user"].nunique(), "tasks": found}


def _by_all(
    task: Task, libraries: dict[str, str], runs: int, folder: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each library's figures of one task, as they come."""
    for library, environment in libraries.items():
        many = min(runs, RUNS_OF_ITEMS) if task.by == "item" else runs
        many = max(2, many // FEWER.get(library, 1))
        with serving(environment, str(folder)) as process:
            method = "plain" if library == "not private" else "release"
            answers = [asked(process, method, task.asked(library)) for _ in range(many)]
        yield library, _figures(task, library, answers)
        print(task.name, library, json.dumps(_figures(task, library, answers))[:160], flush=True)


def _figures(task: Task, library: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The root of the mean squared error, and medians of what a run took; or why there is none."""
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    errors = [_error(task, answer["value"]) for answer in answers]
    return {
        "rmse": statistics.fmean(error**2 for error in errors) ** 0.5,
        "seconds": statistics.median(answer["seconds"] for answer in answers),
        "published": round(statistics.fmean(len(answer["value"]) for answer in answers)),
        "runs": len(answers),
        "bounds": task.bounds.get(library, {}),
    }


def _error(task: Task, estimates: dict[str, float]) -> float:
    return tasks.rmse(_exact(task.name, task.unit), task, estimates)


@functools.cache
def _exact(name: str, unit: str) -> dict[str, float]:
    """The truth of a task, computed once."""
    given = tasks.USER_TASKS if unit == "user" else tasks.RECORD_TASKS
    return tasks.truth(next(task for task in given if task.name == name))


def granularity(runs: int) -> dict[str, Any]:
    """Loans of each title of a library that is generated, by what is protected.

    Only dpgrain has elements. OpenDP stands beside it at the other two units, of users with
    ``OPENDP_BOUNDS``.
    """
    folder = ENVIRONMENTS / "loans"
    exact = tasks.write_loans(folder)
    found: dict[str, Any] = {"record": {}, "element": {}, "user": {}}
    for unit, by in found.items():
        for library, environment in (("dpgrain", "dpgrain"), ("OpenDP", "opendp")):
            if (unit, library) != ("element", "OpenDP"):
                bounds = OPENDP_BOUNDS if (unit, library) == ("user", "OpenDP") else {}
                with serving(environment, str(folder)) as process:
                    by[library] = _loans(process, unit, bounds, exact, runs)
    return found


#: Titles of a reader, and loans of one title, of which bias and noise together are smallest in
#: hindsight: of 6 to 49 titles and 1 to 30 loans.
OPENDP_BOUNDS = {"noise": "gaussian", "groups": 25, "cap": 8}


def _loans(
    process: Any, unit: str, bounds: dict[str, Any], exact: dict[str, float], runs: int
) -> dict[str, Any]:
    task = Task("loans per title", unit, "count", "item")
    told = task.asked("") | {"bounds": bounds}
    answers = [asked(process, "release", told) for _ in range(runs)]
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    errors = [tasks.rmse(exact, task, answer["value"]) for answer in answers]
    return {"rmse": statistics.fmean(e**2 for e in errors) ** 0.5, "bounds": bounds, "runs": runs}
