"""Cost of clipping by block for a linear model, compared with PyTorch's methods.

Run ``python benchmarks/glm.py [--threads 1 2] [--windows 7] [--only WORDS] [--tuned]``. The peers
come with ``pip install dpgrain[bench]`` (Opacus needs PyTorch); missing ones are skipped.

Every row is a separate process, in single precision and with a bias. Rows are in memory, sorted by
group, before the clock starts, for all methods. All methods alternate in each window; a figure is
the median over windows of the time divided by the plain gradient's in the same window. With one
thread, time is CPU time of the process, which other work on the machine barely affects; with two,
wall time.

- *plain*: the non-private gradient in closed form in numpy, in one piece or in tiles, as is quicker.
- *ours*: the sum over groups of their clipped mean gradients; *first*: the same on new data, when
  nothing that it keeps between steps is there yet.
- *autograd*: the non-private gradient by PyTorch.
- *Opacus*: its gradients per record, added up by group, then clipped and summed.
- *ghost*: its ghost clipping, groups as sequences, sorted and padded in advance, chunk by chunk.
- *vmap*: ``torch.func.vmap(grad)``, added up by group, then clipped and summed.
- *MB*: additional peak memory of one of our steps, with its caches, in a separate process.

Peers with a gradient per record process chunks of whole groups. If a step would take seconds they
process every k-th group, and their time is scaled up by the number of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.optimize import Logistic, MarginLoss, Softmax

Array = NDArray[Any]
Gradient = Callable[[], Array]

# Rows of a tile of the plain gradient; largest numbers in memory for peers' gradients, and
# features.
TILE, GRADIENTS, FEATURES = 1024, 1 << 24, 1 << 21
# Above this number of rows a peer with a gradient per record is measured on some of the groups.
NUMBERS = 1 << 28
# Seconds that a method is repeated for in a window.
WINDOW = 0.05
BOUND_MB = 64


@dataclass(frozen=True)
class Case:
    """One row of the table: a model, a number of rows, a size of groups (ragged if it is a mean).

    Args:
        classes: 2 for logistic regression.
        size: the size of each group, or the mean of geometric ones.
    """

    d: int
    classes: int
    rows: int
    size: int
    ragged: bool = False
    rate: float = 1.0

    @property
    def name(self) -> str:
        model = "logistic" if self.classes == 2 else "softmax"
        groups = f"ragged {self.size}" if self.ragged else f"groups of {self.size}"
        drawn = f", {self.rate:.0%} drawn" if self.rate < 1 else ""
        return f"{model} {self.rows // 1000}k, {groups}{drawn}"


def cases() -> list[Case]:
    """The rows of the table."""
    softmax = partial(Case, 2048, 101, 10_000)
    wide = [softmax(s) for s in (1, 5, 20, 100)]
    wide += [softmax(5, ragged=True), softmax(20, ragged=True), softmax(5, ragged=True, rate=0.5)]
    narrow = [
        Case(10, 2, rows, size, ragged)
        for rows in (10_000, 100_000)
        for size, ragged in ((1, False), (5, False), (20, False), (100, False), (5, True))
    ]
    return wide + narrow


@dataclass(frozen=True)
class Problem:
    """Rows sorted by group, small groups first, a parameter, and a bound that clips half of the groups.

    Args:
        X: (m, d).
        y: (m,) classes.
        sizes: (g,) ascending.
        weights: (C, d); one row for logistic regression.
        bias: (C,).
        clip: the bound.
    """

    X: Array
    y: Array
    sizes: Array
    weights: Array
    bias: Array
    clip: float = 1.0

    @property
    def loss(self) -> MarginLoss:
        outputs = len(self.weights)
        return Logistic() if outputs == 1 else Softmax(outputs)

    @property
    def starts(self) -> Array:
        """The starts of groups, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def groups(self) -> Array:
        """The group of each row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def of(self, which: Array) -> Problem:
        """Only some groups."""
        rows = np.isin(self.groups, which)
        return replace(self, X=self.X[rows], y=self.y[rows], sizes=self.sizes[which])

    def some(self, rows: float) -> Problem:
        """Every k-th group, about this number of rows."""
        step = max(1, round(len(self.y) / rows))
        return self.of(np.arange(0, len(self.sizes), step)) if step > 1 else self

    def blocks(self) -> LinearBlocks:
        """The same for us."""
        return LinearBlocks.arrange(self.X, self.y, self.groups, intercept=True)

    def theta(self) -> Array:
        """The parameter as we take it."""
        return np.column_stack([self.weights, self.bias]).ravel().astype(np.float64)


def problem(case: Case, seed: int = 1) -> Problem:
    """Normal features and a small parameter."""
    rng = np.random.default_rng(seed)
    many = case.rows // case.size + 1
    sizes = rng.geometric(1 / case.size, 2 * many) if case.ragged else np.full(many, case.size)
    ends = np.cumsum(sizes)
    sizes = np.sort(np.diff(np.minimum(ends, case.rows), prepend=0))
    sizes = sizes[sizes > 0]
    outputs = 1 if case.classes == 2 else case.classes
    scale = 1 / math.sqrt(case.d)
    made = Problem(
        rng.standard_normal((case.rows, case.d), dtype=np.float32),
        rng.integers(case.classes, size=case.rows),
        sizes,
        scale * rng.standard_normal((outputs, case.d), dtype=np.float32),
        scale * rng.standard_normal(outputs, dtype=np.float32),
    )
    few = made.of(np.unique(np.linspace(0, len(sizes) - 1, 41).astype(int)))
    return replace(made, clip=float(np.median([np.linalg.norm(g) for g in gradients(few)])))


def gradients(asked: Problem) -> Iterator[Array]:
    """The mean gradient of each group in double precision, one by one: (C, d + 1)."""
    starts = asked.starts
    for first, last in pairwise(starts):
        x = np.column_stack([asked.X[first:last], np.ones(last - first)]).astype(np.float64)
        z = x @ np.column_stack([asked.weights, asked.bias]).T.astype(np.float64)
        if z.shape[1] == 1:
            slope = 1 / (1 + np.exp(-z)) - asked.y[first:last, None]
        else:
            slope = np.exp(z - z.max(axis=1, keepdims=True))
            slope /= slope.sum(axis=1, keepdims=True)
            slope[np.arange(last - first), asked.y[first:last]] -= 1
        yield slope.T @ x / (last - first)


def by_loop(asked: Problem) -> Array:
    """The clipped sum, group by group."""
    total = np.zeros((len(asked.bias), asked.X.shape[1] + 1))
    for gradient in gradients(asked):
        total += gradient * min(1.0, asked.clip / float(np.linalg.norm(gradient)))
    return total


def plain(asked: Problem, tile: int | None, rows: Array | None = None) -> Gradient:
    """The non-private gradient in closed form; for these rows, gathered each time."""
    m, weights = len(asked.y), asked.weights

    def gradient() -> Array:
        total = np.zeros((len(asked.bias), asked.X.shape[1] + 1), dtype=np.float32)
        for first in range(0, m if rows is None else len(rows), tile or m):
            own: Any = slice(first, first + (tile or m))
            own = own if rows is None else rows[own]
            x, y = asked.X[own], asked.y[own]
            z = x @ weights.T
            z += asked.bias
            if z.shape[1] == 1:
                np.negative(z, out=z)
                np.exp(z, out=z)
                z += 1
                np.reciprocal(z, out=z)
                z[:, 0] -= y
            else:
                z -= z.max(axis=1, keepdims=True)
                np.exp(z, out=z)
                z /= z.sum(axis=1, keepdims=True)
                z[np.arange(len(y)), y] -= 1
            total[:, :-1] += z.T @ x
            total[:, -1] += z.sum(axis=0)
        return total

    return gradient


def ours(blocks: LinearBlocks, asked: Problem, drawn: Array | None, *, new: bool) -> Gradient:
    """Our clipped sum, with its caches, or as on the first step."""
    loss, theta = asked.loss, asked.theta()

    def gradient() -> Array:
        rows = replace(blocks) if new else blocks
        return LinearGradients(rows, loss, theta).clipped_sum(asked.clip, drawn)

    return gradient


def layer(asked: Problem) -> Any:
    """The model as a module of PyTorch."""
    import torch

    model = torch.nn.Linear(asked.X.shape[1], len(asked.bias))
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(asked.weights))
        model.bias.copy_(torch.from_numpy(asked.bias))
    return model


def losses(z: Any, y: Any) -> Any:
    """The loss of each record in PyTorch: (m, C), (m,)."""
    from torch.nn import functional

    if z.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(z[:, 0], y.to(z.dtype), reduction="none")
    return functional.cross_entropy(z, y, reduction="none")


def tensors(asked: Problem) -> tuple[Any, Any]:
    """The rows in PyTorch."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(asked.X)), torch.from_numpy(asked.y)


def autograd(asked: Problem) -> Gradient:
    """The non-private gradient by PyTorch."""
    import torch

    model, (x, y) = layer(asked), tensors(asked)

    def gradient() -> Array:
        found = torch.autograd.grad(losses(model(x), y).sum(), [model.weight, model.bias])
        return joined(*found)

    return gradient


def joined(weight: Any, bias: Any) -> Array:
    return np.column_stack([weight.detach().numpy(), bias.detach().numpy()])


def by_record(asked: Problem, per_record: Callable[[Any, Any], tuple[Any, Any]]) -> Gradient:
    """Gradients per record, added up by group, clipped and summed, in chunks of whole groups."""
    import torch

    x, y = tensors(asked)
    d, outputs = asked.X.shape[1], len(asked.bias)
    chunks = []
    for first, last in chunked(asked.sizes, max(64, min(16_384, GRADIENTS // ((d + 1) * outputs)))):
        rows = slice(int(asked.starts[first]), int(asked.starts[last]))
        sizes = torch.from_numpy(asked.sizes[first:last])
        owner = torch.from_numpy(asked.groups[rows] - first)
        chunks.append((rows, sizes.to(x.dtype), owner))

    def add(part: Any, owner: Any, count: int) -> Any:
        return torch.zeros((count, *part.shape[1:])).index_add_(0, owner, part)

    def gradient() -> Array:
        total = [torch.zeros(outputs, d), torch.zeros(outputs)]
        for rows, sizes, owner in chunks:
            parts = per_record(x[rows], y[rows])
            if len(sizes) < len(owner):
                parts = tuple(add(part, owner, len(sizes)) for part in parts)
            squares = sum(part.flatten(1).norm(dim=1).square() for part in parts)
            weight = (asked.clip * sizes / squares.sqrt()).clamp(max=1.0) / sizes
            for sum_, part in zip(total, parts, strict=True):
                sum_ += torch.tensordot(weight, part, 1)
        return joined(*total)

    return gradient


def chunked(sizes: Array, most: int, *, padded: bool = False) -> Iterator[tuple[int, int]]:
    """Runs of groups with at most n rows, or one group; padded to the longest if requested."""
    first = 0
    while first < len(sizes):
        counts = np.cumsum(sizes[first:])
        if padded:
            counts = sizes[first:] * np.arange(1, len(counts) + 1)
        last = first + max(1, int(np.searchsorted(counts, most, side="right")))
        yield first, last
        first = last


def opacus(asked: Problem) -> Gradient:
    """Opacus's gradients per record."""
    from opacus import GradSampleModule

    model = GradSampleModule(layer(asked), loss_reduction="sum")
    parameters = [model._module.weight, model._module.bias]

    def per_record(x: Any, y: Any) -> tuple[Any, Any]:
        for parameter in parameters:
            parameter.grad = parameter.grad_sample = None
        losses(model(x), y).sum().backward()
        return parameters[0].grad_sample, parameters[1].grad_sample

    return by_record(asked, per_record)


def vmap(asked: Problem) -> Gradient:
    """PyTorch's gradients per record."""
    import torch
    from torch.nn import functional

    model = layer(asked)
    weight, bias = model.weight.detach(), model.bias.detach()

    def loss(weight: Any, bias: Any, x: Any, y: Any) -> Any:
        return losses(functional.linear(x[None], weight, bias), y[None])[0]

    each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))
    return by_record(asked, lambda x, y: each(weight, bias, x, y))


def ghost(asked: Problem) -> Gradient:
    """Opacus's ghost clipping; a group is a sequence, and its loss the mean of its records'."""
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    model = GradSampleModuleFastGradientClipping(
        layer(asked), loss_reduction="sum", max_grad_norm=asked.clip
    )
    parameters = [model._module.weight, model._module.bias]
    d = asked.X.shape[1]
    most, chunks = max(1024, min(16_384, FEATURES // d)), []
    for first, last in chunked(asked.sizes, most, padded=True):
        sizes, rows = asked.sizes[first:last], slice(asked.starts[first], asked.starts[last])
        there = np.arange(sizes[-1]) < sizes[:, None]
        x = np.zeros((*there.shape, d), dtype=np.float32)
        y = np.zeros(there.shape, dtype=np.int64)
        x[there], y[there] = asked.X[rows], asked.y[rows]
        weight = (there / sizes[:, None]).astype(np.float32)
        shaped = x[:, 0] if sizes[-1] == 1 else x
        chunks.append([torch.from_numpy(a) for a in (shaped, y.ravel(), weight)])

    def gradient() -> Array:
        for parameter in parameters:
            parameter.grad = None
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for x, y, weight in chunks:
            z = model(x)
            each = (losses(z.reshape(len(y), -1), y).view(weight.shape) * weight).sum(1)
            each.sum().backward(retain_graph=True)
            share = model.get_clipping_coef()
            for parameter in parameters:
                parameter.grad = None
            model.disable_hooks()
            (share * each).sum().backward()
            model.enable_hooks()
            for sum_, parameter in zip(total, parameters, strict=True):
                sum_ += parameter.grad
        return joined(*total)

    return gradient


PEERS: dict[str, Callable[[Problem], Gradient]] = {
    "autograd": autograd,
    "Opacus": opacus,
    "ghost": ghost,
    "vmap": vmap,
}
# Peers with a gradient per record.
LARGE = ("Opacus", "vmap")


def check() -> list[str]:
    """All clipped sums equal the loop on small data; the names of the peers that are missing."""
    missing = []
    for case in (Case(30, 7, 300, 4, True), Case(10, 2, 300, 4, True), Case(30, 7, 300, 1)):
        asked = problem(case)
        right = by_loop(asked)

        def same(who: str, found: Array, right: Array = right) -> None:
            off = float(np.abs(found.reshape(right.shape) - right).max() / np.abs(right).max())
            if not off < 2e-5:
                raise RuntimeError(f"{who} is off by {off:.1e}")

        blocks = asked.blocks()
        same("ours", ours(blocks, asked, None, new=False)())
        few = np.arange(0, len(asked.sizes), 3)
        same("ours, drawn", ours(blocks, asked, few, new=False)(), by_loop(asked.of(few)))
        not_clipped = sum(g * s for g, s in zip(gradients(asked), asked.sizes, strict=True))
        for tile in (None, 100):
            same("plain", plain(asked, tile)(), np.asarray(not_clipped))
        for name, peer in PEERS.items():
            try:
                found = peer(asked)()
            except ImportError:
                missing.append(name)
                continue
            same(name, found, np.asarray(not_clipped) if name == "autograd" else right)
    return sorted(set(missing))


def one(case: Case, threads: int, windows: int) -> dict[str, float]:
    """Milliseconds of the plain gradient and everyone's ratio to it."""
    asked = problem(case)
    drawn = None
    there, rows = asked, None
    if case.rate < 1:
        drawn = np.flatnonzero(np.random.default_rng(2).random(len(asked.sizes)) < case.rate)
        rows, there = np.flatnonzero(np.isin(asked.groups, drawn)), asked.of(drawn)
    blocks, scale = asked.blocks(), {}
    methods = {
        "plain": plain(asked, None, rows),
        "tiled": plain(asked, TILE, rows),
        "ours": ours(blocks, asked, drawn, new=False),
        "first": ours(blocks, asked, drawn, new=True),
    }
    for name, peer in PEERS.items():
        numbers = there.X.shape[1] * len(there.bias)
        less = there.some(NUMBERS / numbers) if name in LARGE else there
        try:
            import torch

            torch.set_num_threads(threads)
            methods[name] = peer(less)
        except ImportError:
            continue
        scale[name] = len(there.y) / len(less.y)
    times = timed(methods, time.process_time if threads == 1 else time.perf_counter, windows)
    for name, by in scale.items():
        times[name] *= by
    best = min(("plain", "tiled"), key=lambda name: float(np.median(times[name])))
    ratios = {name: float(np.median(its / times[best])) for name, its in times.items()}
    return {**ratios, "ms": 1000 * float(np.median(times[best])), "tiled": float(best == "tiled")}


def timed(
    methods: dict[str, Gradient], clock: Callable[[], float], windows: int
) -> dict[str, Array]:
    """Seconds of one call of each method in each window; methods take turns."""
    repeats = {}
    for name, method in methods.items():
        method()
        begun = clock()
        method()
        repeats[name] = max(1, round(WINDOW / max(clock() - begun, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in methods}
    order = np.random.default_rng(3)
    for _ in range(windows):
        for place in order.permutation(len(methods)):
            name = list(methods)[place]
            begun = clock()
            for _ in range(repeats[name]):
                methods[name]()
            times[name].append((clock() - begun) / repeats[name])
    return {name: np.asarray(its) for name, its in times.items()}


def memory(case: Case) -> float:
    """Additional peak memory of one step in this process, in MB."""
    asked = problem(case)
    blocks, small = asked.blocks(), problem(replace(case, rows=10 * case.size))
    # Libraries' one-time allocations exist already: buffers of BLAS.
    plain(asked, None)()
    ours(small.blocks(), small, None, new=False)()
    step = ours(blocks, asked, None, new=False)
    before = resident("VmRSS")
    if before is not None:
        Path("/proc/self/clear_refs").write_text("5")
    else:
        before = peak()
    step()
    after = resident("VmHWM")
    return ((peak() if after is None else after) - before) / 1e6


def resident(which: str) -> float | None:
    """Bytes of this process as Linux counts them; None elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(which)]
    return 1024 * float(found[0]) if found else None


def peak() -> float:
    """The largest this process has been, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


# Settings of glibc's malloc to retain large temporaries, and to return them at once.
KEEP = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"
GIVE_BACK = "glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=65536"


def child(threads: int, malloc: str, *asked: str) -> Any:
    """Run a separate process, with a number of threads and a setting of glibc's memory."""
    names = ("OMP", "OPENBLAS", "MKL")
    environment = os.environ | {f"{name}_NUM_THREADS": str(threads) for name in names}
    if malloc:
        environment["GLIBC_TUNABLES"] = malloc
    command = [sys.executable, __file__, "--child", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a table: milliseconds of the plain gradient, and everyone as a multiple of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--only", default="", help="rows with these words")
    parser.add_argument("--tuned", action="store_true", help="glibc keeps large temporaries")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "ROW", "THREADS"),
                        help=argparse.SUPPRESS)  # fmt: skip
    options = parser.parse_args()
    if options.child:
        warnings.simplefilter("ignore")
        what, row, threads = options.child
        case = cases()[int(row)]
        print(json.dumps(
            check() if what == "check"
            else memory(case) if what == "memory"
            else one(case, int(threads), options.windows)
        ))  # fmt: skip
        return
    missing = child(1, "", "check", "0", "1")
    print("Clipped sums equal a loop in double precision on small data.")
    if missing:
        print(f"Not installed, left out: {', '.join(missing)}.")
    columns = ("ours", "first", *PEERS)
    print(f"\n{'':34}{'threads':>8}{'plain ms':>10}" + "".join(f"{c:>10}" for c in columns)
          + f"{'MB':>8}")  # fmt: skip
    worst = 0.0
    for place, case in enumerate(cases()):
        if options.only not in case.name:
            continue
        for threads in options.threads:
            row = (str(place), str(threads), "--windows", str(options.windows))
            found = child(threads, KEEP if options.tuned else "", "one", *row)
            more = child(threads, GIVE_BACK, "memory", *row)
            worst = max(worst, more)
            ratios = "".join(f"{found[c]:10.2f}" if c in found else f"{'—':>10}" for c in columns)
            print(f"{case.name:34}{threads:8}{found['ms']:10.2f}{ratios}{more:8.1f}", flush=True)
    print(f"\nMultiples of the plain gradient. Most extra memory: {worst:.0f} MB, of {BOUND_MB}.")


if __name__ == "__main__":
    main()
