"""The training of a model or a network, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.ticker import NullLocator

from dpgrain.report.axes import BLUE, ORANGE, axes_for, few_digits, grid, legend_above, plain, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain._types import FloatArray


class Rounds(Protocol):
    """Published norms and noise of the gradients of each round."""

    @property
    def norms(self) -> FloatArray:
        """The norms of the noisy gradients."""

    @property
    def noise_norm(self) -> float:
        """The rough norm of a gradient of noise alone."""


def plot_training(history: Rounds, ax: Axes | None = None) -> Axes:
    """Draw the norm of the noisy gradient, round by round, against what noise alone would be.

    Args:
        history: the rounds of a fit, or the steps of a network.
        ax: axes to draw on; new ones by default.
    """
    ax = axes_for(ax, 7.0, 4.2)
    plain(ax)
    norms = history.norms
    rounds = np.arange(1, len(norms) + 1)
    there = np.isfinite(norms) & (norms > 0)
    ax.set_xlabel("round")
    ax.set_ylabel("norm of the gradient")
    if not there.any():
        return say(ax, "no gradient was finite")
    many = len(norms) > 60
    ax.plot(
        rounds[there],
        norms[there],
        "-" if many else "-o",
        color=BLUE,
        linewidth=1.2 if many else 1.6,
        markersize=3.5,
        label="noisy gradient",
    )
    ax.axhline(
        history.noise_norm, color=ORANGE, linestyle="--", linewidth=1.6, label="noise alone, about"
    )
    ends = np.append(norms[there], history.noise_norm)
    if ends.min() > 0 and ends.max() / ends.min() > 20:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_ylim(0, None)
    ax.yaxis.set_major_formatter(few_digits(4))
    grid(ax)
    legend_above(ax, list(ax.lines))
    return ax
