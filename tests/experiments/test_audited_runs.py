"""Audits of fits, means, sums and choices: claims are true; halved noise is detected."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.claims.publishers import NAMES

from dpgrain.auditing import runs as runs_on_neighbours
from dpgrain.gradients import linear, records
from dpgrain.noise import noisy_sums
from dpgrain.noise.counts import BinomialDistribution
from dpgrain.publishing import draws
from dpgrain.shuffle import encoding
from dpgrain.statistics import OFFERED

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
runs: Any = importlib.import_module("audited_runs")
ways: Any = importlib.import_module("ways_of_audit")

SMALL = ways.Size(canaries=2000, draws=20_000, runs=2000, confidence=0.9999)
CASES = {str(case): case for case in runs.cases() if not case.query.startswith("torch")}


def page() -> dict[str, str]:
    text = (ROOT / "docs" / "tutorials" / "audit-results.md").read_text(encoding="utf-8")
    _, below = text.split(f"<!-- {runs.TABLE} -->\n\n")
    rows = [line.strip("| ").split(" | ") for line in below.split("\n\n", 1)[0].splitlines()[2:]]
    return {", ".join(cell for cell in row[:3] if cell != "–"): row[-1] for row in rows}


VERDICTS = page()
# The number of runs has a separate distribution, and is not noise.
OF_RUNS = "best_of, user"
KEPT = [name for name in CASES if VERDICTS[name] == "kept" and name != OF_RUNS]


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """All noise has half of the requested scale."""
    counts = vars(draws)["draw_counts"]

    def half(module: Any, name: str, place: int) -> None:
        law = vars(module)[name]

        def less(*given: Any, **named: Any) -> Any:
            return law(*given[:place], given[place] / 2, *given[place + 1 :], **named)

        monkeypatch.setattr(module, name, less)

    def fewer(law: Any, size: int, source: Any) -> Any:
        # A quarter of all coins, and the average number of the others' heads as fixed ones.
        quarter = (
            BinomialDistribution(law.trials // 4, law.probability)
            if isinstance(law, BinomialDistribution)
            else type(law)(law.mean / 4)
        )
        return counts(quarter, size, source) + round(law.mean - quarter.mean)

    half(noisy_sums, "rounded_gaussian", 0)
    half(noisy_sums, "discrete_laplace", 0)
    half(runs_on_neighbours, "gumbel_orders", 1)
    half(runs_on_neighbours, "permutes_and_flips", 1)
    monkeypatch.setattr(draws, "draw_counts", fewer)


def test_score_bounds_fail_as_rarely_as_stated() -> None:
    rng, alpha, found = np.random.default_rng(3), 0.2, []
    for _ in range(60):
        one, other = (rng.laplace(at, 1.0, 400) for at in (1.0, 0.0))
        found.append(ways.free_epsilon(one, other, 0.0, alpha))
    assert (np.array(found) > 1.0).sum() <= stats.binom.ppf(0.9999, 60, alpha)
    assert max(found) > 0.5


def test_the_page_has_each_query_and_none_is_refuted() -> None:
    of_networks = {name for name in VERDICTS if name.startswith("torch")}
    assert VERDICTS.keys() - of_networks == CASES.keys()
    assert len(of_networks) > 10
    assert set(VERDICTS.values()) <= {"kept", "weak"}
    assert len(KEPT) > 40


def test_each_publishing_function_is_audited() -> None:
    asked = {name.rsplit(".", 1)[1] for name in NAMES} - {*OFFERED}
    assert asked <= {case.query for case in CASES.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES])
def test_claims_are_satisfied(name: str) -> None:
    _, line = CASES[name].way.line(runs.EPSILON, SMALL)
    assert line.verdict != "violated"
    assert line.claim == pytest.approx(runs.EPSILON, rel=0.01) or line.claim < runs.EPSILON


@pytest.mark.slow
@pytest.mark.usefixtures("halved")
@pytest.mark.parametrize("name", KEPT)
def test_half_of_the_noise_is_refuted(name: str) -> None:
    way = CASES[name].way
    # By chance one audit may show too little, and in one of a hundred too much.
    assert any(way.line(runs.EPSILON, SMALL)[1].verdict == "violated" for _ in range(5))


@pytest.mark.slow
def test_runs_at_double_cost_are_refuted() -> None:
    one, other, _ = runs.kept(2 * runs.EPSILON, 8000)
    claim = runs.kept(runs.EPSILON, 1)[2].epsilon()
    assert ways.free_epsilon(one, other, 0.0, 1e-3) > claim


UNCLIPPED: dict[str, tuple[Any, str]] = {
    "LinearRegression, user": (linear, "factors"),
    "minimise, element": (records, "clipped"),
    "VectorSum, user": (encoding, "clipped"),
}


@pytest.mark.parametrize("name", UNCLIPPED)
def test_unclipped_canaries_are_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function = UNCLIPPED[name]
    clip = vars(module)[function]
    # The bound is the last argument.
    monkeypatch.setattr(module, function, lambda *given: clip(*given[:-1], 2 * given[-1]))
    assert CASES[name].way.line(runs.EPSILON, SMALL)[1].verdict == "violated"


def test_smallest_detectable_excess_is_found() -> None:
    _, line = ways.audited(CASES["accuracy, user"].way, runs.EPSILON, SMALL)
    assert line.verdict == "kept"
    assert 1.1 <= line.free.seen <= 1.5
    assert runs.cells(CASES["accuracy, user"], 0.0, line)[-1] == "kept"
