"""The last layer of a network on features of pictures: Figure 4 of the element-level paper.

A softmax regression by Algorithm 1 and update (15), with sampled pairs of user and element instead
of users. The paper's features are ResNet-50's of Flickr pictures, which are not public. Here they
are
learned without labels, and *not by a network*: 256 centres of k-means among whitened patches of 6 ×
6, and the closeness of the patches in the four quarters of a picture to each of them (Coates, Lee
and Ng, 2011). They are learned on the first 10,000 pictures of CIFAR-10, which are declared public;
so are the centres of K = 50 or 500 elements, the moments that standardise features, and the two
constants of a plan. Users have the other 40,000.

    python experiments/last_layer.py [--pictures 200000] [--seeds 2] [--out experiments/out]
    python experiments/last_layer.py --features FILE.npz

Custom features are arrays ``public``, ``x`` and ``test_x`` of a file, and classes ``public_y``,
``y`` and ``test_y``. A finished cell is stored in a file, and the same command continues with the
next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from images import (
    HEADER,
    HELD,
    PUBLIC,
    TEST,
    Cell,
    Pictures,
    by_kind,
    line,
    pseudo_users,
    rows,
)
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
    plain,
    private,
    said,
    tables,
)
from numpy.typing import NDArray
from results import write
from sklearn.cluster import KMeans, MiniBatchKMeans

nn, functional = torch.nn, torch.nn.functional
FloatArray = NDArray[np.float32]

USERS, EPSILONS = 8000, (1.0, 3.0)
# Elements of a user, and all elements.
KINDS = ((5, 50), (30, 50), (5, 500), (30, 500), (100, 500))
# Pixels of a patch's side and between patches, centres, and patches that these are learned from.
_SIDE, _STRIDE, _CENTRES, _PATCHES = 6, 2, 256, 50_000
# Patches per row of a picture.
_ACROSS = (32 - _SIDE) // _STRIDE + 1
# The l2 distance that noise may move the weights, chosen with users of public pictures.
_DRIFT = 100.0
# Additional numbers of steps and multiples of pictures for one cell.
_OTHERS = ((1, 25), (1, 400), (1, 1600), (4, None))


# Features --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoder:
    """Features learned from patches without labels.

    Args:
        mean: (108,) of patches.
        whitening: (108, 108) matrix applied to centred patches.
        centres: (c, 108) of whitened patches.
    """

    mean: Any
    whitening: Any
    centres: Any

    @staticmethod
    def learned(pixels: Any, centres: int = _CENTRES) -> Encoder:
        """Learn from patches of some pictures, drawn by chance."""
        rng = torch.Generator().manual_seed(0)
        each = max(1, _PATCHES // len(pixels))
        found = [_patches(some)[:, torch.randint(_ACROSS**2, (each,), generator=rng)]
                 for some in pixels.split(100)]  # fmt: skip
        x = torch.cat(found).flatten(0, 1)
        mean = x.mean(dim=0)
        values, vectors = torch.linalg.eigh(torch.cov((x - mean).T))
        whitening = vectors / (values + 0.1).sqrt() @ vectors.T
        means = MiniBatchKMeans(centres, n_init=1, batch_size=4096, random_state=0)
        white = means.fit(((x - mean) @ whitening).numpy()).cluster_centers_
        return Encoder(mean, whitening, torch.from_numpy(white).float())

    def features(self, pixels: Any) -> FloatArray:
        """(m, 4c) how near patches of each quarter of a picture are to each centre."""
        return np.concatenate([self._of(some).numpy() for some in pixels.split(100)])

    def _of(self, pixels: Any) -> Any:
        x = (_patches(pixels) - self.mean) @ self.whitening
        distances = torch.cdist(x, self.centres.expand(len(x), -1, -1))
        near = (distances.mean(dim=2, keepdim=True) - distances).clamp_(min=0)
        square = near.transpose(1, 2).unflatten(2, (_ACROSS, _ACROSS))
        return functional.avg_pool2d(square, _ACROSS // 2).flatten(1)


def _patches(pixels: Any) -> Any:
    """(m, patches, 108) of pictures, each less its mean and over its standard deviation."""
    found = functional.unfold(pixels.float(), _SIDE, stride=_STRIDE).transpose(1, 2)
    variance, mean = torch.var_mean(found, dim=2, keepdim=True)
    return (found - mean) / (variance + 10).sqrt()


@dataclass(frozen=True)
class Features:
    """Features of pictures in three parts, moved by the mean of public ones and scaled to length 1.

    Args:
        public: (m₀, d) features that define the elements.
        public_y: (m₀,) their classes.
        x: (m, d) the users' features.
        y: (m,) their classes.
        test_x: (m', d) the test's features.
        test_y: (m',) their classes.
        top: the number of first classes among which the right one must be.
    """

    public: FloatArray
    public_y: IntArray
    x: Any
    y: Any
    test_x: Any
    test_y: Any
    top: int = 1

    @staticmethod
    def read(file: Path, device: str = "cpu", top: int = 1) -> Features:
        """Read arrays from a file, and scale them."""
        with np.load(file) as arrays:
            mean, sd = arrays["public"].mean(axis=0), arrays["public"].std(axis=0) + 1e-6

            def scaled(name: str) -> FloatArray:
                x = (arrays[name] - mean) / sd
                found: FloatArray = x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-12)
                return found

            public, public_y = scaled("public"), arrays["public_y"]
            held = scaled("x"), arrays["y"], scaled("test_x"), arrays["test_y"]
        x, y, test_x, test_y = (torch.from_numpy(array).to(device) for array in held)
        return Features(public, public_y, x, y, test_x, test_y, top)

    @property
    def weights(self) -> int:
        """The number of weights of the layer."""
        return int(self.x.shape[1]) * self.classes

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.public_y.max()) + 1

    def learning_rate(self) -> float:
        """One over the largest curvature of the mean loss of public pictures, at weights 0."""
        curvatures = np.linalg.eigvalsh(self.public.T @ self.public / len(self.public))
        return self.classes / float(curvatures[-1])

    def loss(self, module: Any, places: Any) -> Any:
        """The mean cross-entropy of some pictures."""
        places = places.to(self.y.device)
        return functional.cross_entropy(module(self.x[places]), self.y[places])

    def figure(self, module: Any, whole: bool) -> float:
        """Share of the test with its class among the first ones; on a fifth during training."""
        most = len(self.test_y) if whole else len(self.test_y) // 5
        return accuracy(module, self.test_x[:most], self.test_y[:most], top=self.top, rows=1000)

    def network(self) -> Any:
        """One linear layer, which begins with zeros; features have the mean 0 and need no constant."""
        layer = nn.Linear(self.x.shape[1], self.classes, bias=False).to(self.y.device)
        nn.init.zeros_(layer.weight)
        return layer

    def elements(self, number: int) -> IntArray:
        """(m,) the element of each private picture: its nearest centre among public ones."""
        found = KMeans(number, init="k-means++", n_init=1, max_iter=10, random_state=0)
        return np.asarray(found.fit(self.public).predict(self.x.cpu().numpy()), dtype=np.int64)


def learned(file: Path, most: int | None = None) -> Path:
    """Write features of CIFAR-10 to a file, if it is not there."""
    if not file.is_file():
        folder = tables(PUBLIC, *HELD, TEST)
        public, held, test = (Pictures.read(folder, n, most) for n in ([PUBLIC], HELD, [TEST]))
        encoder = Encoder.learned(public.pixels)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            file, public=encoder.features(public.pixels), public_y=public.labels.numpy(),
            x=encoder.features(held.pixels), y=held.labels.numpy(),
            test_x=encoder.features(test.pixels), test_y=test.labels.numpy(),
        )  # fmt: skip
    return file


# Cells -----------------------------------------------------------------------------------------


def grid(n: int, pictures: int, seeds: int) -> Iterator[Cell]:
    """All cells, by seed; and one of them with other steps, and more pictures."""
    for seed in range(seeds):
        for epsilon in EPSILONS:
            for k, elements in KINDS:
                yield Cell(n, k, elements, "element", epsilon, pictures, seed)
            yield Cell(n, 30, 500, "user", epsilon, pictures, seed)
        yield Cell(n, 30, 500, "element", math.inf, pictures, seed)
    for times, steps in _OTHERS:
        yield Cell(n, 30, 500, "element", 3.0, times * pictures, 0, steps)


@dataclass(frozen=True, eq=False)
class Setting:
    """Shared settings of all cells."""

    features: Features
    max_rows: int = 1024

    @cache  # noqa: B019 - one setting lives as long as the command
    def elements(self, number: int) -> IntArray:
        """The element of each picture, among this number of elements."""
        return self.features.elements(number)

    @cache  # noqa: B019
    def users(self, n: int, k: int, elements: int, seed: int) -> Records:
        """Pseudo-users with pictures of k of this number of elements."""
        return pseudo_users(self.elements(elements), n, k, seed)

    @cache  # noqa: B019
    def learning_rate(self) -> float:
        """The largest learning rate."""
        return self.features.learning_rate()

    def asked(self, cell: Cell) -> Asked:
        """The plan of a cell."""
        return cell.asked(self.learning_rate(), _DRIFT, self.features.weights)

    def run(self, cell: Cell) -> Curve:
        """Train one cell."""
        features, users = self.features, self.users(cell.n, cell.k, cell.elements, cell.seed)
        return private(
            features.network(), features.loss, features.figure, users, self.asked(cell),
            seed=cell.seed, max_rows=self.max_rows,
        )  # fmt: skip

    def without_privacy(self) -> Curve:
        """Train on all users' pictures, in batches of 64, four times."""
        features = self.features
        return plain(
            features.network(), features.loss, features.figure, np.arange(len(features.y)),
            epochs=4, batch=64, learning_rate=0.1 * self.learning_rate(), seed=0,
        )  # fmt: skip


_COLOURS = dict(
    zip(KINDS, ("tab:orange", "tab:red", "tab:cyan", "tab:blue", "tab:purple"), strict=True)
)


def panels(found: dict[Cell, Curve]) -> dict[str, list[Line]]:
    """Lines by ε; and the final result of one cell, against the number of its steps."""
    drawn: dict[str, list[Line]] = {f"ε = {said(e)}": [] for e in EPSILONS}
    kinds, least = by_kind(found), min(cell.pictures for cell in found)
    for cell, curves in kinds.items():
        style, colour = "-" if cell.level == "element" else "--", _COLOURS[cell.k, cell.elements]
        label = f"{cell.level}, {cell.k} of {cell.elements}"
        if cell.pictures == least and cell.steps is None and not math.isinf(cell.epsilon):
            drawn[f"ε = {said(cell.epsilon)}"].append(Line(label, curves, colour, style))
    ends: dict[int, dict[int, float]] = {}
    for cell, (curve, *_) in kinds.items():
        if (cell.k, cell.elements, cell.level, cell.epsilon) == (30, 500, "element", 3.0):
            ends.setdefault(cell.pictures, {})[curve.steps[-1]] = curve.last
    drawn["30 of 500, ε = 3: the end, by steps"] = [
        Line(f"{pictures:,} pictures", [_ends(dict(sorted(some.items())))], colour, "o:")
        for colour, (pictures, some) in zip(("tab:blue", "tab:green"), ends.items(), strict=False)
    ]
    return drawn


def _ends(last: dict[int, float]) -> Curve:
    """The last figure by the number of steps, as a curve."""
    return Curve(tuple(last), tuple(last.values()), 0.0, 0.0, 0.0, 0.0)


# Command ---------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", pictures=200_000, seeds=2, users=USERS, top=1)
    parser.set_defaults(max_rows=1024)
    parser.add_argument("--features", type=Path, help="a file with features of one's own")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.quick:
        given.pictures, given.seeds, given.users = 2000, 1, 100
    folder = given.out / "last_layer"
    file = given.features or learned(
        folder / ("few.npz" if given.quick else "features.npz"), 300 if given.quick else None
    )
    setting = Setting(Features.read(file, given.device, given.top), given.max_rows)
    out = folder / f"{file.stem}_{given.users}_users"
    found = {}
    for cell in grid(given.users, given.pictures, given.seeds):
        found[cell] = kept(out, cell.name, partial(setting.run, cell))
        print(f"{cell.name}: {found[cell].last:.1%} ({found[cell].seconds:.0f} s)", flush=True)
    reference = kept(out, "not_private", setting.without_privacy)
    table = [*rows(setting.asked, found, reference)]
    print(f"not private: {reference.last:.1%}", HEADER, *map(line, table), sep="\n")
    write(given.out, "last_layer", table)
    draw(
        given.out / "last_layer.png", panels(found), y="accuracy in the test",
        level=(reference.last, "not private"), logarithmic=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
