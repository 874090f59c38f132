"""The norms of gradients, for a fit or a network, compared with pure noise."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from tests.report import cases

from dpgrain.report.plots import plot_training
from dpgrain.torch.training_result import TrainingHistory


def test_gradients_are_drawn_above_the_noise() -> None:
    ax = plot_training(TrainingHistory(np.array([3.0, 2.0, 1.0]), 0.5), Figure().subplots())
    norms, noise = ax.lines
    assert (cases.x(norms), cases.y(norms)) == ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    assert cases.y(noise) == [0.5, 0.5]
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0


def test_far_norms_have_a_logarithmic_axis() -> None:
    ax = plot_training(TrainingHistory(np.array([300.0, 1.0]), 0.5), Figure().subplots())
    assert ax.get_yscale() == "log"


def test_nan_steps_are_omitted() -> None:
    history = TrainingHistory(np.array([3.0, math.nan, math.inf, 1.0]), 0.5)
    assert cases.x(plot_training(history, Figure().subplots()).lines[0]) == [1.0, 4.0]
    nothing = TrainingHistory(np.array([math.nan]), 0.5)
    said = plot_training(nothing, Figure().subplots()).texts[0].get_text()
    assert said == "no gradient was finite"
