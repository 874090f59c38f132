"""The baselines of the shuffle experiment are private and unbiased, and it runs at a small size."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import binom
from tests.programs import experiment

from dpgrain.accounting import gaussian_delta
from dpgrain.learn import minimise
from dpgrain.noise import SeededSource
from dpgrain.papers import Known

sb: Any = experiment("shuffle_baselines")
sh = experiment("shuffle")
mpl.use("Agg")


@pytest.mark.parametrize("d", [2, 7])
@pytest.mark.parametrize("norm", [0.0, 0.4, 1.0])
def test_local_messages_have_the_mean_of_their_vector(d: int, norm: float) -> None:
    mechanism = sb.LocalSphere(d, 1.0, 1.5)
    x = norm * np.eye(d)[-1]
    count = 200_000
    messages = mechanism.release(np.tile(x, (count, 1)), np.random.default_rng(1))
    assert np.linalg.norm(messages, axis=1) == pytest.approx(mechanism.length)
    # No coordinate's sd is above the length.
    assert np.abs(messages.mean(axis=0) - x).max() < 5.5 * mechanism.length / math.sqrt(count)


def test_local_messages_keep_to_epsilon_and_use_it() -> None:
    # The likeliest reveal which half contains the message, for x and −x.
    count, epsilon = 400_000, 0.7
    mechanism = sb.LocalSphere(4, 2.0, epsilon)
    ends = np.tile([0.0, 2.0, 0.0, 0.0], (count, 1))
    up = (mechanism.release(ends, np.random.default_rng(2))[:, 1] >= 0).sum()
    down = (mechanism.release(-ends, np.random.default_rng(3))[:, 1] >= 0).sum()
    right, wrong = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    for found, chance in ((up, right), (down, wrong)):
        assert binom.cdf(found, count, chance) > 1e-8
        assert binom.sf(found - 1, count, chance) > 1e-8


def test_long_and_missing_vectors_are_handled() -> None:
    mechanism = sb.LocalSphere(3, 1.0, 1.0)
    vectors = np.array([[1e200, 0, 0], [0, 0, 0]])
    messages = mechanism.release(vectors, np.random.default_rng(0))
    assert np.linalg.norm(messages, axis=1) == pytest.approx(mechanism.length)


@pytest.mark.parametrize("rounds", [1, 2, 3, 8, 13])
def test_vector_is_in_as_few_nodes_as_charged(rounds: int) -> None:
    # Without noise the nodes are counted: how often each vector is added up.
    class Counted(sb.TreeRun):  # type: ignore[misc]
        def _noisy(self, total: Any) -> Any:
            counts.append(total)
            return total

    counts: list[Any] = []
    tree = sb.TreeSums.calibrate(rounds, sensitivity=2.0, epsilon=1.0, delta=1e-6)
    run = Counted(tree, np.random.default_rng(0))
    for t in range(rounds):
        found = run.add(np.eye(rounds)[t])
        assert found == pytest.approx((np.arange(rounds) <= t).astype(float))
    most = np.sum(counts, axis=0).max()
    assert most == tree.nodes
    # And the noise is just enough for that many shifts.
    mu = 2.0 * math.sqrt(most) / tree.noise_sd
    assert 0.999e-6 < gaussian_delta(1.0, mu) <= 1e-6
    with pytest.raises(sb.ParameterError, match="over"):
        run.add(np.zeros(rounds))


def test_sums_of_the_tree_vary_as_stated() -> None:
    tree, coordinates = sb.TreeSums(7, 3.0), 40_000
    run = tree.start(np.random.default_rng(5))
    for t in range(1, 8):
        found = run.add(np.ones(coordinates))
        assert abs(found.mean() - t) < 5.5 * tree.prefix_sd(t) / math.sqrt(coordinates)
        # The relative sd of a sample variance is √(2/n) = 0.7%.
        assert found.var() == pytest.approx(tree.prefix_sd(t) ** 2, rel=0.039)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "tree"])
def test_baselines_find_the_mean_with_much_privacy_to_spend(name: str) -> None:
    problem = experiment("instances").MeanProblem(4, 1.0)
    X, y, _ = problem.draw(20_000, 1, np.random.default_rng(0))
    known = Known(distance=1.0, lipschitz=problem.lipschitz)
    generator = np.random.default_rng(1)
    if name == "local":
        theta = sb.local_sgd(problem.loss, X, y, known, 4.0, generator)
    else:
        theta = sb.tree_ftrl(problem.loss, X, y, known, 4.0, 1e-6, generator)
    assert problem.excess(theta) < 0.1 * problem.excess(problem.start)


def test_printed_noise_and_messages() -> None:
    printed = sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6)
    assert printed.noise_sd == pytest.approx(4534, rel=1e-3)
    assert printed.chance < 0.5
    half = sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6, 0.5)
    assert half.noise_sd == pytest.approx(2 * printed.noise_sd, rel=1e-6)
    with pytest.raises(sb.ParameterError, match="honest_fraction"):
        sb.PrintedSum(1000, 100, 1.0, 1.0, 1e-6, 0.2)


# Problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steepness", "curvature"), [(1.0, 0.0), (0.0, 2.0), (0.5, 0.25)])
def test_bowls_know_their_risk_and_their_bounds(steepness: float, curvature: float) -> None:
    bowl = sh.Bowl(4, 1.0, 0.0, False, steepness, curvature, 0.6)
    X, y, _ = bowl.draw(200_000, 1, np.random.default_rng(0))
    theta = bowl.minimiser + np.array([0.1, -0.3, 0.2, 0.0])
    over = bowl.loss.value(theta, X, y) - bowl.loss.value(bowl.minimiser, X, y)
    assert abs(over.mean() - bowl.excess(theta)) < 5.5 * over.std() / math.sqrt(len(X))
    assert bowl.excess(bowl.minimiser) == pytest.approx(0, abs=1e-12)
    ends = bowl.loss.gradient(-2 * bowl.minimiser, X, y)
    assert np.linalg.norm(ends, axis=1).max() <= bowl.lipschitz * (1 + 1e-6)


def test_proximal_steps_agree_with_gradients() -> None:
    loss, X = sh.Distance(0.7, 0.4), np.random.default_rng(0).standard_normal((50, 3))
    theta = np.array([0.5, -1.0, 2.0])
    for step in (0.1, 3.0):
        ends = loss.proximal(theta, X, np.zeros(50), step)
        left = np.linalg.norm(ends - X, axis=1) > 1e-9
        slopes = np.array([loss.gradient(v, X[i : i + 1], None)[0] for i, v in enumerate(ends)])
        # If it does not end at the kink, the step follows the negative gradient at its end.
        assert slopes[left] == pytest.approx((theta - ends)[left] / step)
        assert (np.linalg.norm(theta - X[~left], axis=1) <= 0.7 * step + 1e-9).all()
    assert left.any()
    assert not left.all()


# Runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ShuffleRestarts", "PanPrivateAgd", "Concentrated"])
def test_run_agrees_with_minimise(name: str) -> None:
    family, n = sh.strong_kinked_family(4, 1), 600
    problem, options = family.members[0], {"count": 2} if name == "ShuffleRestarts" else {}
    X, y, users = problem.draw(n, 1, np.random.default_rng(0))
    recipe = getattr(sh.papers, name)(family.known, **options)
    promise: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "relation": "replace"}
    whole = minimise(
        problem.loss, X, y, problem.start, solver=recipe, users=users, n_users=n, random_state=5,
        **promise,
    )  # fmt: skip
    source = SeededSource(5)
    # A number that no recipe here uses.
    source.words(1)
    program = recipe.plan(sh.papers.Task.of(n, tuple(problem.start), 2.0, 1e-6, "replace"))
    theta = sh.follow(program, problem.loss, (X, y), problem.start, source)
    assert theta == pytest.approx(whole.theta, abs=1e-9)
    assert np.linalg.norm(theta) > 0


@pytest.mark.slow
def test_every_method_on_every_family() -> None:
    rows = list(sh.run_families({"n": (sh.Cell(400, 3, 4.0),)}, 1, 2))
    assert len(rows) == sum(len(methods) for methods in sh.METHODS.values())
    for row in rows:
        assert row.reason == ""
        assert 0 < row.excess < 1.5
        if row.method in (sh.AGD, sh.SMOOTHED, sh.GD, sh.CENTRAL, sh.EXACT):
            assert row.excess < 0.6 * row.start
    text = sh.show_excess(rows)
    for name in (sh.RESTARTS, sh.LOCAL, "strong, kinks"):
        assert name in text


def excess_row(method: str, n: int, excess: float, **changed: Any) -> Any:
    row = sh.ExcessRow("n", "smooth", method, "shuffler", n, 30, 0.3, excess, 0, 0, 1.0, 5, 9, 0.1)
    return replace(row, **changed)


def test_slopes_are_fitted_only_if_privacy_dominates() -> None:
    rows = [excess_row(sh.AGD, n, 2000 * n**-0.8) for n in (10_000, 30_000, 100_000)]
    rows = [replace(row, excess=row.excess / 10) for row in rows]
    # Not counted: at the start, batches that vary more than their noise, because of sampling.
    rows.append(excess_row(sh.AGD, 100, 0.9))
    rows.append(excess_row(sh.AGD, 300_000, 1e-3, users=10**6))
    rows.append(excess_row(sh.AGD, 10**6, 1e-5))
    rows.append(excess_row(sh.EXACT, 30_000, 1e-5, trust="curator"))
    found = {(s.method, s.sweep): s for s in sh.slopes(rows) if s.family == "smooth"}
    fit = found[sh.AGD, "n"]
    assert (fit.points, fit.stated) == (3, -0.8)
    assert fit.measured == pytest.approx(-0.8)
    assert math.isnan(found[sh.AGD, "d"].measured)
    assert "-0.80 (-0.80)" in sh.show_slopes(sh.slopes(rows))


def test_rejection_is_a_dash_with_its_reason() -> None:
    family = sh.smooth_family(3, 1)
    refused = sh.Method.of("no", "shuffler", lambda k: sh.papers.ShuffleAgd(k, 500), (0, 0, 0), "")
    cell = sh.Cell(20, 3, 1.0)
    X, y, _ = family.members[0].draw(20, 1, np.random.default_rng(0))
    row = sh.run_family("n", family, refused, cell, [(X, y)])
    assert math.isnan(row.excess)
    assert "rounds" in row.reason
    assert row.reason in sh.show_excess([row])


def written(out: Path, name: str, figure: bool = True) -> list[dict[str, str]]:
    if figure:
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (out / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_messages_at_a_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sh.main(["--part", "b", "--quick", "--out", str(tmp_path)])
    rows = written(tmp_path, "shuffle_messages")
    assert len(rows) == 2
    for row in rows:
        assert float(row["printed_messages"]) > 1000 * float(row["messages"])
        assert float(row["poisson_messages"]) < 0.4 * float(row["messages"])
        printed = sb.PrintedSum(int(row["n"]), 10, 1.0, 1.0, 1e-6)
        assert float(row["printed_messages"]) == pytest.approx(printed.messages, rel=1e-3)
    assert len(written(tmp_path, "shuffle_recipes", figure=False)) == 10
    assert "of one device" in capsys.readouterr().out


def test_noise_and_faults_at_a_small_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sh.main(["--part", "c", "--quick", "--out", str(tmp_path)])
    for row in written(tmp_path, "shuffle_noise"):
        assert 1 <= float(row["binomial"]) / float(row["central"]) < 1.05
        assert float(row["printed"]) > 400 * float(row["binomial"])
    faults = written(tmp_path, "shuffle_faults", figure=False)
    for row in faults:
        # 50 coordinates: the sd of their sd is 10%.
        assert float(row["error"]) == pytest.approx(float(row["stated"]), rel=0.55)
        assert float(row["promised"]) <= 1.0 + 1e-9
        assert float(row["bias"]) == pytest.approx(float(row["influence"]), rel=0.05, abs=1e-9)
    assert float(faults[-1]["bias"]) > 100 * float(faults[-1]["central"])
    assert "corrupt" in capsys.readouterr().out


def test_the_figure_of_excess(tmp_path: Path) -> None:
    rows = [excess_row(m, n, 50 / n) for m in (sh.AGD, sh.LOCAL) for n in (100, 1000)]
    rows += [replace(row, sweep="d", d=row.n) for row in rows]
    sh.write(tmp_path, "excess", rows, sh.draw_excess(rows))
    assert len(written(tmp_path, "excess")) == 8


@pytest.mark.slow(full=True)
def test_part_a_at_a_small_size(tmp_path: Path) -> None:
    sh.main(["--part", "a", "--quick", "--out", str(tmp_path)])
    assert len(written(tmp_path, "shuffle_excess")) == 2 * 28
    assert len(written(tmp_path, "shuffle_problems")) == 2 * 28
    assert written(tmp_path, "shuffle_slopes", figure=False)
