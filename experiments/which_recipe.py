"""Excess population risk of the default fit and of the papers' recipes, side by side.

    python experiments/which_recipe.py [--users 1000 10000] [--out experiments/which_recipe.json]

ε = 1, δ = 1e-6, ``zero_out``, m = 20 records per user, d = 10. The problems, with exactly known
population risk, come from ``user_level.py``: logistic, absolute and (ridge) least squares. Recipes
know the distance, the largest gradient and the curvature; the default knows none of them. Recipes
that compare all pairs of users in each round run up to a thousand users. A recorded run may be
stopped: it keeps the cells that are done. About an hour.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from instances import AbsoluteProblem, LogisticProblem, Problem, RidgeProblem
from user_level import Task, recipe_of

import dpgrain as dg
from dpgrain import learn
from dpgrain.errors import ParameterError
from dpgrain.learn import minimise

RECORDS, DIMENSION, DELTA = 20, 10, 1e-6
DEFAULT = "default fit"
#: Names of rows, and of recipes in ``user_level.py``.
RECIPES = {
    "Concentrated": "concentrated (ours)",
    "WinsorizedErm": "winsorized erm",
    "PhasedErmSco": "phased erm",
    "UserLevelSgd": "sgd, as it is",
}
# Largest number of users for recipes with means that compare all pairs.
_MOST_USERS = {"UserLevelSgd": 1000}
RECORDED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Cell:
    """One fit of one problem.

    Args:
        excess: the mean excess population risk; not a number if the recipe rejects the size.
        warned: whether the plan warned that it would not improve on its start.
    """

    recipe: str
    problem: str
    users: int
    excess: float
    start: float
    warned: bool


def problems() -> dict[str, tuple[Problem, learn.LinearModel]]:
    """Problems with the default estimator of each."""
    root = math.sqrt(DIMENSION)
    return {
        "logistic": (
            LogisticProblem(DIMENSION, 2 * root),
            learn.LogisticRegression(classes=[0, 1]),
        ),
        "absolute": (AbsoluteProblem(DIMENSION, root), learn.QuantileRegressor()),
        "linear": (RidgeProblem(DIMENSION, root), learn.LinearRegression()),
    }


def measured(recipe: str, problem: str, users: int, seeds: int) -> Cell:
    """Fit one problem several times."""
    instance, model = problems()[problem]
    found, warned = [], False
    for seed in range(seeds):
        X, y, owners = instance.draw(users, RECORDS, np.random.default_rng(seed))
        try:
            if recipe == DEFAULT:
                query: Any = model.set_params(
                    n_users=users, fit_intercept=False, l2=instance.strength, random_state=seed
                ).query(X, y > 0 if problem == "logistic" else y, users=owners)
            else:
                solver, loss = recipe_of(Task(instance, users, RECORDS), RECIPES[recipe])
                query = minimise.query(
                    loss, X, y, instance.start, solver=solver, users=owners, n_users=users,
                    epsilon=1.0, delta=DELTA, random_state=seed,
                )  # fmt: skip
            warned = any(kind.startswith("start") for kind, *_ in query.plan.care)
            result: Any = dg.publish(query)
        except ParameterError:
            found.append(math.nan)
            break
        theta = result.coef_ if recipe == DEFAULT else result.theta
        found.append(instance.excess(theta.ravel()))
    start = instance.excess(instance.start)
    return Cell(recipe, problem, users, float(np.mean(found)), start, warned)


def cells(users: Iterable[int], seeds: int) -> Iterable[Cell]:
    """All cells of the table."""
    for n in users:
        for recipe in (DEFAULT, *RECIPES):
            for problem in problems():
                if n <= _MOST_USERS.get(recipe, n):
                    yield measured(recipe, problem, n, 1 if recipe == "UserLevelSgd" else seeds)


def table(found: Sequence[Cell]) -> list[str]:
    """Lines of the table in Markdown: excess at each size, with ! for plans that warn."""
    sizes = sorted({cell.users for cell in found})
    titles = [f"{problem}, n = {n:,}" for problem in problems() for n in sizes]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'--:|' * len(titles)}"]
    by_place = {(cell.recipe, cell.problem, cell.users): cell for cell in found}
    for recipe in dict.fromkeys(cell.recipe for cell in found):
        places = [(recipe, problem, n) for problem in problems() for n in sizes]
        texts = [_text(by_place[place]) if place in by_place else "–" for place in places]
        lines.append(f"| {recipe if recipe == DEFAULT else f'`{recipe}`'} | {' | '.join(texts)} |")
    starts = {cell.problem: cell.start for cell in found}
    line = [f"{starts[problem]:.2g}" for problem in problems() for _ in sizes]
    return [*lines, f"| start | {' | '.join(line)} |"]


def _text(cell: Cell) -> str:
    return "–" if math.isnan(cell.excess) else f"{cell.excess:.2g}{' !' if cell.warned else ''}"


def recorded() -> list[Cell]:
    """Cells of the recorded run."""
    return [Cell(**one) for one in json.loads(RECORDED.read_text(encoding="utf-8"))]


def main() -> None:
    """Run all cells, record them and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RECORDED)
    options = parser.parse_args()
    found = []
    for cell in cells(options.users, options.seeds):
        found.append(cell)
        options.out.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
