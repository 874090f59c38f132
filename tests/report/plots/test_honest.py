"""The plot of a protocol contains the curve of its honest devices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.report import sums

from dpgrain.planning.shuffle_plans import (
    honest_curve,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", sums.PROTOCOLS)
def test_plot_contains_the_curve(name: str, written: dict[str, sums.Written]) -> None:
    protocol = written[name].protocol
    ax = protocol.plot(Figure().subplots())
    curve = [line for line in honest_curve(protocol) if math.isfinite(line.epsilon)]
    drawn = ax.lines[0]
    assert list(np.asarray(drawn.get_xdata())) == [line.fraction for line in curve]
    assert list(np.asarray(drawn.get_ydata())) == [line.epsilon for line in curve]
    marked = ax.lines[-1]
    assert list(np.asarray(marked.get_xdata())) == [protocol.honest_fraction]
    assert list(np.asarray(marked.get_ydata())) == [protocol.guarantee.epsilon()]
    assert len(ax.patches) == (len(curve) < len(honest_curve(protocol)))
