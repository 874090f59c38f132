"""The page of a shuffled sum: what is promised, who is trusted, and what it costs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain.accounting.plan import Row
from dpgrain.files import whole_file
from dpgrain.report.deployment import (
    Honest,
    central_sd,
    corrupt,
    curve_of_users,
    honest_curve,
    noise_length,
    numbers,
    replaced,
    traffic,
)
from dpgrain.report.plots.estimates import (
    _STEPS,
    BLUE,
    FAINT,
    GREY,
    INK,
    ORANGE,
    _axes,
    _log_locator,
    _no_locator,
    _plain,
    _say,
    _width,
    _write_legend,
    plot_epsilons,
)
from dpgrain.report.release import _Odds, _parts, _plots, _template, _text
from dpgrain.shuffle import BlindSum
from dpgrain.shuffle.device_noise import Coins
from dpgrain.shuffle.sums import ShuffledSum
from dpgrain.units import RELATIONS
from dpgrain.wording import counted, powers, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NARROW = 5.5
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def write_shuffle_report(protocol: ShuffledSum, path: str | Path) -> Path:
    """Write a shuffled sum as one self-contained HTML file.

    Args:
        protocol: a shuffled sum.
        path: where to write; the folder must exist.

    Returns:
        The path.

    Raises:
        DataError: if the file cannot be written; none is left behind then.

    The file holds the promise in plain words, who is trusted with what, ε as a function of the share of
    honest devices, what a corrupt device can do, the traffic, the noise and the granularity curve. All
    of it follows from public numbers: it costs no budget.
    """
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(shuffle_page(protocol), encoding="utf-8")
    return path


@dataclass(frozen=True)
class _Line:
    """One line of the table of honest devices, as it is printed."""

    share: str
    devices: str
    odds: _Odds
    promised: bool


def shuffle_page(protocol: ShuffledSum) -> str:
    """The report of a shuffled sum as HTML.

    Args:
        protocol: a shuffled sum.
    """
    from dpgrain import __version__

    guarantee = protocol.guarantee
    curve = honest_curve(protocol)
    users, epsilons = curve_of_users(guarantee)
    sd, central = protocol.noise_sd, central_sd(protocol)
    today = datetime.now(UTC)
    return _template("shuffle.html").render(
        guarantee=guarantee,
        sentence=_text(guarantee, 20_000),
        blind=isinstance(protocol, BlindSum),
        coins=isinstance(protocol.design.noise, Coins),
        scalar=not protocol.centred,
        n=f"{protocol.n_users:,}",
        honest=f"{protocol.honest:,}",
        all_honest=protocol.honest == protocol.n_users,
        dim=protocol.encoding.dim,
        coordinates=counted(protocol.encoding.dim, "coordinate"),
        bound=f"{protocol.encoding.bound:g}",
        rounds=protocol.rounds,
        beside=protocol.beside is not None,
        asked=f"{protocol.epsilon:g}",
        odds=_Odds(guarantee.epsilon(), guarantee.delta),
        delta=powers(guarantee.delta),
        one_in=f"{math.floor(1 / Fraction(repr(float(guarantee.delta)))):,}",
        max_elements=None,
        selected=False,
        noun="item",
        fitted=False,
        shuffled=True,
        wears=True,
        elements="",
        distorted="noise",
        relations=RELATIONS,
        curve=[
            _Line(
                line.share, f"{line.devices:,}", _Odds(line.epsilon, guarantee.delta), line.promised
            )
            for line in curve
        ],
        least=next((line.share for line in curve if math.isinf(line.epsilon)), ""),
        honest_plots=_plots("honest", partial(plot_honest, curve, guarantee.delta), 320),
        groups=[
            (counted(k, "user"), [_Odds(epsilons[r][i], guarantee.delta) for r in RELATIONS])
            for i, k in enumerate(users)
        ],
        curve_plots=_plots(
            "curve",
            lambda ax: plot_epsilons(
                users, epsilons, "user", guarantee.delta, ax, own=guarantee.relation
            ),
            320,
        ),
        own=_number(replaced(protocol)),
        corrupt=_number(corrupt(protocol)),
        noise=_number(noise_length(protocol)),
        corrupt_in_own=_number(corrupt(protocol) / replaced(protocol)),
        corrupt_in_noise=_number(corrupt(protocol) / noise_length(protocol)),
        traffic=[(row.name, _cell(row)) for row in traffic(protocol)],
        sd=_number(sd),
        sd_mean=_number(sd / protocol.n_users),
        central=_number(central),
        central_mean=_number(central / protocol.n_users),
        ratio=_number(sd / central),
        settings=[(key, _text(value)) for key, value in _settings(protocol)],
        events=[_text(event, 2000) for event in _parts(guarantee)],
        public=[_text(fact) for fact in guarantee.public],
        guarantee_json=json.dumps(guarantee.to_dict(), ensure_ascii=False, indent=1),
        version=__version__,
        date=f"{today:%Y-%m-%d}",
        year=f"{today:%Y}",
    )


def _number(value: float) -> str:
    return Row("", value).text


def _cell(row: Row) -> str:
    return f"{row.text} {row.unit}".rstrip()


def _settings(protocol: ShuffledSum) -> list[tuple[str, object]]:
    """What a protocol was made of, in words."""
    design = protocol.design
    design_rows = [(row.name, _cell(row)) for row in numbers(protocol)[:2]]
    if isinstance(design.noise, Coins) and design.noise.probability != 0.5:
        design_rows.append(("Probability of a one", f"{design.noise.probability:.6g}"))
    return [
        ("Protocol", type(protocol).__name__),
        ("Devices of a batch, n", f"{protocol.n_users:,}"),
        ("Coordinates, d", f"{protocol.encoding.dim:,}"),
        ("Bound of a vector" if protocol.centred else "Bound of a number", protocol.encoding.bound),
        ("ε", f"{protocol.epsilon:g}"),
        ("δ", powers(protocol.delta)),
        ("Neighbouring relation", protocol.relation),
        ("Rounds with the same users", f"{protocol.rounds:,}"),
        ("Honest devices, γ", f"{protocol.honest_fraction:g}"),
        *((name[0].upper() + name[1:], text) for name, text in design_rows),
        ("δ that is given away for each coordinate", f"{design.leak:.4g}"),
    ]


def plot_protocol(protocol: ShuffledSum, ax: Axes | None = None) -> Axes:
    """Draw ε of a shuffled sum over the share of honest devices.

    Args:
        protocol: a shuffled sum.
        ax: axes to draw on; new ones by default.
    """
    return plot_honest(honest_curve(protocol), protocol.delta, ax)


def plot_honest(curve: Sequence[Honest], delta: float, ax: Axes | None = None) -> Axes:
    """Draw known ε over the share of honest devices, with the promised one marked.

    Args:
        curve: the lines, from the largest share to the smallest.
        delta: the δ at which they hold.
        ax: axes to draw on; new ones by default.

    Where nothing is promised the axes are shaded.
    """
    ax = _axes(7.0, 4.2) if ax is None else ax
    _plain(ax)
    ax.set_xlabel("honest devices, share of a batch")
    ax.set_ylabel(f"ε at δ = {powers(delta)}")
    finite = [line for line in curve if math.isfinite(line.epsilon)]
    if not finite:
        return _say(ax, "no promise at this δ")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.plot(
        [line.fraction for line in finite],
        [line.epsilon for line in finite],
        "-o",
        color=BLUE,
        linewidth=1.8,
        markersize=5.5,
        label="if so many follow the protocol",
    )
    endless = [line.fraction for line in curve if math.isinf(line.epsilon)]
    low, high = max(endless, default=curve[-1].fraction) / 1.25, 1.25
    if endless:
        ax.axvspan(low, max(endless), color=GREY, alpha=0.25, linewidth=0, label="no promise")
    for line in finite:
        if line.promised:
            _mark(ax, line)
    _values(ax, finite)
    ax.set_xlim(low, high)
    _axis_ticks(ax, low, finite)
    ax.grid(color=FAINT, linewidth=0.6)
    _write_legend(ax, ax.get_legend_handles_labels()[0])
    return ax


def _mark(ax: Axes, line: Honest) -> None:
    """The promise: its point, and lines from it to both axes."""
    style: dict[str, Any] = {"color": ORANGE, "linewidth": 1.1, "linestyle": ":"}
    ax.axvline(line.fraction, **style)
    ax.axhline(line.epsilon, **style)
    ax.plot(
        [line.fraction],
        [line.epsilon],
        "D",
        color=ORANGE,
        markersize=8,
        label=f"promised: ε = {rounded_up(line.epsilon, 3)} with {line.share}",
    )


def _values(ax: Axes, lines: Sequence[Honest]) -> None:
    """Each ε beside its point, the promised one first, where there is room."""
    apart = math.log(1.7 if _width(ax) < _NARROW else 1.3)
    written: list[float] = []
    for line in sorted(lines, key=lambda line: not line.promised):
        place = math.log(line.fraction)
        if all(abs(place - other) >= apart for other in written):
            written.append(place)
            ax.annotate(
                rounded_up(line.epsilon, 3),
                (line.fraction, line.epsilon),
                (6, 7),
                textcoords="offset points",
                color=INK,
                fontsize="small",
            )


def _axis_ticks(ax: Axes, low: float, finite: Sequence[Honest]) -> None:
    shares = [share for share in _SHARES if share >= low]
    ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
    ax.xaxis.set_minor_locator(_no_locator())
    epsilons = [line.epsilon for line in finite]
    least, most = min(epsilons), max(epsilons)
    if most / least < 4:
        ax.set_ylim(least / 2, most * 2)
    else:
        ax.margins(y=0.14)
    ax.yaxis.set_major_locator(_log_locator(_STEPS if most / least < 1000 else (1,)))
    ax.yaxis.set_minor_locator(_no_locator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
