"""Clipped sums equal a loop over blocks, for layers of any shape drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.torch.cases import CLASSES, Case, distance
from tests.torch.library import torch

# isort: split
from dpgrain.torch.layout import BlockLayout

nn = torch.nn
SMALL, SIDES = st.integers(1, 4), st.integers(1, 3)
PADDINGS = st.sampled_from(["zeros", "reflect", "replicate", "circular"])


@st.composite
def convolutions(draw: Any) -> tuple[Any, tuple[int, ...]]:
    """A convolution, or one transposed, and the shape of a record."""
    dims, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    channels, filters = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    sides = st.tuples(*[SIDES] * dims)
    options = {"stride": draw(sides), "dilation": draw(sides), "bias": draw(st.booleans())}
    shape = (channels, *[8] * dims)
    if draw(st.integers(0, 4)) == 0:
        kind = getattr(nn, f"ConvTranspose{dims}d")
        return kind(channels, filters, draw(sides), groups=groups, **options), (
            channels,
            *[3] * dims,
        )
    kind, padding = getattr(nn, f"Conv{dims}d"), draw(st.tuples(*[st.integers(0, 2)] * dims))
    mode = draw(PADDINGS)
    layer = kind(
        channels, filters, draw(sides), padding=padding, padding_mode=mode, groups=groups, **options
    )
    return layer, shape


@st.composite
def layers(draw: Any) -> tuple[Any, tuple[int, ...]]:
    inputs, positions = draw(st.integers(1, 40)), tuple(draw(st.lists(SMALL, max_size=2)))
    channels = 2 * draw(SIDES)
    kinds: dict[str, Callable[[], Any]] = {
        "linear": lambda: (
            nn.Linear(inputs, draw(st.integers(1, 40)), bias=draw(st.booleans())),
            (*positions, inputs),
        ),
        "layer norm": lambda: (
            nn.LayerNorm([*positions, inputs + 1], bias=draw(st.booleans())),
            (*draw(st.sampled_from([(), (3,)])), *positions, inputs + 1),
        ),
        "rms norm": lambda: (nn.RMSNorm(inputs + 1), (*positions, inputs + 1)),
        "group norm": lambda: (nn.GroupNorm(2, channels), (channels, 3, *positions)),
        "slope": lambda: (nn.PReLU(draw(st.sampled_from([1, channels]))), (channels, *positions)),
        "convolution": lambda: draw(convolutions()),
    }
    made: tuple[Any, tuple[int, ...]] = kinds[draw(st.sampled_from(sorted(kinds)))]()
    return made


@pytest.mark.slow
@given(
    layers(),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.float64]),
    st.floats(0.01, 3.0),
    st.integers(0, 1000),
)
def test_sums_agree_with_a_loop(
    made: tuple[Any, tuple[int, ...]], sizes: list[int], precision: Any, bound: float, seed: int
) -> None:
    (layer, shape), layout = made, BlockLayout.of(sorted(sizes))
    torch.manual_seed(seed)
    with torch.random.fork_rng():
        x = torch.randn(layout.rows, *shape)
        head = nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES))
        module = nn.Sequential(layer, nn.Tanh(), head)
        module(x)
    y = torch.randint(0, CLASSES, (layout.rows,))
    case = Case(module.to(precision), x.to(precision), y, layout)
    found, (looped, norms) = case.clipped(bound), case.looped(bound)
    close = 1e-5 if precision == torch.float32 else 1e-10
    assert distance(looped, found) <= close * norms
