"""The user-level experiments run at a small size, and their sums are right."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from tests.programs import experiment
from tests.real_data import needs

from dpgrain._files import data_folder

ul = experiment("user_level")
mpl.use("Agg")


def written(out: Path, name: str, rows: int) -> list[dict[str, str]]:
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (out / f"{name}.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len(found) == rows
    return found


@pytest.mark.slow
def test_means_at_a_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ul.main(["--part", "a", "--quick", "--out", str(tmp_path)])
    rows = written(tmp_path, "user_level_means", 3 * len(ul.MEANS))
    errors = {row["method"]: float(row["error"]) for row in rows if row["sweep"] == "headline"}
    # The order that the part is about; noise moves none of these by as much.
    assert errors["printed, radius known"] > 100 * errors["recentred, τ"]
    assert errors["clip to the bound"] > 10 * errors["recentred, τ"]
    assert errors["true centre"] < errors["best clip"] < errors["clip to the bound"]
    said = capsys.readouterr().out
    assert "ended early" in said
    assert said.count("met\n") == 8


def test_rejection_is_a_dash_with_its_reason() -> None:
    cell = ul.Cell(n=100, m=10, d=5)
    row = ul.run_mean("n", cell, "winsorized", 2)
    assert math.isnan(row.error)
    assert "users, or a larger epsilon" in row.reason
    text = ul.show_means([row])
    assert "—" in text
    assert row.reason in text


def test_the_error_is_the_distance_to_the_sample_mean() -> None:
    # Clipping at the bound is unbiased here, so that the error is the noise's sd times √d.
    cell = ul.Cell(n=200, m=10, d=400)
    row = ul.run_mean("n", cell, "clip to the bound", 3)
    noise = ul.bl.multiplier(1.0, ul.DELTA, "replace") * cell.bound / cell.n * math.sqrt(cell.d)
    # 1,200 squares of normals: the root's relative sd is 2%.
    assert row.error == pytest.approx(noise, rel=0.11)
    assert row.releases == 3


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_centre_agrees_with_the_distribution(share: float) -> None:
    cell = ul.Cell(n=20_000, m=100, d=3, heterogeneity=share)
    for seed in (0, 1):
        far = cell.draw(seed).mean(axis=0) - cell.centre(seed)
        # Two million records with coordinates of sd 1, or 2 if they are mixed.
        assert np.abs(far).max() < 5.4 * 2 / math.sqrt(2e6)


def test_a_long_run_counts_the_rounds_before_its_end() -> None:
    (row,) = ul.run_long(1, n=500, d=2, rounds=20)
    assert row.done == row.rounds == 20
    assert 0 < row.error < 10


@pytest.mark.slow
def test_convex_problems_at_a_small_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ul.main(["--part", "b", "--quick", "--out", str(tmp_path)])
    rows = written(tmp_path, "user_level_convex", 8 * 5)
    for row in rows:
        if row["recipe"] == ul.CONCENTRATED:
            assert float(row["excess"]) < 0.5 * float(row["start"])
    assert "problem" in capsys.readouterr().out


def test_evaluations_are_rounds_times_records_of_the_phase() -> None:
    problem = ul.MeanProblem(5, 1.0)
    records = problem.draw(300, 4, np.random.default_rng(0))
    _, rounds, asked = ul.solve(ul.Task(problem, 300, 4), ul.CONCENTRATED, records, 0)
    assert asked == rounds * 300 * 4
    known = ul.Task(problem, 10**5, 4).known
    promise = ul.papers.Task.of(10**5, tuple(problem.start), 4.0, ul.DELTA, "replace")
    program = ul.papers.PhasedErmSco(known, count=2).plan(promise)
    # The remainder of the halving is in the first phase.
    first, second = (stage.mean.rounds for stage in program.stages)
    assert ul.evaluations(program, 4) == 4 * (first * 75_000 + second * 25_000)


def test_worse_cells_are_reported() -> None:
    def row(recipe: str, m: int, excess: float, evaluations: float) -> Any:
        size = ("mean", 300, m, 5, 0.0)
        return ul.ConvexRow(*size, recipe, excess, 0.0, 1.0, 10, evaluations, 0.1)

    ours = [row(ul.CONCENTRATED, m, 0.1 / m, 10) for m in (1, 10, 100)]
    others = [row(ul.SGD, m, 0.2, 100) for m in (1, 10, 100)]
    assert ul.not_best([*ours, *others]) == []
    assert "m^-1.00" in ul.slopes([*ours, *others])[0]
    better = ul.not_best([*ours, replace(others[0], excess=0.05)])
    assert len(better) == 1
    assert "ours ÷ it 2.00" in better[0]
    assert "ten times" in ul.not_best([*ours, replace(others[0], evaluations=99)])[0]


@pytest.mark.slow
def test_choices_at_a_small_size(tmp_path: Path) -> None:
    ul.main(["--part", "c", "--quick", "--out", str(tmp_path)])
    rows = written(tmp_path, "user_level_choices", 10)
    for row in rows:
        if row["method"] == "permute_and_flip":
            assert float(row["evaluations"]) in (1000, 1024)


def test_missing_tables_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="None of the tables is there: let DPGRAIN_DATA"):
        ul.main(["--part", "d", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    for name in (ul.MNIST, ul.pm.BASEBALL, ul.pm.STUDENTS):
        assert f"lacks {name}" in said
    assert not (tmp_path / "out").exists()


def table(seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    y, users = generator.integers(0, 3, 6000), np.repeat(np.arange(200), 30)
    rows = np.eye(3)[y] + 0.5 * generator.standard_normal((6000, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return ul.Table("made", rows, y, users, users < 40, 1.0, 30)


@pytest.mark.slow
def test_tables_at_a_small_size(tmp_path: Path) -> None:
    rows = list(ul.run_table(table(), (3.0, 30.0), 1, ("default", "clip=1", "concentrated")))
    guess, best = rows[:2]
    assert (guess.users, guess.kept, best.kept) == (160, 0, 1)
    assert guess.accuracy < 0.5 < best.accuracy
    found = {(row.epsilon, row.method): row for row in rows[2:]}
    assert 0.8 < found[30.0, "default"].kept < 1.05
    assert found[30.0, "default"].accuracy > guess.accuracy + 0.2
    for row in rows:
        assert len(ul.real_line(row).splitlines()) == 1
    ul.write(tmp_path, "user_level_real", rows, ul.draw_real(rows))
    written(tmp_path, "user_level_real", 8)


@pytest.mark.slow(full=True)
@needs("mnist_by_writer.npz")
def test_clipping_near_the_solution_reads_digits() -> None:
    rows = list(ul.run_table(ul.digits(data_folder()), (1.0,), 1, ("default", "clip=1")))
    accuracy = {row.method: row.accuracy for row in rows}
    assert accuracy["not private"] > 0.88
    assert accuracy["default"] > max(0.7, accuracy["clip=1"] + 0.1)


@pytest.mark.slow(full=True)
def test_mean_meets_its_target() -> None:
    cell = ul.Cell(n=10_000, d=100)
    names = ("auto", ul.CENTRE, ul.PLAIN, ul.PRINTED)
    rows = [ul.run_mean("headline", cell, name, 4) for name in names]
    errors = {row.method: row.error for row in rows}
    assert errors["auto"] <= 0.5 * errors[ul.PLAIN]
    assert errors["auto"] <= errors[ul.PRINTED] / 50
    # The requested value is 1.5, which four releases of a hundred coordinates measure to 4%.
    assert errors["auto"] <= 1.7 * errors[ul.CENTRE]


@pytest.mark.slow(full=True)
def test_five_hundred_users_suffice_for_a_thousand_rounds() -> None:
    runs = list(ul.run_long(5))
    # At most one run in a hundred may end early.
    assert sum(run.done < 1000 for run in runs) <= 2


@pytest.mark.slow(full=True)
def test_ours_beats_the_recipes_with_fewer_evaluations() -> None:
    todo = [ul.Task(one, 2000, 10) for one in ul.problems(10)]
    assert ul.not_best(list(ul.run_convex(todo, 1))) == []
