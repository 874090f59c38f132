"""The experiments run at a small size, and their sums are right."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tests.programs import experiment
from tests.real_data import needs

import dpgrain as dg
from dpgrain._files import data_folder

FloatArray = NDArray[np.float64]


wf = experiment("word_frequency")
ls = experiment("logistic_simulation")
pm = experiment("private_models")
mpl.use("Agg")


@pytest.fixture(scope="module")
def words() -> Any:
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


@pytest.mark.slow
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


def test_single_bound_equals_the_library_release(words: Any) -> None:
    # Almost no noise: the computed clipping error equals a release's.
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


def test_targets_distinguish_pass_from_fail() -> None:
    def row(cells: int, mean: float, worst: float, better: float = 0.9) -> Any:
        after = (mean * better,) * 2 + (0.0,) * 3
        return wf.WordRow(cells, 1.0, 1.0, 1.0, 0.1, mean, 0.1, mean, worst, worst, 2.0, *after)

    good = wf.targets(
        [row(1, 1.0, 1.1), row(10, 0.8, 0.9), row(100, 0.4, 0.5), row(1000, 0.2, 0.4)]
    )
    assert [line[:4] for line in good] == ["PASS"] * 6
    bad = wf.targets([row(1, 1.0, 1.3), row(10, 0.95, 1), row(100, 0.6, 1), row(1000, 0.4, 1)])
    assert [line[:4] for line in bad] == ["FAIL"] * 4 + ["PASS"] * 2
    worse = wf.targets([row(1, 2.0, 1.1, better=1.1)])
    assert [line[:4] for line in worse] == ["PASS"] + ["FAIL"] * 2


def test_post_processing_uses_only_the_release(words: Any) -> None:
    unit, _ = words.partition(5)
    estimate, std_error = wf.release(
        words.table(np.ones(60, dtype=np.bool_)), words.words, unit, 1.0, "auto", seed=1
    )
    raw, nonnegative, shrunk = wf.processed(estimate, std_error)
    assert (raw == estimate).all()
    assert (nonnegative == np.maximum(estimate, 0)).all()
    assert (shrunk >= 0).all()


@pytest.mark.slow
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


@pytest.mark.slow
def test_proposition_1_leaves_more_misordered_pairs_than_claimed() -> None:
    users, held, items = 20_000, 300, 1200
    p, sigma = wf.ramp(items, 1 / (2 * held)), wf.holders_sd(items, held, 1.0, "element")
    rng = np.random.default_rng(11)
    counts = sum(
        np.count_nonzero(rng.multinomial(held, p / p.sum(), size=users // 10), axis=0)
        for _ in range(10)
    )
    gaps = wf.misordered_gaps(p, counts + rng.normal(scale=sigma, size=items))
    # t² is a tenth of the items.
    log_ratio = math.log(items / math.sqrt(items / 10))
    printed, mended = wf.order_thresholds(users, held, p[0], sigma, log_ratio)
    assert (gaps >= printed).sum() == pytest.approx(719, rel=0.1)
    assert (gaps >= mended).sum() <= items / 10 == 120


@pytest.mark.slow
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


def test_misordered_gaps_agree_with_a_double_loop() -> None:
    generator = np.random.default_rng(2)
    p = np.sort(generator.random(12))[::-1]
    estimate = p + generator.normal(0, 0.3, 12)
    wrong = [p[j] - p[i] for j in range(12) for i in range(j + 1, 12) if estimate[j] < estimate[i]]
    assert len(wrong) > 5
    assert sorted(wf.misordered_gaps(p, estimate)) == pytest.approx(sorted(wrong))


@pytest.mark.slow
def test_errors_at_a_small_size(tmp_path: Path) -> None:
    rows = wf.run_errors(users=60, held=(40,), items=40, cells=(1, 4), repetitions=2)
    covered = [row for row in rows if row.covered]
    assert {row.cells for row in covered} == {1, 4}
    for row in covered:
        assert row.upper >= row.lower
        assert 0.6 < row.over_lower < 1.6
    # Clipped far below the proposition's bound, the error is mostly bias.
    assert max(row.over_lower for row in rows) > 1.6
    wf.write(tmp_path, "errors", rows, wf.draw_errors(rows))
    written(tmp_path, "errors", len(rows))


def test_missing_data_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPGRAIN_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"lacks congress_word_counts\.parquet, .*DPGRAIN_DATA"):
        wf.main(["--only", "words", "--out", str(tmp_path / "out")])
    monkeypatch.delenv("DPGRAIN_DATA")
    for program in (wf, pm):
        with pytest.raises(SystemExit, match="DPGRAIN_DATA is not set: set it to the"):
            program.main([])


@pytest.mark.slow
@needs(*wf.FILES)
def test_bounds_per_cell_halve_the_excess_on_congress_words() -> None:
    data = wf.WordCounts.read(data_folder())
    assert isinstance(data.partition(1)[0], dg.Element)
    result = wf.run_words(
        data, cells=(1000,), epsilons=(1.0,), splits=2, bounds=2.0 ** np.arange(10, 15)
    )
    (row,) = result.rows
    assert 2**10 < row.rho < 2**14
    assert row.mean_ratio <= 0.5
    assert result.check < 0.1
    assert row.shrunk < row.auto < row.zeros


# Simulated logistic regression.


@pytest.mark.slow
def test_simulation_at_a_small_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ls.main(["--quick"])
    out = tmp_path / "experiments" / "out"
    assert (out / "logistic_simulation.png").read_bytes().startswith(b"\x89PNG")
    assert "at_least" in capsys.readouterr().out
    errors = pd.read_csv(out / "logistic_errors.csv")
    # For each k one line without privacy, two units at two ε.
    assert len(errors) == 2 * (1 + 2 * 2)
    assert (errors["error"] > 0).all()
    bills = pd.read_csv(out / "logistic_bills.csv")
    assert len(bills) == 2 * 2 * 2
    everybody = bills["rate"] == 1
    assert bills["cost"][everybody].to_numpy() == pytest.approx(
        bills["billed"][everybody], rel=1e-3
    )
    assert (bills["at_least"] <= bills["cost"]).all()
    assert (bills["at_least"] > 1.2 * bills["billed"])[~everybody].all()
    assert bills["error"].notna().equals(~everybody)


def test_simulated_users_have_the_requested_number_of_elements() -> None:
    sample = ls.Sample.draw(ls.Size(users=40, records=60), 5, seed=1)
    held = pd.Series(sample.element).groupby(sample.user).nunique()
    assert held.max() == 5
    assert held.mean() > 4.9
    assert np.linalg.norm(sample.theta) == pytest.approx(1)
    # A record is its centre plus a point of the unit sphere.
    first = sample.X[sample.element == 0].astype(np.float64)
    centre = first.mean(axis=0)
    assert np.linalg.norm(centre) == pytest.approx(1, abs=0.2)
    assert np.linalg.norm(first - centre, axis=1).mean() == pytest.approx(1, abs=0.05)


def test_without_noise_the_simulation_finds_theta() -> None:
    sample = ls.Sample.draw(ls.Size(rounds=100), 8, seed=1)
    assert ls.plain_error(sample, 16.0) < 0.12
    for level in ("element", "user"):
        mean = ls.private_mean(sample.size, level, 1e3, 1.0, 8)
        assert ls.error(sample, mean, 16.0, seed=1) < 0.12


def test_run_costs_are_between_neighbour_test_and_proof() -> None:
    mean = ls.private_mean(ls.Size(), "element", 1.0, 0.1, 8)
    assert 1.6 < ls.at_least(mean, 8) < ls.cost(mean, 8) < 2.2
    assert mean.event.epsilon(ls.DELTA, relation="replace") == pytest.approx(1.0, rel=1e-3)


def test_recorded_bills_are_the_proved_ones() -> None:
    """Figure 3's bills; DPGRAIN_PAGES=write renews them."""
    page = Path(__file__).parents[2] / "experiments" / "models.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split("<!-- table of bills -->\n\n")
    shown, after = rest.split("\n\n<!-- end of bills -->")
    table = "\n".join(ls.bills_table(ls.Size()))
    if os.environ.get("DPGRAIN_PAGES") == "write":
        marks = "<!-- table of bills -->\n\n", "\n\n<!-- end of bills -->"
        page.write_text(before + marks[0] + table + marks[1] + after, encoding="utf-8")
        return
    assert shown == table


# Models of real tables.


def small_tables(folder: Path) -> None:
    g = np.random.default_rng(4)
    m = 600
    balls = g.integers(0, 4, m)
    pd.DataFrame(
        {
            "user_id": g.integers(0, 30, m),
            "pitcher": g.choice(["p", "q", "r"], m),
            "date": pd.Timestamp("2019-04-01") + pd.to_timedelta(g.integers(0, 90, m), "D"),
            "balls": balls,
            "strikes": g.integers(-1, 3, m),
            "inning": g.integers(1, 15, m),
            "batting_order": g.integers(1, 10, m),
            "batter_is_home": g.random(m) < 0.5,
            "bats": g.choice(["L", "R", "B"], m),
            "pitcher_throws": g.choice(["L", "R"], m),
            "n_pitches": g.integers(1, 20, m),
            "on_base": (g.random(m) < 0.1 + 0.25 * balls).astype(int),
        }
    ).to_parquet(folder / pm.BASEBALL)
    date = g.integers(-5, 300, m)
    pd.DataFrame(
        {
            "user_id": g.integers(0, 30, m),
            "date_submitted": date,
            "is_banked": 0,
            "score": np.where(g.random(m) < 0.1, np.nan, np.clip(40 + date / 5, 0, 100)),
            "gender": g.choice(["F", "M"], m),
            "highest_education": g.choice(["A Level or Equivalent", "HE Qualification"], m),
            "imd_band": pd.Series(["Oct-20", "90-100%", None]).iloc[g.integers(0, 3, m)].to_numpy(),
            "age_band": g.choice(["0-35", "35-55"], m),
            "num_of_prev_attempts": g.integers(0, 6, m),
            "studied_credits": g.integers(30, 300, m),
            "disability": g.choice(["Y", "N"], m),
            "region": g.choice(["Wales", "Ireland"], m),
        }
    ).to_parquet(folder / pm.STUDENTS)


def test_models_of_small_tables(tmp_path: Path) -> None:
    small_tables(tmp_path)
    game, score, good = pm.problems(tmp_path)
    assert [p.X.shape[1] for p in (game, score, good)] == [15, 28, 28]
    for problem in (game, score, good):
        assert np.isfinite(problem.X).all()
        # The nominally public bound is valid, without access to the data.
        assert np.linalg.norm(problem.X, axis=1).max() <= problem.bound + 1e-5
        test = problem.held_out(0)
        assert not set(problem.users[test]) & set(problem.users[~test])
        assert len(set(problem.users[test])) == 6
        zero, best = pm.reference(problem, test)
        assert best < zero
    # Almost no noise, and no block is clipped: nearly all of the gain remains.
    test = game.held_out(0)
    zero, best = pm.reference(game, test)
    for unit in ("record", "element (pitcher)", "user"):
        found = pm.private(game, test, unit, 1e4, 0, clip=10.0)
        assert (zero - found) / (zero - best) > 0.9


def test_models_are_written_and_missing_tables_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_tables(tmp_path)
    (tmp_path / pm.STUDENTS).unlink()
    pm.main(["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert f"lacks {pm.STUDENTS}; set DPGRAIN_DATA" in printed
    assert len((tmp_path / "out" / "private_models.csv").read_text().splitlines()) == 1 + 4
    assert printed.count("baseball: on base") == 4


@pytest.mark.slow(full=True)
@needs(pm.BASEBALL)
def test_plate_appearances_retain_most_gain_at_user_level() -> None:
    problem = pm.baseball(data_folder())
    test = problem.held_out(0)
    zero, best = pm.reference(problem, test)
    assert (zero - pm.private(problem, test, "user", 3.0, 0)) / (zero - best) > 0.8
