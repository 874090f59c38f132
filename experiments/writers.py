"""Digits by real writers, trained at the level of a writer and of a writer's images of one digit.

The 60,000 images for training of MNIST are of 539 people; the 10,000 of the test are of 297 others.
The network has one hidden layer of 32 on images of 14 × 14. A user is a writer, and an element is what
a writer's images of one digit, so a writer has at most ten: the run for elements also has a
guarantee for whole writers, shown next to it.

    python experiments/writers.py [--steps 150] [--rate 0.05] [--seeds 2] [--out experiments/out]

A finished cell is stored in a file, and the same command continues with the next one. Images are
read from the folder in DPGRAIN_DATA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import (
    Asked,
    Curve,
    Line,
    Records,
    accuracy,
    draw,
    kept,
    options,
    pairs_drawn,
    plain,
    private,
    said,
    tables,
    with_users_drawn,
)
from results import write

from dpgrain.units import Element, User

nn, functional = torch.nn, torch.nn.functional

FILE = "mnist_by_writer.npz"
DIGITS = 10
EPSILONS = (1.0, 3.0, math.inf)
LEVELS = ("element", "user")


@dataclass(frozen=True)
class Images:
    """Images of digits by writers, for training and for a test by other writers.

    Args:
        x: (m, 1, 14, 14) from 0 to 1.
        y: (m,) digits.
        records: the user id of each; a position is the position in ``x``.
        test_x: (m', 1, 14, 14).
        test_y: (m',).
    """

    x: Any
    y: Any
    records: Records
    test_x: Any
    test_y: Any

    @staticmethod
    def read(folder: Path, device: str = "cpu", every: int = 1) -> Images:
        """Read all images, or one in n."""
        with np.load(folder / FILE) as arrays:
            found = {name: arrays[name][::every] for name in arrays.files}
        pixels = torch.from_numpy(found["images"]).float().div_(255)[:, None]
        x, y = functional.avg_pool2d(pixels, 2).to(device), torch.from_numpy(found["labels"])
        y, test = y.long().to(device), found["is_test"]
        writers, users = np.unique(found["writer_id"][~test], return_inverse=True)
        digits = found["labels"][~test].astype(np.int64)
        records = Records(np.arange(len(users)), users.astype(np.int64), digits, len(writers))
        # Training images come first.
        return Images(x[: len(users)], y[: len(users)], records, x[len(users) :], y[len(users) :])

    def loss(self, module: Any, places: Any) -> Any:
        """The mean cross-entropy of some images."""
        places = places.to(self.y.device)
        return functional.cross_entropy(module(self.x[places]), self.y[places])

    def figure(self, module: Any, whole: bool) -> float:  # noqa: ARG002 - the whole test is cheap
        """The accuracy in the test."""
        return accuracy(module, self.test_x, self.test_y, rows=2000)


def network(seed: int) -> Any:
    """One hidden layer of 32: 6,634 weights."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, DIGITS))


def asked(images: Images, level: str, epsilon: float, steps: int, rate: float) -> Asked:
    """The public numbers of a run."""
    n = images.records.n_users
    unit, blocks = (User(), 1) if level == "user" else (Element(), DIGITS)
    return Asked(unit, epsilon, n, blocks, steps, rate, learning_rate=1.0, drift=3.0)


@dataclass(frozen=True)
class Row:
    """A row of the table: one level at one ε, the mean over seeds.

    Args:
        epsilon: the promised ε at δ = 1e-6.
        noise_multiplier: noise sd ÷ clipping bound.
        writer: the ε that the same run promises to a whole writer.
        users_drawn: the proved ε of one element with the same noise if writers are sampled.
        seconds: the time of the processor for a run.
    """

    level: str
    epsilon: float
    accuracy: float
    se: float
    noise_multiplier: float
    writer: float
    users_drawn: float
    seconds: float


def row(level: str, epsilon: float, curves: Sequence[Curve], steps: int, rate: float) -> Row:
    """A row from the runs of all seeds."""
    last, noise = np.array([curve.last for curve in curves]), curves[0].noise_multiplier
    writer, drawn = epsilon, math.nan
    if level == "element" and not math.isinf(epsilon):
        writer = pairs_drawn(noise, steps, rate, User(max_elements=DIGITS))
        drawn = with_users_drawn(noise, steps, rate, DIGITS)
    se = float(last.std(ddof=1) / math.sqrt(len(last))) if len(last) > 1 else math.nan
    seconds = float(np.mean([curve.seconds for curve in curves]))
    return Row(level, epsilon, float(last.mean()), se, noise, writer, drawn, seconds)


HEADER = (
    "| level   |  ε  | accuracy      | noise ÷ bound | ε of a writer | writers drawn | s a run |\n"
    "| ------- | --: | ------------: | ------------: | ------------: | ------------: | ------: |"
)


def line(found: Row) -> str:
    """A row of the table."""
    drawn = "" if math.isnan(found.users_drawn) else f"{found.users_drawn:.1f}"
    return (
        f"| {found.level:7} | {said(found.epsilon):>3} | {found.accuracy:5.1%} ± {found.se:5.1%} | "
        f"{found.noise_multiplier:13.3f} | {said(round(found.writer, 1)):>13} | {drawn:>13} | "
        f"{found.seconds:7.0f} |"
    )


def lines(curves: dict[tuple[str, float], list[Curve]]) -> Iterator[Line]:
    """The lines of the picture."""
    colours = {1.0: "tab:red", 3.0: "tab:blue", math.inf: "0.25"}
    for (level, epsilon), found in curves.items():
        style = "-" if level == "element" else "--"
        yield Line(f"{level}, ε = {said(epsilon)}", found, colours[epsilon], style)


@dataclass(frozen=True)
class Setting:
    """Shared settings of all runs.

    Args:
        steps: the number of steps T.
        rate: the probability q that a block is in a step.
    """

    images: Images
    steps: int
    rate: float
    device: str = "cpu"
    max_rows: int = 2000

    def run(self, level: str, epsilon: float, seed: int) -> Curve:
        """Train privately."""
        images = self.images
        return private(
            network(seed).to(self.device), images.loss, images.figure, images.records,
            asked(images, level, epsilon, self.steps, self.rate),
            seed=seed, max_rows=self.max_rows,
        )  # fmt: skip

    def without_privacy(self) -> Curve:
        """Train in batches of 64."""
        images = self.images
        return plain(
            network(0).to(self.device), images.loss, images.figure, images.records.places,
            epochs=10, batch=64, learning_rate=0.05, seed=0,
        )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", steps=150)
    parser.set_defaults(max_rows=2000)
    parser.add_argument("--rate", type=float, default=0.05, help="probability of a block in a step")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each cell")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    every, steps = (20, 5) if given.quick else (1, given.steps)
    images = Images.read(tables(FILE), given.device, every)
    setting = Setting(images, steps, given.rate, given.device, given.max_rows)
    out = given.out / "writers" / f"{steps}_steps_rate_{given.rate:g}"
    reference = kept(out, "not_private", setting.without_privacy)
    print(f"not private: {reference.last:.1%} ({reference.seconds:.0f} s)", HEADER, sep="\n")
    curves, table = {}, []
    for epsilon, level in product(EPSILONS, LEVELS):
        name = f"{level}_eps{epsilon:g}"
        curves[level, epsilon] = [
            kept(out, f"{name}_seed{seed}", partial(setting.run, level, epsilon, seed))
            for seed in range(given.seeds)
        ]
        table.append(row(level, epsilon, curves[level, epsilon], steps, given.rate))
        print(line(table[-1]), flush=True)
    write(given.out, "writers", table)
    title, reached = f"{images.records.n_users} writers", (reference.last, "not private")
    drawn = {title: [*lines(curves)]}
    draw(given.out / "writers.png", drawn, y="accuracy in the test", level=reached)


if __name__ == "__main__":
    main()
