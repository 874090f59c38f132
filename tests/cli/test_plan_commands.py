"""The commands `dpgrain plan`, as a person runs them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from tests.cli.tables import row
from tests.conftest import Command

from dpgrain.accounting import calibrate_gaussian
from dpgrain.planning import plan_recurrent, plan_units


def test_an_error_is_one_line_and_exit_code_two(command: Command) -> None:
    done = command("plan", "gradient", "--epsilon", "1", "--delta", "1e-6", "--n", "10",
                   "--rounds", "5", "--dimension", "2", "--passes", "6")  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "Error: --passes must be at most the number of rounds, 5, not 6."
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
def test_plans_print_a_table_and_json(kind: str, command: Command) -> None:
    shown, asked = (
        command("plan", kind, *PLANS[kind]),
        command("plan", kind, *PLANS[kind], "--json"),
    )
    assert shown.returncode == asked.returncode == 0, shown.stderr + asked.stderr
    plan = json.loads(asked.stdout)
    assert plan["epsilon"] == 1.0
    for entry in plan["rows"]:
        cells = row(shown.stdout, entry["name"])
        assert cells[2] == entry["unit"]
        assert ("order of" in cells[1]) == (entry["kind"] == "order")
        # The sources of a number are cited, and listed below.
        cited = re.search(r"\[(\d)]$", cells[0])
        assert (cited is not None) == bool(entry["source"])
        if cited is not None:
            assert f"[{cited[1]}] {entry['source']}\n" in shown.stdout


def test_units_are_in_adjacent_columns(command: Command) -> None:
    asked = ("plan", "units", "--epsilon", "1", "--delta", "1e-6", "--n-users", "10000",
             "--records", "90", "--elements", "5", "--cells", "40")  # fmt: skip
    plan = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)
    shown, told = command(*asked), json.loads(command(*asked, "--json").stdout)
    assert shown.returncode == 0, shown.stderr
    for name, *numbers in plan.tables()[0][1]:
        assert row(shown.stdout, name)[1:] == numbers
    assert told.items() >= plan.to_dict().items()
    wrong = command(*asked, "--skew", "0.5")
    assert wrong.returncode == 2
    assert wrong.stderr.strip() == "Error: --skew must be between 1 and 1e6, not 0.5."


@pytest.mark.slow
def test_units_are_drawn_into_a_file(command: Command, tmp_path: Path) -> None:
    asked = ("plan", "units", "--epsilon", "1", "--delta", "1e-6", "--n-users", "1000",
             "--records", "20", "--elements", "4", "--cells", "8")  # fmt: skip
    plain = command(*asked)
    path = tmp_path / "units.svg"
    drawn = command(*asked, "--plot", str(path))
    assert drawn.stdout.startswith(plain.stdout)
    assert str(path) in drawn.stdout
    assert "(an average person: ε = " in path.read_text(encoding="utf-8")
    told = command(*asked, "--json", "--plot", str(path))
    assert json.loads(told.stdout)["epsilon"] == 1.0
    refused = command(*asked, "--plot", str(tmp_path / "units.txt"))
    assert refused.returncode == 2
    assert "--plot must end in .png, .svg or .pdf" in refused.stderr
    assert not (tmp_path / "units.txt").exists()


def test_schedules_are_in_separate_rows(command: Command) -> None:
    asked = ("plan", "recurrent", "--epsilon", "1", "--delta", "1e-6", "--periods", "28",
             "--returns", "5", "--every", "1", "--every", "14", "--within", "7")  # fmt: skip
    plan = plan_recurrent(1.0, 1e-6, periods=28, returns=5, every=[1, 14], within=7)
    shown, told = command(*asked), json.loads(command(*asked, "--json").stdout)
    assert shown.returncode == 0, shown.stderr
    printed = [line.split("│")[1:-1] for line in shown.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in cells] for cells in printed] == [
        [cell.strip() for cell in cells] for _, rows in plan.tables() for cells in rows
    ]
    assert told.items() >= plan.to_dict().items()
    wrong = command(*asked, "--every", "29")
    assert wrong.returncode == 2
    assert wrong.stderr.strip() == "Error: --every must be at most 28, not 29."


def test_a_plan_of_passes(command: Command) -> None:
    done = command("plan", "gradient", *PLANS["gradient"], "--passes", "2")
    assert done.returncode == 0, done.stderr
    # Two rounds of one person; a fifth of the gradients in each round.
    noise = math.sqrt(2) * calibrate_gaussian(1.0, 1e-6).noise_multiplier
    assert float(row(done.stdout, "noise multiplier σ")[1]) == pytest.approx(noise, rel=1e-3)
    assert row(done.stdout, "public divisor")[1] == "2,000"


def test_a_loss_cannot_curve_more_than_its_slope(command: Command) -> None:
    done = command("plan", "sco", *PLANS["sco"], "--strength", "3")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "Error: --strength must be at most 2·lipschitz/distance (2), not 3.0, because no loss with "
        "that slope has a larger curvature."
    )


def test_max_elements_requires_users(command: Command) -> None:
    done = command("plan", "mean", *PLANS["mean"], "--unit", "element", "--max-elements", "3")
    assert done.returncode == 2
    assert "--max-elements requires --unit user." in done.stderr
