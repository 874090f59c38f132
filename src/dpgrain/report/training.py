"""The report of a network: measures, guarantee, gradients, noise and the cost of a step."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpgrain import _validate
from dpgrain._formatting import quantity, rounded_up
from dpgrain.report.figures import figures
from dpgrain.report.page import PageFacts
from dpgrain.report.plots import plot_measure, plot_training
from dpgrain.words.headings import text
from dpgrain.words.odds import contributions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.torch.training_result import Training

# Maximum number of measures in a report; the history has all.
_SHOWN_MEASURES = 8


def training_page(training: Training) -> str:
    """Return the report of a trained network as HTML."""
    guarantee, history, mean = training.guarantee, training.history, training.mean
    page = PageFacts(
        of="fit",
        guarantee=guarantee,
        distorted="noise and clipping",
        settings=tuple((name, text(value)) for name, value in training.settings),
    )
    names = list(history.measures)[:_SHOWN_MEASURES]
    return page.html(
        "training.html",
        kind=text(type(training.module).__name__, 60),
        weights=quantity(training.weights, "weight"),
        steps=quantity(mean.rounds, "step"),
        last=[(text(name, 24), f"{history.last[name]:.4g}") for name in names[:2]],
        measures=[
            (text(name, 60), figures(f"measure{place}", partial(plot_measure, history, name), 240))
            for place, name in enumerate(names)
        ],
        evaluations=len(history.evaluated),
        left_out=len(history.measures) - len(names),
        blocks=next((c.block for c in contributions(guarantee.event)), guarantee.level),
        training_plots=figures("training", partial(plot_training, history), 280),
        ratio="" if math.isnan(history.ratio) else f"{history.ratio:.3g}",
        cost=_cost(training),
        spent=_spent(training),
    )


def plot_network(training: Training, ax: Axes | None = None, *, measure: str | None = None) -> Axes:
    """Draw a measure of a trained network (by default the first), or the norms of gradients."""
    history = training.history
    if measure is None and not history.measures:
        return plot_training(history, ax)
    names = tuple(history.measures)
    name = names[0] if measure is None else _validate.one_of(names, measure=measure)
    return plot_measure(history, name, ax)


def _cost(training: Training) -> list[tuple[str, str]]:
    """Return the public numbers of a step."""
    mean, noise = training.mean, training.history.noise_norm / training.mean.clip
    return [
        ("Expected number of sampled blocks, the divisor of sums", f"{mean.divisor:,.4g}"),
        ("Noise multiplier: noise ÷ clipping bound", f"{mean.noise_multiplier:.4g}"),
        ("Noise multiplier ÷ blocks", f"{mean.noise_multiplier / mean.divisor:.3g}"),
        ("Clipping bound of a block's mean gradient, last step", f"{mean.clip:.4g}"),
        ("Norm of the noise in a step, in clipping bounds", f"{noise:.3g}"),
        (
            f"The same, averaged over {quantity(mean.rounds, 'step')}",
            f"{noise / math.sqrt(mean.rounds):.3g}",
        ),
        ("Expected uses of a block in all steps", f"{mean.sampling_rate * mean.rounds:,.4g}"),
    ]


def _spent(training: Training) -> list[tuple[str, str]]:
    """Return the ε of the first 1, 10, 100, … steps."""
    guarantee, mean = training.guarantee, training.mean
    # Banded noise cancels over steps, so some steps have no separate ε.
    some = [10**power for power in range(len(str(mean.rounds)))] if mean.bands == 1 else []
    counts = [*(steps for steps in some if steps < mean.rounds), mean.rounds]
    promises = [
        replace(guarantee, event=replace(mean, rounds=steps).event).epsilon() for steps in counts
    ]
    return [
        (quantity(steps, "step"), rounded_up(epsilon))
        for steps, epsilon in zip(counts, promises, strict=True)
    ]
