"""A network on pictures, trained at user and element level: Figure 5 of the element-level paper.

The network of PyTorch's tutorial on CIFAR-10, Algorithm 1 and update (15) of the paper, with
sampled pairs of user and element instead of sampled users, because the latter's amplification for
elements is false. The 50,000 training pictures are two parts. The first file, 10,000 pictures, is
public: an encoder is trained on it, and the centres of K = 100 elements are k-means++ of its
features, so that the partition depends on no user's pictures. The other 40,000 belong to
pseudo-users: each has 100 pictures in equal parts of k = 5 or 30 random elements, and pictures may
belong to several users. The 10,000 test pictures are used for nothing else.

    python experiments/images.py [--pictures 600000] [--all] [--out experiments/out]
    python experiments/images.py --all --pictures 400000000 --device cuda --max-rows 10000

By default it runs the half of the figure with n = 8,000 and k = 30, beginning with its headline (ε
= 3 for elements, three seeds); ``--all`` runs the whole grid. Every run reads the same number of
pictures, and its steps, users per step and learning rate are a plan from public numbers
(``Asked.planned``). The second command reads the paper's number, 40,000 steps of 100 users, which
needs a GPU. A finished cell is stored in a file, and the same command continues with the next one;
``--quick`` checks that it runs. Pictures are read from the folder in DPGRAIN_DATA.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    bills,
    draw,
    kept,
    options,
    plain,
    private,
    said,
    tables,
)
from numpy.typing import NDArray
from PIL import Image
from results import write
from sklearn.cluster import KMeans

from dpgrain.optimize import Weighted
from dpgrain.units import Element, User

nn, functional = torch.nn, torch.nn.functional

PUBLIC = "cifar10/cifar10_q90_train_0.parquet"
HELD = tuple(f"cifar10/cifar10_q90_train_{i}.parquet" for i in range(1, 5))
TEST = "cifar10/cifar10_q90_test.parquet"
CLASSES, ELEMENTS, PICTURES = 10, 100, 100
EPSILONS, LEVELS = (3.0, math.inf, 1.0), ("element", "user")
# Weights of the network.
_WEIGHTS = 62_006
# The largest learning rate, and the l2 distance that noise may move the weights: rate 2 was better
# than 1 in 200 steps on public pictures, with noise moving the weights by 12.5.
_LEARNING_RATE, _DRIFT = 2.0, 16.0
# Exponent of the weights of averaged iterates: about the last quarter counts.
_POWER = 3.0


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
        """The network's inputs: (rows, 3, 32, 32) from −1 to 1, as in the tutorial."""
        return self.pixels[places.to(self.pixels.device)].float() / 127.5 - 1.0

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
    """(m,) the element of each private picture; the partition follows from public ones."""
    body, whole = encoder(0)
    _ = plain(
        whole.to(public.labels.device), public.loss, lambda *_: 0.0, np.arange(len(public)),
        epochs=epochs, batch=100, learning_rate=0.05, seed=0,
    )  # fmt: skip
    centres = KMeans(elements, init="k-means++", n_init=1, random_state=0)
    centres.fit(_features(body, public))
    return np.asarray(centres.predict(_features(body, held)), dtype=np.int64)


def _features(body: Any, pictures: Pictures) -> NDArray[np.float64]:
    body.eval()
    with torch.no_grad():
        parts = [body(pictures.inputs(p)) for p in torch.arange(len(pictures)).split(250)]
    return np.asarray(torch.cat(parts).double().cpu().numpy())


def pseudo_users(elements: IntArray, n: int, k: int, seed: int, most: int = PICTURES) -> Records:
    """Users with ``most`` pictures each, in equal parts of k random elements.

    Args:
        elements: (m,) the element of each picture.
        n: the number of users.
        k: the number of elements of each.
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
    """One run of a grid.

    Args:
        n: the number of users.
        elements: the number of all elements K.
        level: ``"user"`` or ``"element"``.
        epsilon: the guaranteed ε; ∞ for almost no noise.
        pictures: the expected number of pictures that it reads.
        steps: the number of steps T; by default the plan's with the longest reach.
    """

    n: int
    k: int
    elements: int
    level: str
    epsilon: float
    pictures: int
    seed: int = 0
    steps: int | None = None

    @property
    def name(self) -> str:
        """The name of its file."""
        kind = f"{self.level}_{self.n}_users_{self.k}_of_{self.elements}_eps{self.epsilon:g}"
        steps = "" if self.steps is None else f"_{self.steps}_steps"
        return f"{kind}_{self.pictures}_pictures{steps}_seed{self.seed}"

    def asked(self, learning_rate: float, drift: float, weights: int) -> Asked:
        """The plan of the run, for a network with this number of weights and averaged iterates."""
        unit, blocks = (User(), 1) if self.level == "user" else (Element(), self.k)
        steps, passes = self.steps or 1, self.pictures / (self.n * PICTURES)
        asked = Asked(
            unit, self.epsilon, self.n, blocks, steps, passes / steps,
            learning_rate=learning_rate, drift=drift, average=Weighted(_POWER),
        )  # fmt: skip
        return asked if self.steps else asked.planned(weights)


def grid(pictures: int, whole: bool = False) -> list[Cell]:
    """The cells that are run: n = 8,000 with k = 30, the three of the headline first; or all."""
    half = [(8000, 30)] if not whole else product((8000, 2000), (30, 5))
    cells = [
        Cell(n, k, ELEMENTS, level, epsilon, pictures, seed)
        for seed, (n, k), epsilon, level in product((0, 1, 2), half, EPSILONS, LEVELS)
        if seed < 2 or (level, epsilon) == ("element", 3.0)
    ]
    return sorted(cells, key=lambda cell: (cell.level, cell.epsilon) != ("element", 3.0))


@dataclass(frozen=True)
class Setting:
    """Shared settings of all cells.

    Args:
        elements: (m,) the element of each private picture.
        most: the number of pictures of each user.
    """

    held: Pictures
    test: Pictures
    elements: IntArray
    most: int = PICTURES
    max_rows: int = 512

    def figure(self, module: Any, whole: bool) -> float:
        """The accuracy in the test, during training on a fifth of it."""
        most = len(self.test) if whole else len(self.test) // 5
        inputs = self.test.inputs(torch.arange(most))
        return accuracy(module, inputs, self.test.labels[:most])

    def asked(self, cell: Cell) -> Asked:
        """The plan of a cell.

        With k times the pictures the random part of the mean gradient is √k smaller, so clipping
        leaves up to √k times as much of the users' common part, and steps are longer.
        """
        longer = math.sqrt(cell.k) if cell.level == "user" else 1.0
        return cell.asked(_LEARNING_RATE / longer, _DRIFT, _WEIGHTS)

    def run(self, cell: Cell) -> Curve:
        """Train one cell."""
        device = self.held.labels.device
        return private(
            tutorial_network(cell.seed).to(device),
            self.held.loss,
            self.figure,
            pseudo_users(self.elements, cell.n, cell.k, cell.seed, self.most),
            self.asked(cell),
            seed=cell.seed,
            max_rows=self.max_rows,
        )

    def without_privacy(self, epochs: int) -> Curve:
        """Train on all users' pictures, like the tutorial, in batches of 32."""
        module = tutorial_network(0).to(self.held.labels.device)
        places = np.arange(len(self.held))
        return plain(
            module, self.held.loss, self.figure, places,
            epochs=epochs, batch=32, learning_rate=0.01, seed=0,
        )  # fmt: skip


# Tables and pictures ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of the table: one cell, over its seeds.

    Args:
        n: the number of users.
        elements: the number of all elements K.
        epsilon: the promised ε of one user, or one element, at δ = 1e-6.
        pictures: the expected number of read pictures.
        steps: the number of steps T.
        seeds: the number of runs.
        accuracy: in the test after the last step, mean of the runs.
        behind: by how much the mean is below the accuracy without privacy.
        noise_multiplier: noise sd ÷ clipping bound, with blocks drawn one by one.
        users_drawn: the proved ε of one element with the same noise if users are sampled, which the
            paper states as ``epsilon``; only at element level.
        whole_user: the ε that the same run promises to a user with k elements.
        seconds: the time of the processor for a run.
    """

    n: int
    k: int
    elements: int
    level: str
    epsilon: float
    pictures: int
    steps: int
    seeds: int
    accuracy: float
    least: float
    most: float
    behind: float
    noise_multiplier: float
    users_drawn: float
    whole_user: float
    seconds: float


def by_kind(found: dict[Cell, Curve]) -> dict[Cell, list[Curve]]:
    """The curves of all seeds, by the cell of seed 0."""
    kinds: dict[Cell, list[Curve]] = {}
    for cell, curve in found.items():
        kinds.setdefault(replace(cell, seed=0), []).append(curve)
    return kinds


def rows(
    plan: Callable[[Cell], Asked], found: dict[Cell, Curve], reference: Curve
) -> Iterator[Row]:
    """The table of all cells that there are, from the plan of each."""
    for cell, curves in by_kind(found).items():
        asked, lasts = plan(cell), [curve.last for curve in curves]
        yield Row(
            cell.n, cell.k, cell.elements, cell.level, cell.epsilon, cell.pictures, asked.steps,
            len(curves), mean := float(np.mean(lasts)), min(lasts), max(lasts),
            reference.last - mean, curves[0].noise_multiplier, **bills(asked, cell.k),
            seconds=float(np.mean([curve.seconds for curve in curves])),
        )  # fmt: skip


HEADER = (
    "| n | k / K | level | ε | pictures | steps | seeds | accuracy | least – most | behind "
    "| noise ÷ bound | users drawn | user | s |\n"
    "| --: | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    drawn = "" if math.isnan(row.users_drawn) else f"{row.users_drawn:.1f}"
    noise = "0" if math.isinf(row.epsilon) else f"{row.noise_multiplier:.3f}"
    return (
        f"| {row.n:,} | {row.k} / {row.elements} | {row.level} | {said(row.epsilon)} "
        f"| {row.pictures:,} | {row.steps:,} | {row.seeds} | {row.accuracy:.1%} "
        f"| {row.least:.1%} – {row.most:.1%} | {row.behind:.1%} | {noise} | {drawn} "
        f"| {said(round(row.whole_user, 1))} | {row.seconds:.0f} |"
    )


_COLOURS = {1.0: "tab:red", 3.0: "tab:blue", math.inf: "0.25"}


def panels(found: dict[Cell, Curve]) -> dict[str, list[Line]]:
    """Lines by number of users and elements, against pictures in thousands."""
    drawn: dict[str, list[Line]] = {}
    for cell, curves in by_kind(found).items():
        looks = Line(
            f"{cell.level}, ε = {said(cell.epsilon)}",
            curves,
            _COLOURS[cell.epsilon],
            "-" if cell.level == "element" else "--",
            scale=cell.pictures / curves[0].steps[-1] / 1000,
        )
        drawn.setdefault(f"n = {cell.n:,}, elements {cell.k} of {ELEMENTS}", []).append(looks)
    return drawn


# Command ---------------------------------------------------------------------------------------


def prepared(out: Path, *, quick: bool, device: str = "cpu") -> tuple[Pictures, Pictures, IntArray]:
    """The users' pictures, the test's, and elements, cached in a file."""
    folder, most = tables(PUBLIC, *HELD, TEST), 400 if quick else None
    held, test = (Pictures.read(folder, names, most).to(device) for names in (HELD, [TEST]))
    file = out / "elements.npy"
    if not file.is_file():
        public = Pictures.read(folder, [PUBLIC], most).to(device)
        found = elements_of(held, public, epochs=1 if quick else 8, elements=ELEMENTS)
        out.mkdir(parents=True, exist_ok=True)
        np.save(file, found)
    return held, test, np.load(file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", pictures=600_000)
    parser.set_defaults(max_rows=512)
    parser.add_argument("--all", action="store_true", help="every cell of the paper's figure")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out, most, cells = given.out / "images", PICTURES, grid(given.pictures, given.all)
    if given.quick:
        out, most = out / "quick", 10
        cells = [Cell(40, 5, 100, level, e, 8000) for level in LEVELS for e in (3.0, math.inf)]
    held, test, elements = prepared(out, quick=given.quick, device=given.device)
    setting = Setting(held, test, elements, most, given.max_rows)
    found = {}
    for cell in cells:
        found[cell] = kept(out, cell.name, partial(setting.run, cell))
        print(f"{cell.name}: {found[cell].last:.1%} ({found[cell].seconds:.0f} s)", flush=True)
    reference = kept(out, "not_private", partial(setting.without_privacy, 1 if given.quick else 6))
    table = [*rows(setting.asked, found, reference)]
    print(f"not private: {reference.last:.1%}", HEADER, *map(line, table), sep="\n")
    write(given.out, "images", table)
    draw(
        given.out / "images.png", panels(found), y="accuracy in the test",
        x="pictures read, in thousands", level=(reference.last, "not private"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
