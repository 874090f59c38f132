"""The commands that need no data: guarantee and plan, as a person runs them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpgrain.accounting import Gaussian, calibrate_gaussian
from dpgrain.accounting.events.known import ZCDP
from dpgrain.cli_accounting import Curve, Parameters
from dpgrain.errors import ParameterError
from dpgrain.units import User


def dpgrain(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dpgrain", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )


def row(shown: str, name: str) -> list[str]:
    """The cells of the row of a table that begins with a name."""
    for line in shown.splitlines():
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if re.sub(r" \[\d]$", "", cells[0]) == name:
            return cells
    raise AssertionError(f"no row {name!r} in:\n{shown}")


def parameters(**options: object) -> Parameters:
    usual: dict[str, object] = {
        "mechanism": "gaussian",
        "noise_multiplier": None,
        "epsilon": None,
        "rho": None,
        "unit": "element",
        "releases": 1,
        "layout": None,
        "rounds": None,
        "sampling": None,
        "sampling_rate": None,
        "passes": None,
    }
    return Parameters(**{**usual, **options})  # type: ignore[arg-type]


def test_a_sampled_run_with_a_plot(tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    done = dpgrain(
        "guarantee", "--noise-multiplier", "1", "--sampling-rate", "0.01", "--rounds", "1000",
        "--delta", "1e-6", "--max-elements", "3", "--plot", picture,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert [float(cell) for cell in row(done.stdout, "1 element")[1:]] == pytest.approx(
        [2.126, 3.215], abs=0.003
    )
    # The curve ends at what a user can have, which is what the whole user costs.
    assert row(done.stdout, "3 elements")[1:] == row(done.stdout, "a user of at most 3")[1:]
    assert "5 elements" not in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_options_make_these_events() -> None:
    from dpgrain.accounting.events.sampled import Participation, SampledGaussian

    sampled = {"noise_multiplier": 2.0, "sampling_rate": 0.1, "rounds": 7}
    assert parameters(**sampled).event() == SampledGaussian(2.0, 0.1, 7)
    assert parameters(**sampled, sampling="users", layout="disjoint", releases=3).event() == (
        SampledGaussian(2.0, 0.1, 7, sampling="users", blocks="disjoint", count=3)
    )
    passes = parameters(noise_multiplier=2.0, passes=3, rounds=30, unit="user", releases=2)
    assert passes.event() == Participation(2.0, 6, level="user")
    assert parameters(noise_multiplier=2.0, releases=3).event() == Gaussian(2.0, count=3)
    assert parameters(mechanism="zcdp", rho=0.1, releases=2).event() == ZCDP(
        0.1, "element", count=2
    )
    pure = parameters(mechanism="pure", epsilon=0.5, releases=2).event()
    assert pure.epsilon(units=3) == 3.0
    laplace = parameters(mechanism="laplace", noise_multiplier=4.0, layout="shared").event()
    assert laplace.epsilon(units=2) == 0.5


def test_shared_and_disjoint_blocks() -> None:
    shown = {
        flag: row(dpgrain("guarantee", "--noise-multiplier", "4", "--delta", "1e-6", flag).stdout,
                  "5 elements")[1]
        for flag in ("--shared", "--disjoint")
    }  # fmt: skip
    event = Gaussian(4.0)
    assert float(shown["--disjoint"]) == pytest.approx(event.epsilon(1e-6, units=5), abs=1e-3)
    assert float(shown["--shared"]) == pytest.approx(event.epsilon(1e-6, units=25), abs=1e-3)


@pytest.mark.parametrize("mechanism", ["pure", "laplace"])
def test_pure_mechanisms_need_no_delta(mechanism: str) -> None:
    size = "--epsilon" if mechanism == "pure" else "--noise-multiplier"
    done = dpgrain("guarantee", "--mechanism", mechanism, size, "0.5", "--unit", "user")
    assert done.returncode == 0, done.stderr
    assert "ε at δ = 0" in done.stdout
    assert row(done.stdout, "2 users")[1] == ("1" if mechanism == "pure" else "4")


WRONG = [
    ([], "Give a saved release, or --noise-multiplier and --delta."),
    (["--noise-multiplier", "4"], "--delta must be given for --mechanism gaussian"),
    (["--mechanism", "pure"], "--mechanism pure needs --epsilon, such as --epsilon 0.1."),
    (["--mechanism", "zcdp", "--delta", "1e-6"],
     "--mechanism zcdp needs --rho, such as --rho 0.1."),
    (["--noise-multiplier", "4", "--epsilon", "1", "--delta", "1e-6"],
     "--epsilon 1 does not go with --mechanism gaussian; it is for pure."),
    (["--noise-multiplier", "4", "--rounds", "9", "--delta", "1e-6"],
     "--rounds 9 goes with --sampling-rate or --passes; without sampling give --releases."),
    (["--noise-multiplier", "4", "--sampling-rate", "0.1", "--delta", "1e-6"],
     "--sampling-rate needs --rounds, such as --rounds 1000."),
    (["--noise-multiplier", "4", "--sampling-rate", "2", "--rounds", "9", "--delta", "1e-6"],
     "sampling_rate must"),
    (["--noise-multiplier", "4", "--sampling-rate", "0.1", "--passes", "9", "--delta", "1e-6"],
     "Give either --sampling-rate 0.1 or --passes 9."),
    (["--noise-multiplier", "4", "--passes", "9", "--rounds", "8", "--delta", "1e-6"],
     "--passes 9 must be at most --rounds 8."),
    (["--noise-multiplier", "4", "--passes", "9", "--sampling", "users", "--delta", "1e-6"],
     "--sampling users goes with --sampling-rate"),
    (["--mechanism", "laplace", "--noise-multiplier", "4", "--passes", "9"],
     "--mechanism laplace cannot be sampled here"),
    (["saved.parquet", "--noise-multiplier", "4"], "Give either a saved release or a mechanism"),
    (["--noise-multiplier", "4", "--delta", "1e-6", "--plot", "x.txt"],
     "--plot must end in .png, .svg or .pdf, not 'x.txt'."),
    (["saved.png", "--plot", "saved.png"], "'saved.png' is the release itself"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=lambda v: str(v)[:60])
def test_guarantee_says_what_is_wrong(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: the exit code and the one line are `main`'s, for every command alike.
    from typer.testing import CliRunner

    from dpgrain.cli import app

    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, ["guarantee", *words])
    assert isinstance(done.exception, ParameterError), done.output
    assert sentence in str(done.exception)
    assert "at δ" not in done.output


def test_an_error_is_one_line_and_exit_code_two() -> None:
    done = dpgrain("plan", "gradient", "--epsilon", "1", "--delta", "1e-6", "--n", "10",
                   "--rounds", "5", "--dimension", "2", "--sampling", "pairs")  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "Error: sampling_rate must be given where pairs are sampled, such as 0.01."
    )
    assert not done.stdout


PLANS = {
    "histogram": ("--epsilon", "1", "--delta", "1e-6", "--max-items", "1"),
    "mean": ("--epsilon", "1", "--delta", "1e-6", "--n", "10000", "--dimension", "100",
             "--error", "0.001"),
    "gradient": ("--epsilon", "1", "--delta", "1e-6", "--n", "10000", "--dimension", "100",
                 "--rounds", "10"),
    "sco": ("--epsilon", "1", "--delta", "1e-6", "--n-users", "10000", "--dimension", "100",
            "--records", "50"),
    "select": ("--epsilon", "1", "--n-users", "10000", "--hypotheses", "100"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANS)
def test_plans_print_a_table_and_json(kind: str) -> None:
    shown, asked = (
        dpgrain("plan", kind, *PLANS[kind]),
        dpgrain("plan", kind, *PLANS[kind], "--json"),
    )
    assert shown.returncode == asked.returncode == 0, shown.stderr + asked.stderr
    plan = json.loads(asked.stdout)
    assert plan["epsilon"] == 1.0
    for entry in plan["rows"]:
        cells = row(shown.stdout, entry["name"])
        assert cells[2] == entry["unit"]
        assert ("order of" in cells[1]) == (entry["kind"] == "order")
        # What a number rests on is cited, and listed below.
        cited = re.search(r"\[(\d)]$", cells[0])
        assert (cited is not None) == bool(entry["source"])
        if cited is not None:
            assert f"[{cited[1]}] {entry['source']}\n" in shown.stdout


def test_a_plan_of_passes() -> None:
    done = dpgrain("plan", "gradient", *PLANS["gradient"], "--sampling", "passes", "--passes", "2")
    assert done.returncode == 0, done.stderr
    # Two rounds of one person; a fifth of the gradients in each round.
    noise = math.sqrt(2) * calibrate_gaussian(1.0, 1e-6).noise_multiplier
    assert float(row(done.stdout, "noise multiplier σ")[1]) == pytest.approx(noise, rel=1e-3)
    assert row(done.stdout, "public divisor")[1] == "2,000"


def test_a_loss_cannot_curve_more_than_its_slope() -> None:
    done = dpgrain("plan", "sco", *PLANS["sco"], "--strength", "3")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "Error: strength must be at most 2·lipschitz/distance (2), not 3.0: no loss of that slope "
        "curves more."
    )


def test_max_elements_goes_with_users() -> None:
    done = dpgrain("plan", "mean", *PLANS["mean"], "--unit", "element", "--max-elements", "3")
    assert done.returncode == 2
    assert "--max-elements 3 goes with --unit user." in done.stderr


@pytest.mark.parametrize("kind", PLANS)
def test_help_has_an_example(kind: str) -> None:
    done = dpgrain("plan", kind, "--help")
    assert done.returncode == 0
    assert f"Example:  dpgrain plan {kind}" in done.stdout


def test_curves_end_at_the_bound() -> None:
    curve = Curve.of(Gaussian(4.0), 1e-6, "element", 7)
    assert curve.units == (1, 2, 5, 7)
    assert curve.user == (7, {r: Gaussian(4.0).epsilon(1e-6, unit=User(7), relation=r)
                              for r in ("zero_out", "replace")})  # fmt: skip
    assert Curve.of(Gaussian(4.0), 1e-6, "element").units[-1] == 100


@pytest.mark.parametrize("max_elements", [None, 7], ids=["", "user"])
def test_plots_show_the_whole_user(max_elements: int | None) -> None:
    from matplotlib.figure import Figure

    from dpgrain.report.plots import plot_epsilons

    curve = Curve.of(Gaussian(4.0), 1e-6, "element", max_elements)
    ax = plot_epsilons(
        curve.units, curve.epsilons, "element", 1e-6, Figure().subplots(), user=curve.user
    )
    labels = [str(line.get_label()) for line in ax.lines]
    assert labels[:2] == ["removed", "exchanged"]
    assert ("a whole user of at most 7, removed" in labels) == (max_elements is not None)
    assert list(ax.lines[0].get_ydata()) == curve.epsilons["zero_out"]  # type: ignore[arg-type]
