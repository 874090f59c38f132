"""The training of a model or a network: norms of gradients, and measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import NullLocator

from dpgrain.report.axes import (
    BLUE,
    INK,
    ORANGE,
    axes_for,
    few_digits,
    fitting,
    grid,
    legend_above,
    write_message,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain._types import FloatArray
    from dpgrain.learn.rounds import History
    from dpgrain.torch.training_result import TrainingHistory


def plot_training(history: History | TrainingHistory, ax: Axes | None = None) -> Axes:
    """Draw the norm of the noisy gradient per round, compared with the norm of pure noise."""
    ax = axes_for(ax, 7.0, 4.2)
    norms = history.norms
    rounds = np.arange(1.0, len(norms) + 1)
    valid = np.isfinite(norms) & (norms > 0)
    ax.set_xlabel("round")
    ax.set_ylabel("norm of the gradient")
    if not valid.any():
        return write_message(ax, "no gradient was finite")
    many = len(norms) > 60
    style, width = ("-", 1.2) if many else ("-o", 1.6)
    _draw(ax, rounds[valid], norms[valid], style, width, "noisy gradient")
    ax.axhline(
        history.noise_norm, color=ORANGE, linestyle="--", linewidth=1.6, label="noise only, about"
    )
    ends = np.append(norms[valid], history.noise_norm)
    if ends.min() > 0 and ends.max() / ends.min() > 20:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(few_digits(4))
    else:
        ax.set_ylim(0, None)
    legend_above(ax)
    return ax


def plot_measure(history: TrainingHistory, name: str, ax: Axes | None = None) -> Axes:
    """Draw a measure by steps, with its last value as a number."""
    ax = axes_for(ax, 7.0, 3.6)
    steps = np.array(history.evaluated, dtype=np.float64)
    values = np.array(history.measures[name], dtype=np.float64)
    ax.set_xlabel("step")
    ax.set_ylabel(fitting(name, ax))
    valid = np.isfinite(values)
    if not valid.any():
        return write_message(ax, "no value was finite")
    _draw(ax, steps[valid], values[valid], "-o", 1.6, "")
    last = float(steps[valid][-1]), float(values[valid][-1])
    ax.annotate(f"{last[1]:.4g}", last, (6, 0), textcoords="offset points", va="center", color=INK)
    # The last value needs space to the right of its point.
    ax.margins(x=0.1 if len(values) > 1 else 0.5, y=0.12)
    ax.set_xlim(left=min(0.0, float(steps[0])))
    return ax


def _draw(ax: Axes, x: FloatArray, y: FloatArray, style: str, width: float, label: str) -> None:
    ax.plot(x, y, style, color=BLUE, linewidth=width, markersize=3.5, label=label or None)
    ax.yaxis.set_major_formatter(few_digits(4))
    grid(ax)
