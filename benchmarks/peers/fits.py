"""Regressions of records: the retained share of the non-private fit's gain."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpgrain._files import data_folder

from .environments import ENVIRONMENTS, HERE, asked, serving
from .released import Limits, drawn

sys.path.insert(0, str(HERE.parents[1] / "experiments"))
import private_models

DELTA = 1e-6
EPSILONS = (0.1, 1.0)
#: Standard error of the share of the gain at the end of measurement.
ENOUGH = 0.01
#: The best of each is on the page: diffprivlib with regularisation, ours without.
STRENGTHS = ({"C": 0.001}, {"C": 0.1})


def run(limits: Limits) -> dict[str, Any]:
    """Fit two targets at two budgets, with one fifth of the users held out."""
    folder = data_folder(private_models.BASEBALL)
    problems = (private_models.baseball(folder), private_models.students(folder, "score"))
    return {problem.name: _fits(problem, limits) for problem in problems}


def _fits(problem: Any, limits: Limits) -> dict[str, Any]:
    """Shares of the gain by library and ε, and seconds by the fit without privacy."""
    test = problem.held_out(0)
    base, best = private_models.reference(problem, test)
    path = ENVIRONMENTS / "fit.npz"
    np.savez(path, X=problem.X[~test], y=problem.y[~test], Z=problem.X[test])
    kind = "logistic" if problem.logistic else "linear"
    told = {"path": str(path), "kind": kind, "norm": problem.bound, "delta": DELTA, "bounds": {}}
    found: dict[str, Any] = {"rows": int((~test).sum()), "columns": problem.X.shape[1]}
    with serving("dpgrain", str(ENVIRONMENTS / "data")) as process:
        plain = [asked(process, "plain fit", told)["seconds"] for _ in range(3)]
    kept = partial(_kept, problem, test, base, best)
    for epsilon in EPSILONS:
        strengths = STRENGTHS if problem.logistic else ({},)
        tried = {
            "dpgrain": ("dpgrain", ({},)),
            "dpgrain, given bound": ("dpgrain", ({"feature_bound": problem.bound},)),
            "diffprivlib": ("diffprivlib", strengths),
        }
        for library, (environment, options) in tried.items():
            each = []
            for bounds in options:
                with serving(environment, str(ENVIRONMENTS / "data")) as process:
                    wanted = told | {"epsilon": epsilon, "bounds": bounds}
                    answers = drawn(process, "fit", wanted, partial(_known, kept), limits)
                each.append(_figures(kept, answers) | {"bounds": bounds})
            figures = max(each, key=lambda of: of.get("kept", float("-inf")))
            if "seconds" in figures:
                figures["ratio"] = figures.pop("seconds") / statistics.median(plain)
            found.setdefault(str(epsilon), {})[library] = figures
            print(problem.name, epsilon, library, figures, flush=True)
    Path(path).unlink()
    return found


def _kept(problem: Any, test: Any, base: float, best: float, value: dict[str, float]) -> float:
    """Return the share of the gain that predictions of the users held out keep."""
    prediction = np.array(list(value.values()))
    return float((base - problem.loss(prediction, problem.y[test])) / (base - best))


def _known(kept: Callable[..., float], values: list[dict[str, float]]) -> bool:
    """Return whether the mean retained share is known to a hundredth of the gain."""
    return _error([kept(value) for value in values]) <= ENOUGH


def _error(shares: list[float]) -> float:
    """Return the standard error of a mean."""
    return float(statistics.stdev(shares) / len(shares) ** 0.5)


def _figures(kept: Callable[..., float], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean share of the gain and its standard error, and the median of seconds."""
    failed = [answer["failed"] for answer in answers if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    shares = [kept(answer["value"]) for answer in answers]
    return {
        "kept": statistics.fmean(shares),
        "error": _error(shares),
        "seconds": statistics.median(answer["seconds"] for answer in answers),
        "runs": len(shares),
    }
