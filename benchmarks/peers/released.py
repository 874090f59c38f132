"""Statistics of users, records and elements: errors at one guarantee, and costs."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import tasks
from .environments import ENVIRONMENTS, asked, serving
from .tasks import Task

#: Libraries with statistics: the name on the page, with its environment.
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
#: Relative standard error of an error at the end of measurement; and least number of draws.
ENOUGH, LEAST = 0.05, 5
#: Draws of the statistic without privacy, only for its time.
PLAIN = 5


@dataclass(frozen=True)
class Limits:
    """The end of draws of one figure if its error is not known well enough before.

    Args:
        runs: the largest number of draws.
    """

    runs: int = 200
    seconds: float = 600.0


def run(which: str, limits: Limits, only: str = "") -> dict[str, Any]:
    """Let all libraries do the tasks about users or records.

    Args:
        which: ``users`` or ``records``.
        only: the single measured library, by default all.
    """
    folder = ENVIRONMENTS / "data"
    tasks.write(folder)
    given, libraries = {
        "users": (tasks.USER_TASKS, OF_USERS),
        "records": (tasks.RECORD_TASKS, OF_RECORDS),
    }[which]
    wanted = {name: of for name, of in libraries.items() if only in ("", name)}
    found = {task.name: dict(_by_all(task, wanted, limits, folder)) for task in given}
    return {"rows": len(tasks.rows()), "people": tasks.rows()["user"].nunique(), "tasks": found}


def _by_all(
    task: Task, libraries: dict[str, str], limits: Limits, folder: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each library's figures of one task, as they arrive."""
    for library, environment in libraries.items():
        plain, told = library == "not private", task.asked(library)
        ends = Limits(PLAIN, limits.seconds) if plain else limits
        error = partial(_error, task)
        with serving(environment, str(folder)) as process:
            answers = drawn(
                process, "plain" if plain else "release", told, partial(_known, error), ends
            )
            printed = asked(process, "printed", told) if library == "dpgrain" else {}
        figures = _figures(answers, error, task.bounds.get(library, {}))
        if "value" in printed:
            figures["printed"] = printed["value"]
        yield library, figures
        print(task.name, library, json.dumps(figures)[:160], flush=True)


def drawn(
    process: Any,
    method: str,
    told: dict[str, Any],
    known: Callable[[list[Any]], bool],
    limits: Limits,
) -> list[dict[str, Any]]:
    """Return a library's answers: enough to determine its figure, or the reason for none."""
    answers: list[dict[str, Any]] = []
    end = time.monotonic() + limits.seconds
    while len(answers) < limits.runs and (len(answers) < 2 or time.monotonic() < end):
        answer = asked(process, method, told)
        if "failed" in answer:
            return [answer]
        answers.append(answer)
        if len(answers) >= LEAST and known([one["value"] for one in answers]):
            break
    return answers


def _known(error: Callable[..., float], values: list[dict[str, float]]) -> bool:
    """Return whether the error of estimates is known to a twentieth."""
    return _off([error(value) for value in values]) <= ENOUGH


def _off(errors: Sequence[float]) -> float:
    """Return the relative standard error of a root mean square."""
    squares = [error**2 for error in errors]
    mean = statistics.fmean(squares)
    return statistics.stdev(squares) / (2 * mean * len(squares) ** 0.5) if mean else 0.0


def _figures(
    answers: list[dict[str, Any]], error: Callable[..., float], bounds: dict[str, Any]
) -> dict[str, Any]:
    """The root mean squared error, and medians of the cost of a run; or the reason for none."""
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    errors = [error(answer["value"]) for answer in answers]
    return {
        "rmse": statistics.fmean(error**2 for error in errors) ** 0.5,
        "off": _off(errors),
        "seconds": statistics.median(answer["seconds"] for answer in answers),
        "published": round(statistics.fmean(len(answer["value"]) for answer in answers)),
        "runs": len(answers),
        "bounds": bounds,
    }


def _error(task: Task, estimates: dict[str, float]) -> float:
    return tasks.rmse(_exact(task.name, task.unit), task, estimates)


@functools.cache
def _exact(name: str, unit: str) -> dict[str, float]:
    """The truth of a task, computed once."""
    given = tasks.USER_TASKS if unit == "user" else tasks.RECORD_TASKS
    return tasks.truth(next(task for task in given if task.name == name))


def granularity(limits: Limits) -> dict[str, Any]:
    """Loans of each title of a generated library, by privacy unit.

    OpenDP has users by ``OPENDP_BOUNDS``, and elements as users named by reader and subject.
    """
    folder = ENVIRONMENTS / "loans"
    exact = tasks.write_loans(folder)
    found: dict[str, Any] = {"record": {}, "element": {}, "user": {}}
    for unit, by in found.items():
        for library, environment in (("dpgrain", "dpgrain"), ("OpenDP", "opendp")):
            bounds = OPENDP_BOUNDS.get(unit, {}) if library == "OpenDP" else {}
            task = Task("loans per title", unit, "count", "item")
            error = partial(tasks.rmse, exact, task)
            with serving(environment, str(folder)) as process:
                told = task.asked("") | {"bounds": bounds}
                by[library] = _figures(
                    drawn(process, "release", told, partial(_known, error), limits),
                    error,
                    bounds,
                )
    return found


#: Titles of a reader or of a reader's subject, and loans of one title, with the smallest bias and
#: noise in hindsight: for readers 6 to 49 titles and 1 to 30 loans, for elements 2 to 9 titles and
#: 5 to 40 loans.
OPENDP_BOUNDS = {
    "user": {"noise": "gaussian", "groups": 25, "cap": 8},
    "element": {"noise": "gaussian", "groups": 4, "cap": 15},
}
