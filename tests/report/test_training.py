"""The report of a network: measurements, the cost of a step, and nothing private."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.refusals import refuses
from tests.report import cases, networks

from dpgrain.report.plots import plot_measure
from dpgrain.torch.training_result import Training, TrainingHistory


def page(training: Training, folder: Path) -> str:
    return training.report(folder / "network.html").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> dict[str, str]:
    part = text[text.index(heading) :]
    part = part[: part.index("</table>")]
    found = re.findall(r'<th scope="row"[^>]*>([^<]*)</th><td class="number[^"]*">([^<]*)', part)
    return dict(found)


@pytest.mark.slow
def test_report_shows_the_cost_of_a_step(tmp_path: Path) -> None:
    text = page(networks.trained(), tmp_path)
    cost = rows(text, 'aria-label="Cost of a step"')
    # 2 · 0.5 of noise in each of 30 coordinates, against a bound of 0.5, for 0.1 · 1,000 blocks.
    assert cost["Expected number of sampled blocks, the divisor of sums"] == "100"
    assert cost["Noise multiplier ÷ blocks"] == "0.02"
    assert cost["Expected uses of a block in all steps"] == "4"
    assert float(cost["Norm of the noise in a step, in clipping bounds"]) == 0.1
    assert float(cost["The same, averaged over 40 steps"]) == pytest.approx(0.1 / 40**0.5, rel=0.01)


@pytest.mark.slow
def test_report_shows_the_epsilon_of_the_first_steps(tmp_path: Path) -> None:
    training = networks.trained()
    spent = rows(page(training, tmp_path), 'aria-label="ε of the first steps"')
    assert list(spent) == ["1 step", "10 steps", "40 steps"]
    epsilons = [float(value) for value in spent.values()]
    assert epsilons == sorted(epsilons)
    # The printed number is not below the true one.
    assert 0 <= epsilons[-1] - training.guarantee.epsilon() < 1e-2
    alone = replace(networks.MEAN, rounds=1).event.epsilon(1e-6)
    assert 0 <= epsilons[0] - alone < 1e-2


@pytest.mark.slow
def test_how_long_it_took_is_on_no_page(tmp_path: Path) -> None:
    text = page(networks.trained(seconds=123456.78), tmp_path)
    assert "123456" not in text
    assert "123,456" not in text
    assert text == page(networks.trained(seconds=1.0), tmp_path)


@pytest.mark.slow
def test_names_are_text(tmp_path: Path) -> None:
    bad = "</svg><script>alert(1)</script>"
    history = replace(networks.HISTORY, measures={bad: (1.0, 2.0, 3.0)})
    text = page(networks.trained(history=history), tmp_path)
    cases.check_safe(text)
    assert "<b>Adam" not in text


@pytest.mark.slow
def test_unevaluated_network_has_a_report(tmp_path: Path) -> None:
    history = TrainingHistory(np.ones(40), 1.0)
    text = page(networks.trained(history=history), tmp_path)
    assert "Nothing was evaluated during training." in text
    assert "trained in 40 steps" in text


@pytest.mark.slow
def test_many_measures_are_cut(tmp_path: Path) -> None:
    measures = {f"measure {i}": (1.0, 2.0, 3.0) for i in range(11)}
    text = page(networks.trained(history=replace(networks.HISTORY, measures=measures)), tmp_path)
    assert "3 other measures are in the history" in text
    assert "measure 8" not in text


@pytest.mark.slow
def test_a_seeded_network_is_not_private(tmp_path: Path) -> None:
    seeded = networks.trained(guarantee=replace(networks.GUARANTEE, private=False))
    text = page(seeded, tmp_path)
    assert "<title>NOT PRIVATE: Network with 30 weights" in text
    assert "train it again without a seed" in text
    assert '<div class="alarm' in text


def test_plots_are_of_a_measure() -> None:
    training = networks.trained()
    axes = [Figure().subplots() for _ in range(2)]
    assert training.plot(axes[0]).get_ylabel() == "accuracy"
    loss = training.plot(axes[1], measure="loss")
    assert cases.y(loss.lines[0]) == [2.0, 1.0]
    with refuses("measure", "'accuracy'"):
        training.plot(measure="f1")


def test_without_measures_a_plot_is_of_gradients() -> None:
    training = networks.trained(history=TrainingHistory(np.ones(40), 1.0))
    assert training.plot(Figure().subplots()).get_ylabel() == "norm of the gradient"


def test_measure_without_numbers_is_reported() -> None:
    history = TrainingHistory(np.ones(1), 1.0, (0,), {"loss": (math.nan,)})
    ax = plot_measure(history, "loss", Figure().subplots())
    assert ax.texts[0].get_text() == "no value was finite"
