"""Shared code for networks: a private run at a given cost, its curve, and its ε.

It needs PyTorch (``pip install dpgrain[torch]``). Every run uses
:class:`dpgrain.torch.PrivacyEngine`; random numbers are seeded, so results repeat on one machine; a
seeded release is not private.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dpgrain as dg
from dpgrain._files import data_folder
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import DataError
from dpgrain.means import ClippedMean
from dpgrain.optimize import Average, Last
from dpgrain.torch import PrivacyEngine
from dpgrain.torch.observer import AveragedWeights
from dpgrain.units import Element, Unit, User

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DELTA = 1e-6
# The library's least noise represents ε = ∞, without a guarantee.
_HARDLY_ANY_NOISE = 2.0**-10


@dataclass(frozen=True)
class Records:
    """User ids of records, and their positions among the public examples.

    Args:
        places: (records,) the place of each in arrays of examples.
        users: (records,) the user of each, 0 to n−1.
        elements: (records,) its cell of the partition.
    """

    places: IntArray
    users: IntArray
    elements: IntArray
    n_users: int

    @property
    def blocks_per_user(self) -> float:
        """The number of elements per user, which the experiments take as public."""
        pairs = np.unique(np.column_stack([self.users, self.elements]), axis=0)
        return len(pairs) / self.n_users


@dataclass(frozen=True)
class Asked:
    """The public numbers of a run.

    Args:
        unit: the privacy unit; ``User(max_elements=M)`` has elements as blocks.
        epsilon: the guaranteed ε; ∞ for almost no noise.
        blocks_per_user: the number of blocks per user that sums are divided by.
        steps: the number of steps T.
        rate: the probability q that a block is in a step.
        clip: the clipping bound ρ.
        drift: largest l2 distance that noise may move all weights together over all steps; the
            learning rate is lowered to satisfy it.
        average: of the weights after each step, which the test sees.
    """

    unit: Unit
    epsilon: float
    n_users: int
    blocks_per_user: float
    steps: int
    rate: float
    clip: float = 1.0
    learning_rate: float = 0.3
    drift: float = 5.0
    average: Average = field(default_factory=Last)

    @property
    def noise_multiplier(self) -> float:
        """The least noise for the guarantee with separately sampled blocks."""
        return noise_for(self.unit, self.epsilon, self.steps, self.rate)

    def lowered(self, weights: int) -> float:
        """The learning rate for a network with this number of weights, only from public numbers."""
        expected = self.rate * self.n_users * self.blocks_per_user
        sd = self.noise_multiplier * self.clip / expected
        return min(self.learning_rate, self.drift / (sd * math.sqrt(self.steps * weights)))

    def reach(self, weights: int) -> float:
        """The distance that equal gradients of norm ρ move n weights in all steps.

        Among runs that read the same number of records, few steps are limited by the learning rate,
        and many by noise; the plan with the longest reach is in between.
        """
        return self.steps * self.lowered(weights) * self.clip

    def planned(self, weights: int) -> Asked:
        """The plan of the longest reach for the same number of records, with steps doubled from 25.

        At ε = ∞ it equals the plan for ε = 3, so that the difference is only noise.
        """
        passes, epsilon = self.steps * self.rate, min(self.epsilon, 3.0)
        tried = (25 * 2**i for i in count() if 25 * 2**i > passes)
        plans = (replace(self, epsilon=epsilon, steps=t, rate=passes / t) for t in tried)
        for plan, more in pairwise(plans):
            if more.reach(weights) <= plan.reach(weights):
                break
        return replace(plan, epsilon=self.epsilon)


@cache
def noise_for(unit: Unit, epsilon: float, steps: int, rate: float) -> float:
    """The noise multiplier of ``steps`` rounds at rate q, blocks drawn one by one; δ is 1e-6."""
    if math.isinf(epsilon):
        return _HARDLY_ANY_NOISE
    # Neither a clipping bound nor a roster enters the noise multiplier.
    mean = ClippedMean.calibrate(
        epsilon=epsilon, delta=DELTA, n_users=1, rounds=steps, unit=unit, sampling_rate=rate
    )
    return mean.noise_multiplier


@cache
def with_users_drawn(noise_multiplier: float, steps: int, rate: float, elements: int) -> float:
    """The ε of one element if users with n elements are sampled, with noise calibrated for pairs.

    The element-level paper samples users and accounts for each element as if it was sampled
    separately (Corollaries 2.5 and 3.1); this is the least proved ε of that mechanism.
    """
    event = SampledGaussian(noise_multiplier, rate, steps, "users", "shared", "element")
    return event.epsilon(DELTA, unit=Element(), max_elements=elements)


@cache
def pairs_drawn(noise_multiplier: float, steps: int, rate: float, unit: Unit) -> float:
    """The ε of a unit if every pair of user and element is sampled separately."""
    event = SampledGaussian(noise_multiplier, rate, steps, "pairs", "shared", "element")
    return event.epsilon(DELTA, unit=unit)


def bills(asked: Asked, elements: int) -> dict[str, float]:
    """The ε of one element if users were sampled, and the actual one of a user with n elements.

    The first is None if whole users, or no units, are protected.
    """
    if asked.unit == User() or math.isinf(asked.epsilon):
        return {"users_drawn": math.nan, "whole_user": asked.epsilon}
    noise, steps, rate = asked.noise_multiplier, asked.steps, asked.rate
    return {
        "users_drawn": with_users_drawn(noise, steps, rate, elements),
        "whole_user": pairs_drawn(noise, steps, rate, User(max_elements=elements)),
    }


@dataclass(frozen=True)
class Curve:
    """Measurements during a run.

    Args:
        last: the result of the whole test at the end.
        noise_multiplier: noise sd ÷ clipping bound; 0 where there is neither.
    """

    steps: tuple[int, ...]
    figures: tuple[float, ...]
    last: float
    noise_multiplier: float
    learning_rate: float
    seconds: float


# Measures a network: during training on a part of the test (False), or on all of it (True).
Test = Callable[[Any, bool], float]
# The mean over records of their losses, from the network and the places of the examples.
Loss = Callable[[Any, Any], Any]


def private(
    module: Any,
    loss: Loss,
    test: Test,
    records: Records,
    asked: Asked,
    *,
    seed: int,
    points: int = 10,
    max_rows: int = 256,
) -> Curve:
    """Train a network privately, with its test on the way.

    Args:
        loss: the mean loss of records, from the network and their places.
        points: number of tests, at equal distances.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    rate = asked.lowered(sum(p.numel() for p in trained))
    engine = PrivacyEngine(unit=asked.unit, random_state=seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        module, optimizer, loader = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(trained, lr=rate),
            dataset=torch.utils.data.TensorDataset(torch.from_numpy(records.places)),
            users=records.users,
            elements=None if asked.unit == User() else records.elements,
            n_users=asked.n_users,
            noise_multiplier=asked.noise_multiplier,
            steps=asked.steps,
            sampling_rate=asked.rate,
            max_grad_norm=asked.clip,
            elements_per_user=asked.blocks_per_user,
            max_rows=max_rows,
        )
    marks, steps, figures = _marks(asked.steps, points), [0], [test(module, False)]
    average = AveragedWeights(module, asked.average)

    def measure(made: int) -> None:
        steps.append(made)
        with average.swapped():
            figures.append(test(module, False))

    for (places,) in loader:
        loss(module, places).backward()
        if optimizer.step():
            average.update()
        # An empty sample is also a step, which the loader performs itself.
        made = asked.steps - len(loader)
        if made >= marks[0]:
            measure(made)
            marks = [mark for mark in marks if mark > made] or [asked.steps + 1]
    if steps[-1] != asked.steps:
        # The last samples were empty, so that no batch was returned at the end.
        measure(asked.steps)
    average.keep()
    spent = time.process_time() - began
    noise = asked.noise_multiplier
    return Curve(tuple(steps), tuple(figures), test(module, True), noise, rate, spent)


def plain(
    module: Any,
    loss: Loss,
    test: Test,
    places: IntArray,
    *,
    epochs: int,
    batch: int,
    learning_rate: float,
    seed: int,
    momentum: float = 0.9,
) -> Curve:
    """Train a network without clipping and noise, on shuffled batches, with a test after each epoch."""
    rng, began = np.random.default_rng(seed), time.process_time()
    optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate, momentum=momentum)
    steps, figures, made = [0], [test(module, False)], 0
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(places), math.ceil(len(places) / batch)):
            optimizer.zero_grad()
            loss(module, torch.from_numpy(rows)).backward()
            optimizer.step()
            made += 1
        steps.append(made)
        figures.append(test(module, False))
    spent = time.process_time() - began
    return Curve(tuple(steps), tuple(figures), test(module, True), 0.0, learning_rate, spent)


def _marks(steps: int, points: int) -> list[int]:
    """The numbers of steps before each test."""
    return sorted({max(1, round(steps * i / points)) for i in range(1, points + 1)})


def accuracy(module: Any, x: Any, y: Any, *, top: int = 1, rows: int = 250) -> float:
    """The share of examples with their class among the first ``top`` ones."""
    training = module.training
    module.eval()
    right = 0
    with torch.no_grad():
        for some, truth in zip(x.split(rows), y.split(rows), strict=True):
            best = module(some).topk(top, dim=1).indices
            right += int((best == truth[:, None]).sum())
    module.train(training)
    return right / len(y)


# Files and pictures ----------------------------------------------------------------------------


def kept(folder: Path, name: str, make: Callable[[], Curve]) -> Curve:
    """A curve from its file, or a new one, which is written when complete.

    So an interrupted experiment resumes with the first unfinished cell.
    """
    file = folder / f"{name}.json"
    if file.is_file():
        found = json.loads(file.read_text())
        return Curve(tuple(found.pop("steps")), tuple(found.pop("figures")), **found)
    curve = make()
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(asdict(curve)))
    part.replace(file)
    return curve


@dataclass(frozen=True)
class Line:
    """A line of a picture.

    Args:
        curves: of one or several seeds; their mean is drawn, in the band from the least to the most.
        scale: the units of the horizontal axis in a step.
    """

    label: str
    curves: Sequence[Curve]
    colour: str
    style: str = "-"
    width: float = 1.6
    scale: float = 1.0

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(points,) places on the axis, and (seeds, points) figures at the steps of the first curve."""
        at = np.asarray(self.curves[0].steps, dtype=np.float64)
        return at * self.scale, np.array([np.interp(at, c.steps, c.figures) for c in self.curves])


def draw(
    file: Path,
    panels: Mapping[str, Sequence[Line]],
    *,
    y: str,
    x: str = "steps",
    level: tuple[float, str] | None = None,
    highest: float | None = None,
    logarithmic: bool = False,
) -> None:
    """Write a picture of curves, a panel for each title, with one legend for lines of one look.

    Args:
        level: a figure for a horizontal line in all panels, and its name.
        highest: the end of the axis, if curves begin far above the relevant range.
        logarithmic: True for a horizontal axis of powers, without step 0.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.1 * len(panels) + 0.6, 4.1), sharey=True, squeeze=False
    )
    for ax, (heading, lines) in zip(axes[0], panels.items(), strict=True):
        for line in lines:
            at, values = line.points()
            if logarithmic:
                at, values = at[at > 0], values[:, at > 0]
            mean, ends = values.mean(axis=0), (values.min(axis=0), values.max(axis=0))
            ax.plot(at, mean, line.style, color=line.colour, lw=line.width, label=line.label)
            ax.fill_between(at, *ends, color=line.colour, alpha=0.2, lw=0)
        if level is not None:
            ax.axhline(level[0], color="0.45", lw=1.0, ls=":", label=level[1])
        ax.set_title(heading, fontsize=10)
        ax.set_xlabel(x)
        ax.set_xscale("log" if logarithmic else "linear")
        ax.grid(visible=True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    axes[0][0].set_ylabel(y)
    looks = {text: handle for ax in axes[0] for handle, text in _looks(ax)}
    figure.legend(
        list(looks.values()),
        list(looks),
        loc="outside lower center",
        ncols=2 * len(panels),
        frameon=False,
        fontsize=9,
    )
    axes[0][0].set_ylim(top=highest)
    figure.set_layout_engine("constrained")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _looks(ax: Any) -> Iterator[tuple[Any, str]]:
    """The lines of a panel with their names."""
    yield from zip(*ax.get_legend_handles_labels(), strict=True)


def said(epsilon: float) -> str:
    """ε in words."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


# Command ---------------------------------------------------------------------------------------


def options(what: str, **sizes: int) -> argparse.ArgumentParser:
    """The options that all commands have.

    Args:
        what: the docstring of the module; its first line is shown.
        sizes: of a run, by default, such as ``steps=1000``.
    """
    found = argparse.ArgumentParser(description=what.splitlines()[0])
    found.add_argument("--out", type=Path, default=Path("experiments/out"), help="output folder")
    for name, size in sizes.items():
        found.add_argument(f"--{name}", type=int, default=size, help=f"{name} of a run")
    found.add_argument("--device", default="cpu", help="where networks are trained, such as cuda")
    found.add_argument("--max-rows", type=int, default=256, help="the most rows of a batch")
    found.add_argument("--quick", action="store_true", help="a small size, in a minute")
    return found


def tables(*names: str) -> Path:
    """The folder that DPGRAIN_DATA names; without these files the command ends with one sentence."""
    try:
        return data_folder(*names)
    except DataError as error:
        sys.exit(str(error))
