"""A network on pictures, trained at user and element level: Figure 5 of the element-level paper.

The network of PyTorch's tutorial on CIFAR-10, Algorithm 1 and update (15) of the paper, with pairs of
user and element drawn in place of users, whose amplification for elements is false. The 50,000 pictures
for training are two parts. The first file, 10,000 pictures, is public: an encoder is trained on it, and
the centres of K = 100 elements are k-means++ of its features, so that the partition depends on nobody's
pictures. The other 40,000 are held by pseudo-users: each has 100 pictures in equal parts of k = 5 or 30
elements, drawn by chance, and pictures may be held by several users. The 10,000 pictures of the test
enter nothing else.

    python experiments/images.py [--steps 1000] [--users-a-step 2] [--all] [--out experiments/out]
    python experiments/images.py --paper --device cuda --max-rows 10000

By default it makes every cell of n = 2,000 users (ε = 3 with two seeds), and of n = 8,000 the cells
with ε = 3 and k = 5. ``--all`` makes the whole grid with two seeds, and ``--paper`` makes it with
40,000 steps of 100 users, for which a GPU is needed. A cell that is finished is kept in a file, and the
same command goes on with the next one; ``--quick`` shows that it runs. Pictures are read from the
folder that DPGRAIN_DATA names.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
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
    tables,
    with_users_drawn,
    write,
)
from numpy.typing import NDArray
from PIL import Image
from sklearn.cluster import KMeans

from dpgrain.units import Element, User

nn, functional = torch.nn, torch.nn.functional

PUBLIC = "cifar10/cifar10_q90_train_0.parquet"
HELD = tuple(f"cifar10/cifar10_q90_train_{i}.parquet" for i in range(1, 5))
TEST = "cifar10/cifar10_q90_test.parquet"
CLASSES, ELEMENTS, PICTURES = 10, 100, 100
EPSILONS, LEVELS = (1.0, 3.0, math.inf), ("element", "user")
# Chosen in a few runs of 60 to 300 steps on another seed, mostly with k = 30 at ε = 3 and ∞.
_LEARNING_RATE, _DRIFT = 0.4, 12.0


# Pictures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pictures:
    """Pictures with their classes.

    Args:
        pixels: (m, 3, 32, 32) from 0 to 255.
        labels: (m,) classes.
    """

    pixels: Any
    labels: Any

    @staticmethod
    def read(folder: Path, names: Sequence[str], most: int | None = None) -> Pictures:
        """Decode the pictures of some files, or the first ones of each."""
        tables = [pq.read_table(folder / name, columns=["label", "jpeg"]) for name in names]
        some = [table.slice(0, most) for table in tables]
        pixels = [_decoded(jpeg) for table in some for jpeg in table["jpeg"].to_pylist()]
        labels = np.concatenate([table["label"].to_numpy() for table in some])
        return Pictures(torch.from_numpy(np.stack(pixels)), torch.from_numpy(labels).long())

    def to(self, device: str) -> Pictures:
        """The same on a device."""
        return Pictures(self.pixels.to(device), self.labels.to(device))

    def inputs(self, places: Any) -> Any:
        """What goes into a network: (rows, 3, 32, 32) from −1 to 1, as in the tutorial."""
        return self.pixels[places.to(self.pixels.device)].float().div_(127.5).sub_(1.0)

    def loss(self, module: Any, places: Any) -> Any:
        """The mean cross-entropy of some pictures."""
        return functional.cross_entropy(
            module(self.inputs(places)), self.labels[places.to(self.labels.device)]
        )

    def __len__(self) -> int:
        return len(self.labels)


def _decoded(jpeg: bytes) -> NDArray[np.uint8]:
    """(3, 32, 32)."""
    return np.asarray(Image.open(io.BytesIO(jpeg)), dtype=np.uint8).transpose(2, 0, 1)


def tutorial_network(seed: int) -> Any:
    """The network of PyTorch's tutorial on CIFAR-10, 62,006 weights."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


# Elements and users ----------------------------------------------------------------------------


def encoder(seed: int) -> tuple[Any, Any]:
    """A network of four convolutions, up to its 128 features, and with its classes."""
    torch.manual_seed(seed)
    layers: list[Any] = []
    for before, after in ((3, 32), (32, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    body = nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return body, nn.Sequential(body, nn.Linear(128, CLASSES))


def elements_of(held: Pictures, public: Pictures, *, epochs: int, elements: int) -> IntArray:
    """(m,) the element of each picture that users may hold; the partition is made of public ones."""
    body, whole = encoder(0)
    _ = plain(
        whole, public.loss, lambda *_: 0.0, np.arange(len(public)),
        epochs=epochs, batch=100, learning_rate=0.05, seed=0,
    )  # fmt: skip
    centres = KMeans(elements, init="k-means++", n_init=1, random_state=0)
    centres.fit(_features(body, public))
    return np.asarray(centres.predict(_features(body, held)), dtype=np.int64)


def _features(body: Any, pictures: Pictures) -> NDArray[np.float64]:
    body.eval()
    with torch.no_grad():
        parts = [body(pictures.inputs(p)) for p in torch.arange(len(pictures)).split(250)]
    return np.asarray(torch.cat(parts).double().numpy())


def pseudo_users(elements: IntArray, n: int, k: int, seed: int, most: int = PICTURES) -> Records:
    """Users with ``most`` pictures each, in equal parts of k elements that are drawn by chance.

    Args:
        elements: (m,) the element of each picture.
        n: the number of users.
        k: the number of elements of each.
        seed: of the draws.
        most: the number of pictures of each user.
    """
    rng = np.random.default_rng(seed)
    members = [rows for c in np.unique(elements) if len(rows := np.flatnonzero(elements == c))]
    sizes = np.full(k, most // k) + (np.arange(k) < most % k)
    places = []
    for _ in range(n):
        for cell, size in zip(rng.choice(len(members), k, replace=False), sizes, strict=True):
            held = members[cell]
            places.append(rng.choice(held, size, replace=size > len(held)))
    found = np.concatenate(places)
    return Records(found, np.repeat(np.arange(n), most), elements[found], n)


# Cells of the grid -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Args:
        n: the number of users.
        k: the elements of each.
        level: ``"user"`` or ``"element"``.
        epsilon: the promised ε; ∞ for hardly any noise.
        seed: of users, weights, draws and noise.
    """

    n: int
    k: int
    level: str
    epsilon: float
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of its file."""
        epsilon = "inf" if math.isinf(self.epsilon) else f"{self.epsilon:g}"
        return f"{self.level}_n{self.n}_k{self.k}_eps{epsilon}_seed{self.seed}"

    def asked(self, steps: int, users: float) -> Asked:
        """The public numbers of a run with so many steps, and users a step."""
        unit, blocks = (User(), 1) if self.level == "user" else (Element(), self.k)
        return Asked(
            unit, self.epsilon, self.n, blocks, steps, users / self.n,
            learning_rate=_LEARNING_RATE, drift=_DRIFT,
        )  # fmt: skip


def grid() -> list[Cell]:
    """The cells that a processor can make without help: n = 2,000, and a few of n = 8,000."""
    small = [
        Cell(2000, k, level, epsilon, seed)
        for epsilon, seeds in ((3.0, 2), (math.inf, 1), (1.0, 1))
        for seed in range(seeds)
        for k in (5, 30)
        for level in LEVELS
    ]
    return [*small, *(Cell(8000, 5, level, 3.0) for level in LEVELS)]


def whole_grid() -> list[Cell]:
    """All cells of the paper, with two seeds, those of :func:`grid` first."""
    first, whole = grid(), product((2000, 8000), (5, 30), LEVELS, EPSILONS, (0, 1))
    return [*first, *(cell for numbers in whole if (cell := Cell(*numbers)) not in first)]


@dataclass(frozen=True)
class Setting:
    """What all cells share.

    Args:
        held: the pictures that users hold.
        test: the pictures of the test.
        elements: (m,) the element of each picture that is held.
        steps: the number of steps T.
        users: the expected number of users a step, by n.
        most: the number of pictures of each user.
        max_rows: the most rows of a batch.
    """

    held: Pictures
    test: Pictures
    elements: IntArray
    steps: int
    users: dict[int, float]
    most: int = PICTURES
    max_rows: int = 256

    def figure(self, module: Any, whole: bool) -> float:
        """The accuracy in the test, on the way in a fifth of it."""
        most = len(self.test) if whole else len(self.test) // 5
        inputs = self.test.inputs(torch.arange(most))
        return accuracy(module, inputs, self.test.labels[:most])

    def run(self, cell: Cell) -> Curve:
        """Train one cell."""
        device = self.held.labels.device
        return private(
            tutorial_network(cell.seed).to(device),
            self.held.loss,
            self.figure,
            pseudo_users(self.elements, cell.n, cell.k, cell.seed, self.most),
            cell.asked(self.steps, self.users[cell.n]),
            seed=cell.seed,
            max_rows=self.max_rows,
        )

    def without_privacy(self, epochs: int) -> Curve:
        """Train on all pictures that users hold, as the tutorial does, in batches of 32."""
        module = tutorial_network(0).to(self.held.labels.device)
        places = np.arange(len(self.held))
        return plain(
            module, self.held.loss, self.figure, places,
            epochs=epochs, batch=32, learning_rate=0.01, seed=0,
        )  # fmt: skip


# Tables and pictures ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of the table: one cell, the mean over its seeds.

    Args:
        n: the number of users.
        k: the elements of each.
        level: user or element.
        epsilon: the promised ε of one user, or one element, at δ = 1e-6.
        seeds: how many runs.
        accuracy: in the test after the last step.
        behind: by how much it is below the accuracy without privacy.
        noise_multiplier: noise sd ÷ clipping bound, with blocks drawn one by one.
        users_drawn: the ε of one element that is proved of the same noise where users are drawn, which
            the paper bills at ``epsilon``; of element level alone.
        whole_user: the ε that the same run promises to a user with k elements.
        seconds: the time of the processor for a run.
    """

    n: int
    k: int
    level: str
    epsilon: float
    seeds: int
    accuracy: float
    behind: float
    noise_multiplier: float
    users_drawn: float
    whole_user: float
    seconds: float


def rows(setting: Setting, found: dict[Cell, Curve], reference: Curve) -> Iterator[Row]:
    """The table of all cells that there are."""
    kinds = sorted({(c.n, c.k, c.level, c.epsilon) for c in found})
    for n, k, level, epsilon in kinds:
        curves = [
            v for c, v in found.items() if (c.n, c.k, c.level, c.epsilon) == (n, k, level, epsilon)
        ]
        noise, rate = curves[0].noise_multiplier, setting.users[n] / n
        drawn, user = math.nan, epsilon
        if level == "element" and not math.isinf(epsilon):
            drawn = with_users_drawn(noise, setting.steps, rate, k)
            user = pairs_drawn(noise, setting.steps, rate, User(max_elements=k))
        last = float(np.mean([curve.last for curve in curves]))
        seconds = float(np.mean([curve.seconds for curve in curves]))
        behind = reference.last - last
        yield Row(n, k, level, epsilon, len(curves), last, behind, noise, drawn, user, seconds)


HEADER = (
    "| n | k | level | ε | seeds | accuracy | behind | noise ÷ bound | users drawn | user | s |\n"
    "| --: | --: | --- | --: | --: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    drawn = "" if math.isnan(row.users_drawn) else f"{row.users_drawn:.1f}"
    noise = "0" if math.isinf(row.epsilon) else f"{row.noise_multiplier:.3f}"
    user = said(round(row.whole_user, 1))
    return (
        f"| {row.n:,} | {row.k} | {row.level} | {said(row.epsilon)} | {row.seeds} | "
        f"{row.accuracy:.1%} | {row.behind:.1%} | {noise} | {drawn} | {user} | {row.seconds:.0f} |"
    )


_COLOURS = {1.0: "tab:red", 3.0: "tab:blue", math.inf: "0.25"}


def panels(found: dict[Cell, Curve]) -> dict[str, list[Line]]:
    """Lines by number of users and elements."""
    drawn: dict[str, list[Line]] = {}
    for n, k in sorted({(c.n, c.k) for c in found}):
        lines = [
            Line(
                f"{level}, ε = {said(epsilon)}",
                curves,
                _COLOURS[epsilon],
                "-" if level == "element" else "--",
            )
            for epsilon in EPSILONS
            for level in LEVELS
            if (curves := [v for c, v in found.items()
                           if (c.n, c.k, c.epsilon, c.level) == (n, k, epsilon, level)])
        ]  # fmt: skip
        drawn[f"n = {n:,}, elements {k} of {ELEMENTS}"] = lines
    return drawn


# Command ---------------------------------------------------------------------------------------


def prepared(out: Path, *, quick: bool) -> tuple[Pictures, Pictures, IntArray]:
    """The pictures that users hold, those of the test, and elements, which are kept in a file."""
    folder, most = tables(PUBLIC, *HELD, TEST), 400 if quick else None
    held, test = Pictures.read(folder, HELD, most), Pictures.read(folder, [TEST], most)
    file = out / "elements.npy"
    if not file.is_file():
        public = Pictures.read(folder, [PUBLIC], most)
        found = elements_of(held, public, epochs=1 if quick else 8, elements=ELEMENTS)
        out.mkdir(parents=True, exist_ok=True)
        np.save(file, found)
    return held, test, np.load(file)


def asked_for(given: argparse.Namespace) -> tuple[int, dict[int, float], list[Cell]]:
    """The number of steps, the expected users a step by n, and the cells."""
    if given.quick:
        return 5, {40: 8.0}, [Cell(40, 5, level, e) for level in LEVELS for e in (3.0, math.inf)]
    if given.paper:
        return 40_000, {2000: 100.0, 8000: 100.0}, whole_grid()
    users = {2000: given.users_a_step, 8000: 2 * given.users_a_step}
    return given.steps, users, whole_grid() if given.all else grid()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", steps=1000)
    parser.add_argument("--users-a-step", type=float, default=2, help="expected; twice for 8,000")
    parser.add_argument("--all", action="store_true", help="every cell of the grid, with two seeds")
    parser.add_argument("--paper", action="store_true", help="all, 40,000 steps, 100 users a step")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    steps, users, cells = asked_for(given)
    kind = f"{steps}_steps_{next(iter(users.values())):g}_users"
    out = given.out / "images" / kind
    held, test, elements = prepared(out, quick=given.quick)
    setting = Setting(
        held.to(given.device), test.to(given.device), elements, steps, users,
        10 if given.quick else PICTURES, given.max_rows,
    )  # fmt: skip
    found = {}
    for cell in cells:
        found[cell] = kept(out, cell.name, partial(setting.run, cell))
        print(f"{cell.name}: {found[cell].last:.1%} ({found[cell].seconds:.0f} s)", flush=True)
    epochs = 1 if given.quick else 6
    reference = kept(out, "not_private", partial(setting.without_privacy, epochs))
    table = [*rows(setting, found, reference)]
    print(f"not private: {reference.last:.1%}", HEADER, *map(line, table), sep="\n")
    write(given.out / "images.csv", table)
    level = (reference.last, "not private")
    draw(given.out / "images.png", panels(found), y="accuracy in the test", level=level)


if __name__ == "__main__":
    main()
