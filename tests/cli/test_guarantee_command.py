"""The commands without data: guarantee and plan, as a person runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.tables import row
from tests.conftest import Command

import dpgrain as dg
from dpgrain.accounting import ZCDP, Gaussian
from dpgrain.cli.guarantee_command import EpsilonCurve, MechanismOptions
from dpgrain.units import User


def test_a_sampled_run_with_a_plot(tmp_path: Path, command: Command) -> None:
    picture = tmp_path / "curve.png"
    done = command(
        "guarantee", "--noise-multiplier", "1", "--sampling-rate", "0.01", "--rounds", "1000",
        "--delta", "1e-6", "--max-elements", "3", "--plot", picture,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert [float(cell) for cell in row(done.stdout, "1 element")[1:]] == pytest.approx(
        [2.126, 3.215], abs=0.003
    )
    # The curve ends at a user's maximum, the cost of a whole user.
    assert row(done.stdout, "3 elements")[1:] == row(done.stdout, "a user of at most 3")[1:]
    assert "5 elements" not in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_options_make_these_events() -> None:
    from dpgrain.accounting.events.subsampling import Participation, SampledGaussian

    sampled: dict[str, Any] = {"noise_multiplier": 2.0, "sampling_rate": 0.1, "rounds": 7}
    assert MechanismOptions(**sampled).event() == SampledGaussian(2.0, 0.1, 7)
    assert MechanismOptions(**sampled, sampling="users", shared=False, releases=3).event() == (
        SampledGaussian(2.0, 0.1, 7, sampling="users", blocks="disjoint", count=3)
    )
    passes = MechanismOptions(noise_multiplier=2.0, passes=3, rounds=30, unit="user", releases=2)
    assert passes.event() == Participation(2.0, 6, level="user")
    assert MechanismOptions(noise_multiplier=2.0, releases=3).event() == Gaussian(2.0, count=3)
    assert MechanismOptions(mechanism="zcdp", rho=0.1, releases=2).event() == ZCDP(
        0.1, "element", count=2
    )
    pure = MechanismOptions(mechanism="pure", epsilon=0.5, releases=2).event()
    assert pure.epsilon(units=3) == 3.0
    laplace = MechanismOptions(mechanism="laplace", noise_multiplier=4.0, shared=True).event()
    assert laplace.epsilon(units=2) == 0.5


def test_shared_and_disjoint_blocks(command: Command) -> None:
    shown = {
        flag: row(command("guarantee", "--noise-multiplier", "4", "--delta", "1e-6", flag).stdout,
                  "5 elements")[1]
        for flag in ("--shared", "--disjoint")
    }  # fmt: skip
    event = Gaussian(4.0)
    assert float(shown["--disjoint"]) == pytest.approx(event.epsilon(1e-6, units=5), abs=1e-3)
    assert float(shown["--shared"]) == pytest.approx(event.epsilon(1e-6, units=25), abs=1e-3)


@pytest.mark.parametrize("mechanism", ["pure", "laplace"])
def test_pure_mechanisms_need_no_delta(mechanism: str, command: Command) -> None:
    size = "--epsilon" if mechanism == "pure" else "--noise-multiplier"
    done = command("guarantee", "--mechanism", mechanism, size, "0.5", "--unit", "user")
    assert done.returncode == 0, done.stderr
    assert "ε at δ = 0" in done.stdout
    assert row(done.stdout, "2 users")[1] == ("1" if mechanism == "pure" else "4")


WRONG = [
    ([], "Pass a saved release, or --noise-multiplier and --delta."),
    (["--noise-multiplier", "4"], "--delta is required for --mechanism gaussian"),
    (["--mechanism", "pure"], "--mechanism pure requires --epsilon, such as --epsilon 0.1."),
    (["--mechanism", "zcdp", "--delta", "1e-6"],
     "--mechanism zcdp requires --rho, such as --rho 0.1."),
    (["--noise-multiplier", "4", "--epsilon", "1", "--delta", "1e-6"],
     "--epsilon 1 must not be used with --mechanism gaussian; it is for pure."),
    (["--noise-multiplier", "4", "--rounds", "9", "--delta", "1e-6"],
     "--rounds 9 requires --sampling-rate or --passes; without sampling, pass --releases."),
    (["--noise-multiplier", "4", "--sampling-rate", "0.1", "--delta", "1e-6"],
     "--sampling-rate requires --rounds, such as --rounds 1000."),
    (["--noise-multiplier", "4", "--sampling-rate", "2", "--rounds", "9", "--delta", "1e-6"],
     "--sampling-rate must"),
    (["--noise-multiplier", "4", "--sampling-rate", "0.1", "--passes", "9", "--delta", "1e-6"],
     "Pass either --sampling-rate 0.1 or --passes 9, not both."),
    (["--noise-multiplier", "4", "--passes", "9", "--rounds", "8", "--delta", "1e-6"],
     "--passes 9 must be at most --rounds 8."),
    (["--noise-multiplier", "4", "--passes", "9", "--sampling", "users", "--delta", "1e-6"],
     "--sampling users requires --sampling-rate"),
    (["--mechanism", "laplace", "--noise-multiplier", "4", "--passes", "9"],
     "--mechanism laplace cannot be sampled here"),
    (["saved.parquet", "--noise-multiplier", "4"], "Pass either a saved release or a mechanism"),
    (["--noise-multiplier", "4", "--delta", "1e-6", "--plot", "x.txt"],
     "--plot must end in .png, .svg or .pdf, not 'x.txt'."),
    (["saved.png", "--plot", "saved.png"], "'saved.png' is already used in this command"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=lambda v: str(v)[:60])
def test_guarantee_reports_mistakes(words: list[str], sentence: str, command: Command) -> None:
    done = command("guarantee", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not done.stdout


def test_curves_end_at_the_bound() -> None:
    curve = EpsilonCurve.create(Gaussian(4.0), 1e-6, "element", 7)
    assert curve.units == (1, 2, 5, 7)
    assert curve.user == (7, {r: Gaussian(4.0).epsilon(1e-6, unit=User(7), relation=r)
                              for r in ("zero_out", "replace")})  # fmt: skip
    assert EpsilonCurve.create(Gaussian(4.0), 1e-6, "element").units[-1] == 100


@pytest.mark.parametrize("max_elements", [None, 7], ids=["", "user"])
def test_plots_show_the_whole_user(max_elements: int | None) -> None:
    from matplotlib.figure import Figure

    from dpgrain.report.plots import plot_epsilons

    curve = EpsilonCurve.create(Gaussian(4.0), 1e-6, "element", max_elements)
    ax = plot_epsilons(
        curve.units, curve.epsilons, "element", 1e-6, Figure().subplots(), user=curve.user
    )
    labels = [str(line.get_label()) for line in ax.lines]
    assert labels[:2] == ["removed", "replaced"]
    assert ("a whole user of at most 7, removed" in labels) == (max_elements is not None)
    assert list(ax.lines[0].get_ydata()) == curve.epsilons["zero_out"]  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [("--releases", "2"), ("--unit", "user"), ("--shared",)])
def test_a_saved_release_takes_no_mechanism(
    option: tuple[str, ...], tmp_path: Path, command: Command
) -> None:
    done = command("guarantee", tmp_path / "saved.parquet", *option)
    assert done.returncode == 2
    assert "Pass either a saved release or a mechanism" in done.stderr


def test_a_delta_for_several_units_is_suggested(command: Command, tmp_path: Path) -> None:
    """A choice of names uses a part of δ for each unit."""
    table = dg.read(pa.table({"who": list(range(99)), "page": ["a"] * 99}), user="who")
    saved = tmp_path / "pages.parquet"
    dg.histogram(table, "page", unit=dg.User(), epsilon=1.0, delta=1e-6).save(saved)
    said = command("guarantee", saved).stdout
    assert "This δ is too small for 2 users, because each unit uses a part of δ" in said
    assert "with --delta 1e-05" in said
    assert "for 2 users" not in command("guarantee", saved, "--delta", "1e-5").stdout
    assert (
        "too small for 1 element; with --delta 1e-09"
        in command("guarantee", "--noise-multiplier", 4, "--delta", 0).stdout
    )


def test_risk_without_a_limit_names_the_remedy(command: Command) -> None:
    words = ("guarantee", "--noise-multiplier", "4", "--delta", "1e-6")
    remedy = "pass --max-elements if that number is public"
    done = command(*words)
    assert "no promise" not in done.stdout
    assert remedy in done.stdout
    assert remedy not in command(*words, "--max-elements", "3").stdout
