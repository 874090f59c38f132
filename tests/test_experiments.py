"""The experiments run at a small size, and their sums are right."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from numpy.typing import NDArray

import dpgrain as dg

FOLDER = Path(__file__).parent.parent / "experiments"
DATA = Path(os.environ.get("DPGRAIN_DATA", "../shared/data"))
FloatArray = NDArray[np.float64]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"experiments_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


wf = load("word_frequency")
mpl.use("Agg")


@pytest.fixture(scope="module")
def words() -> Any:
    """Sixty users and thirty words: few people say much."""
    generator = np.random.default_rng(3)
    rate = generator.lognormal(2, 1.5, (60, 1)) * generator.dirichlet(np.ones(30), 60) * 30
    counts = generator.poisson(rate)
    user, word = np.nonzero(counts)
    names = [f"word{i}" for i in range(30)]
    vectors = generator.normal(size=(30, 3))
    return wf.WordCounts(names, vectors, user, word, counts[user, word], 60)


def written(out: Path, name: str, rows: int) -> None:
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len((out / f"{name}.csv").read_text().splitlines()) == rows + 1


def test_words_at_a_small_size(words: Any, tmp_path: Path) -> None:
    result = wf.run_words(words, cells=(1, 5, 30), epsilons=(3.0,), splits=2)
    assert [(row.cells, row.epsilon) for row in result.rows] == [(1, 3.0), (5, 3.0), (30, 3.0)]
    for row in result.rows:
        assert row.mean_ratio == pytest.approx(row.auto / row.single)
        assert row.single <= row.zeros
        assert row.single_se > 0
        assert row.auto_se > 0
        # Projected onto what is possible; in every split, so the largest ratio too.
        assert row.nonnegative <= row.auto + 1e-12
        assert row.worst_nonnegative <= 1e-12
    wf.write(tmp_path, "word_frequency", result.rows, wf.draw_words(result.rows))
    written(tmp_path, "word_frequency", 3)
    assert len(wf.show(result.rows).splitlines()) == 4


def test_the_single_bound_is_what_the_library_releases(words: Any) -> None:
    # Hardly any noise: the computed error of clipping is that of a release.
    matrix = words.matrix()
    halves = wf.Halves.of(matrix, 2)
    for cells in (1, 5, 30):
        unit, cell_of = words.partition(cells)
        assert np.unique(cell_of).size == cells
        bounds = np.array([3.0, 20.0])
        errors = wf.single_errors(matrix, cell_of, halves, bounds, "test")
        for split in (0, 1):
            # One bound in one split, the other in the other.
            table, bound = words.table(halves.released[split]), float(bounds[split])
            estimate, _ = wf.release(table, words.words, unit, 1e5, bound, seed=1)
            assert halves.ratio(split, estimate) == pytest.approx(errors[split, split], rel=1e-2)


def test_the_baseline_is_the_error_without_clipping_and_noise(words: Any) -> None:
    matrix = words.matrix()
    halves = wf.Halves.of(matrix, 4)
    assert halves.size == 30
    assert (halves.released.sum(axis=1) == 30).all()
    for split, users in enumerate(halves.released):
        assert halves.ratio(split, matrix[users].sum(axis=0)) == pytest.approx(1)
        truth = matrix[~users].mean(axis=0)
        assert halves.ratio(split, 30 * truth) == pytest.approx(0)


def test_targets_tell_pass_from_fail() -> None:
    def row(cells: int, mean: float, worst: float, better: float = 0.9) -> Any:
        after = (mean * better,) * 3 + (0.0,) * 4
        return wf.WordRow(cells, 1.0, 1.0, 1.0, 0.1, mean, 0.1, mean, worst, worst, 2.0, *after)

    good = wf.targets(
        [row(1, 1.0, 1.1), row(10, 0.8, 0.9), row(100, 0.4, 0.5), row(1000, 0.2, 0.4)]
    )
    assert [line[:4] for line in good] == ["PASS"] * 8
    bad = wf.targets([row(1, 1.0, 1.3), row(10, 0.95, 1), row(100, 0.6, 1), row(1000, 0.4, 1)])
    assert [line[:4] for line in bad] == ["FAIL"] * 4 + ["PASS"] * 4
    worse = wf.targets([row(1, 2.0, 1.1, better=1.1)])
    assert [line[:4] for line in worse] == ["PASS"] + ["FAIL"] * 4


def test_post_processing_is_of_the_release_alone(words: Any) -> None:
    unit, _ = words.partition(5)
    estimate, std_error = wf.release(
        words.table(np.ones(60, dtype=np.bool_)), words.words, unit, 1.0, "auto", seed=1
    )
    raw, nonnegative, shrunk, unclipped = wf.processed(estimate, std_error)
    assert (raw == estimate).all()
    assert (nonnegative == np.maximum(estimate, 0)).all()
    assert (shrunk >= 0).all()
    assert (unclipped >= shrunk).all()
    assert unclipped.sum() > shrunk.sum()


def test_order_at_a_small_size(tmp_path: Path) -> None:
    rows = wf.run_order(users=(80,), held=(6, 9), repetitions=2)
    assert len(rows) == 6
    for element, removed, exchanged in (rows[:3], rows[3:]):
        assert removed.sigma == pytest.approx(element.sigma * math.sqrt(removed.held))
        assert exchanged.sigma == pytest.approx(element.sigma * math.sqrt(2 * removed.held))
    for row in rows:
        assert row.corrected >= row.printed
        assert row.loss_corrected <= row.promise
    wf.write(tmp_path, "order", rows, wf.draw_order(rows))
    written(tmp_path, "order", 6)


def test_mechanism_7_counts_holders_with_the_noise_it_claims() -> None:
    generator = np.random.default_rng(5)
    p = wf.ramp(200, 1 / 12)
    assert p.sum() == pytest.approx(1)
    assert p[0] == pytest.approx(1 / 12)
    assert (np.diff(p) < 0).all()
    counts = np.random.default_rng(8).multinomial(6, p / p.sum(), size=300)
    table = wf.multinomial_table(np.random.default_rng(8), 300, 6, p)
    for name in wf.ORDER_UNITS:
        # Scored by the noise it claims: 10 × 200 draws, so the sample sd is within 10%.
        draws = np.array([wf.holders(table, 200, 6, 1.0, name, generator) for _ in range(10)])
        noise = draws - (counts > 0).sum(axis=0)
        sigma = wf.holders_sd(200, 6, 1.0, name)
        assert abs(noise.mean()) < 5 * sigma / math.sqrt(noise.size)
        assert 0.9 < noise.std() / sigma < 1.1


def test_misordered_gaps_are_those_of_a_double_loop() -> None:
    generator = np.random.default_rng(2)
    p = np.sort(generator.random(12))[::-1]
    estimate = p + generator.normal(0, 0.3, 12)
    wrong = [p[j] - p[i] for j in range(12) for i in range(j + 1, 12) if estimate[j] < estimate[i]]
    assert len(wrong) > 5
    assert sorted(wf.misordered_gaps(p, estimate)) == pytest.approx(sorted(wrong))


def test_errors_at_a_small_size(tmp_path: Path) -> None:
    rows = wf.run_errors(users=60, held=(40,), items=40, cells=(1, 4), repetitions=2)
    covered = [row for row in rows if row.covered]
    assert {row.cells for row in covered} == {1, 4}
    for row in covered:
        assert row.upper >= row.lower
        assert 0.6 < row.over_lower < 1.6
    # Clipped far below what the proposition asks for, the error is mostly bias.
    assert max(row.over_lower for row in rows) > 1.6
    wf.write(tmp_path, "errors", rows, wf.draw_errors(rows))
    written(tmp_path, "errors", len(rows))


def test_missing_data_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPGRAIN_DATA", str(tmp_path))
    wf.main(["--only", "words", "--out", str(tmp_path / "out")])
    assert "set DPGRAIN_DATA" in capsys.readouterr().out


@pytest.mark.skipif(
    not all((DATA / name).is_file() for name in wf.FILES),
    reason="the congress word counts are not here; set DPGRAIN_DATA to their folder",
)
def test_bounds_per_cell_halve_the_excess_on_congress_words() -> None:
    data = wf.WordCounts.read(DATA)
    assert isinstance(data.partition(1)[0], dg.Element)
    result = wf.run_words(
        data, cells=(1000,), epsilons=(1.0,), splits=2, bounds=2.0 ** np.arange(10, 15)
    )
    (row,) = result.rows
    assert 2**10 < row.rho < 2**14
    assert row.mean_ratio <= 0.5
    assert result.check < 0.1
    assert row.unclipped < row.shrunk < row.auto < row.zeros
