"""The last layer of a network on features of images: Figure 4 of the element-level paper.

A softmax regression of 101 classes on 2,048 features, by Algorithm 1 and update (15), with pairs of
user and element drawn in place of users. The paper's features are ResNet-50's of Flickr pictures.
Neither comes with this project, so that *features are made up* here, in clusters: each is a rectified
random map of a point near one of 400 centres in 32 dimensions, and its class follows from where the
point lies, with 11% of class 0, "unknown". A part of the features is public: the centres of K = 50 or
500 elements are k-means++ of these alone, all features are moved by their mean and scaled to length 1,
and no user holds them.

    python experiments/last_layer.py [--steps 150] [--users-a-step 5] [--out experiments/out]
    python experiments/last_layer.py --images FOLDER --encoder MODULE:FUNCTION
    python experiments/last_layer.py --steps 40000 --users-a-step 100 --device cuda --max-rows 10000

With a folder of images, one folder inside for each label, features are what the encoder makes of them:
a function that takes a list of Pillow images and returns (images, d) numbers. The 100 labels that are
most frequent among public images are classes, and all others are unknown.

A cell that is finished is kept in a file, and the same command goes on with the next one.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from images import pseudo_users
from networks import (
    Asked,
    Curve,
    IntArray,
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
    with_users_drawn,
    write,
)
from numpy.typing import NDArray
from PIL import Image
from sklearn.cluster import KMeans

from dpgrain.units import Element, User

nn, functional = torch.nn, torch.nn.functional
FloatArray = NDArray[np.float32]
Encoder = Callable[[list[Any]], Any]

USERS, FEATURES, CLASSES, TOP = 8000, 2048, 101, 5
EPSILONS = (1.0, 3.0, math.inf)
# Elements of a user, and all elements.
KINDS = ((5, 50), (30, 50), (5, 500), (30, 500), (100, 500))
# Of four images one is public, and of the others one in ten is of the test.
_PUBLIC, _TESTED = 4, 10
# Chosen in a few runs on another seed, with k = 30 at ε = 3 and ∞.
_LEARNING_RATE, _DRIFT = 30.0, 400.0


# Features --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Features:
    """Features of images in three parts.

    Args:
        public: (m₀, d) those of which elements are made.
        x: (m, d) those that users hold.
        y: (m,) their classes.
        test_x: (m', d) those of the test.
        test_y: (m',) their classes.
    """

    public: FloatArray
    x: Any
    y: Any
    test_x: Any
    test_y: Any

    @staticmethod
    def split(x: FloatArray, labels: NDArray[Any], seed: int, device: str) -> Features:
        """Cut features into parts by chance, with classes made of the labels of the public part.

        Features are moved by the mean of public ones, and scaled to length 1.
        """
        order = np.random.default_rng(seed).permutation(len(x))
        public, rest = np.split(order, [len(x) // _PUBLIC])
        x = x - x[public].mean(axis=0)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        test, held = np.split(rest, [len(rest) // _TESTED])
        y = torch.from_numpy(classes_of(labels, public)).to(device)
        parts = (torch.from_numpy(x[rows]).to(device) for rows in (held, test))
        found, tested = parts
        return Features(x[public], found, y[held], tested, y[test])

    def loss(self, module: Any, places: Any) -> Any:
        """The mean cross-entropy of some images."""
        places = places.to(self.y.device)
        return functional.cross_entropy(module(self.x[places]), self.y[places])

    def figure(self, module: Any, whole: bool) -> float:
        """The share of the test whose class is among the first five, on the way of a fifth of it."""
        most = len(self.test_y) if whole else len(self.test_y) // 5
        return accuracy(module, self.test_x[:most], self.test_y[:most], top=TOP, rows=1000)

    def network(self) -> Any:
        """One linear layer, which begins with zeros."""
        layer = nn.Linear(self.x.shape[1], CLASSES).to(self.y.device)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.zero_()
        return layer

    def elements(self, number: int) -> IntArray:
        """(m,) the element of each image that is held: its nearest centre among public ones."""
        found = KMeans(number, init="k-means++", n_init=1, max_iter=10, random_state=0)
        return np.asarray(found.fit(self.public).predict(self.x.cpu().numpy()), dtype=np.int64)


def classes_of(labels: NDArray[Any], public: IntArray) -> IntArray:
    """(m,) 1 to 100 for the labels that are most frequent among public ones, and 0 for others."""
    found, inverse = np.unique(labels, return_inverse=True)
    counts = np.bincount(inverse[public], minlength=len(found))
    classes = np.zeros(len(found), dtype=np.int64)
    first = np.argsort(-counts, kind="stable")[: CLASSES - 1]
    classes[first] = np.arange(1, len(first) + 1)
    return classes[inverse]


def made_up(images: int, seed: int, d: int = FEATURES) -> tuple[FloatArray, NDArray[Any]]:
    """Features in clusters, (images, d), and their labels, (images,), of which there are some 100."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(400, 32))
    points = centres[rng.integers(0, len(centres), images)] + 0.5 * rng.normal(size=(images, 32))
    found = np.empty((images, d), dtype=np.float32)
    turned, shift = rng.normal(size=(32, d)) / math.sqrt(32), 0.5 * rng.normal(size=d)
    for rows in np.array_split(np.arange(images), max(1, images // 4000)):
        found[rows] = np.maximum(points[rows] @ turned + shift, 0)
    scores = points @ rng.normal(size=(32, CLASSES - 1)) + rng.gumbel(size=(images, CLASSES - 1))
    labels = scores.argmax(axis=1).astype(np.int64)
    # Labels that are each of their own image become unknown.
    unknown = rng.random(images) < 0.11
    labels[unknown] = CLASSES + np.flatnonzero(unknown)
    return found, labels


def of_folder(folder: Path, encoder: Encoder, batch: int = 64) -> tuple[FloatArray, NDArray[Any]]:
    """Features of the images of a folder, (images, d), and the name of the folder that each is in.

    Args:
        folder: one folder inside for each label, with images that Pillow reads.
        encoder: makes (images, d) numbers of a list of images in three colours.
        batch: the most images that the encoder is given at a time.
    """
    endings = set(Image.registered_extensions())
    files = sorted(f for f in folder.glob("*/*") if f.suffix.lower() in endings)
    if not files:
        sys.exit(f"The folder {str(folder)!r} has no images: it must hold a folder for each label.")
    parts = []
    for first in range(0, len(files), batch):
        images = [Image.open(file).convert("RGB") for file in files[first : first + batch]]
        parts.append(np.asarray(encoder(images), dtype=np.float32))
    return np.concatenate(parts), np.array([file.parent.name for file in files])


def named(encoder: str) -> Encoder:
    """The encoder that ``MODULE:FUNCTION`` names."""
    module, _, function = encoder.partition(":")
    found: Encoder = getattr(importlib.import_module(module), function)
    return found


# Cells of the grid -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Args:
        k: the elements of each user.
        elements: the number of all elements K.
        level: ``"user"`` or ``"element"``.
        epsilon: the promised ε; ∞ for hardly any noise.
    """

    k: int
    elements: int
    level: str
    epsilon: float

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.level}_{self.k}_of_{self.elements}_eps{self.epsilon:g}"

    def asked(self, n: int, steps: int, users: float) -> Asked:
        """The public numbers of a run with so many steps, and users a step."""
        unit, blocks = (User(), 1) if self.level == "user" else (Element(), self.k)
        return Asked(
            unit, self.epsilon, n, blocks, steps, users / n,
            learning_rate=_LEARNING_RATE, drift=_DRIFT,
        )  # fmt: skip


def grid() -> Iterator[Cell]:
    """All cells, those at ε = 3 first."""
    for epsilon, (k, elements), level in product((3.0, math.inf, 1.0), KINDS, ("element", "user")):
        yield Cell(k, elements, level, epsilon)


@dataclass(frozen=True, eq=False)
class Setting:
    """What all cells share.

    Args:
        features: of images.
        n: the number of users.
        steps: the number of steps T.
        users: the expected number of users a step.
        max_rows: the most rows of a batch.
    """

    features: Features
    n: int
    steps: int
    users: float
    max_rows: int = 1000

    @cache  # noqa: B019 - one setting lives as long as the command
    def records(self, k: int, elements: int) -> Records:
        """The users whose images are of k of so many elements."""
        return pseudo_users(self.features.elements(elements), self.n, k, seed=0)

    def run(self, cell: Cell) -> Curve:
        """Train one cell."""
        features = self.features
        return private(
            features.network(), features.loss, features.figure,
            self.records(cell.k, cell.elements), cell.asked(self.n, self.steps, self.users),
            seed=0, max_rows=self.max_rows,
        )  # fmt: skip

    def without_privacy(self, epochs: int) -> Curve:
        """Train on all images that users hold, in batches of 64."""
        features = self.features
        return plain(
            features.network(), features.loss, features.figure, np.arange(len(features.y)),
            epochs=epochs, batch=64, learning_rate=2.0, seed=0,
        )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Args:
        k: the elements of each user.
        elements: the number of all elements K.
        level: user or element.
        epsilon: the promised ε at δ = 1e-6.
        accuracy: the share of the test whose class is among the first five.
        noise_multiplier: noise sd ÷ clipping bound.
        users_drawn: the ε of one element that is proved of the same noise where users are drawn.
        whole_user: the ε that the same run promises to a user with k elements.
        seconds: the time of the processor.
    """

    k: int
    elements: int
    level: str
    epsilon: float
    accuracy: float
    noise_multiplier: float
    users_drawn: float
    whole_user: float
    seconds: float


HEADER = (
    "| k / K | level | ε | top 5 | noise ÷ bound | users drawn | user | s |\n"
    "| --- | --- | --: | ---: | ---: | ---: | ---: | ---: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    drawn = "" if math.isnan(row.users_drawn) else f"{row.users_drawn:.1f}"
    noise = "0" if math.isinf(row.epsilon) else f"{row.noise_multiplier:.3f}"
    user = said(round(row.whole_user, 1))
    return (
        f"| {row.k} / {row.elements} | {row.level} | {said(row.epsilon)} | {row.accuracy:.1%} | "
        f"{noise} | {drawn} | {user} | {row.seconds:.0f} |"
    )


def row(cell: Cell, asked: Asked, curve: Curve) -> Row:
    """A row from a run."""
    noise, drawn, user = curve.noise_multiplier, math.nan, cell.epsilon
    if cell.level == "element" and not math.isinf(cell.epsilon):
        drawn = with_users_drawn(noise, asked.steps, asked.rate, cell.k)
        user = pairs_drawn(noise, asked.steps, asked.rate, User(max_elements=cell.k))
    return Row(
        cell.k, cell.elements, cell.level, cell.epsilon, curve.last, noise, drawn, user,
        curve.seconds,
    )  # fmt: skip


def panels(found: dict[Cell, Curve]) -> dict[str, list[Line]]:
    """Lines by level and ε."""
    colours = dict(
        zip(KINDS, ("tab:orange", "tab:red", "tab:cyan", "tab:blue", "tab:purple"), strict=False)
    )
    return {
        f"ε = {said(epsilon)}": [
            Line(
                f"{cell.level}, {cell.k} of {cell.elements}",
                [curve],
                colours[cell.k, cell.elements],
                "-" if cell.level == "element" else "--",
            )
            for cell, curve in found.items()
            if cell.epsilon == epsilon
        ]
        for epsilon in EPSILONS
    }


# Command ---------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", steps=150)
    parser.set_defaults(max_rows=1000)
    parser.add_argument("--images", type=Path, help="a folder with a folder for each label")
    parser.add_argument("--encoder", help="MODULE:FUNCTION that makes features of images")
    parser.add_argument("--users", type=int, default=USERS, help="the number of users")
    parser.add_argument("--users-a-step", type=float, default=5, help="expected")
    given = parser.parse_args(arguments)
    if (given.images is None) != (given.encoder is None):
        parser.error("--images and --encoder go together: an encoder makes features of images.")
    torch.set_num_threads(1)
    steps, n = (3, 100) if given.quick else (given.steps, given.users)
    if given.images is None:
        what, source = made_up(3000 if given.quick else 40_000, seed=0), "made_up"
    else:
        what, source = of_folder(given.images, named(given.encoder)), given.images.name
    features = Features.split(*what, seed=0, device=given.device)
    setting = Setting(features, n, steps, given.users_a_step, given.max_rows)
    out = given.out / "last_layer" / f"{source}_{n}_users_{steps}_steps_{given.users_a_step:g}"
    reference = kept(out, "not_private", partial(setting.without_privacy, 4))
    print(f"not private: {reference.last:.1%} ({reference.seconds:.0f} s)", HEADER, sep="\n")
    found, table = {}, []
    for cell in grid():
        found[cell] = kept(out, cell.name, partial(setting.run, cell))
        asked = cell.asked(n, steps, given.users_a_step)
        table.append(row(cell, asked, found[cell]))
        print(line(table[-1]), flush=True)
    write(given.out / "last_layer.csv", table)
    reached = (reference.last, "not private")
    draw(given.out / "last_layer.png", panels(found), y="top-5 accuracy in the test", level=reached)


if __name__ == "__main__":
    main()
