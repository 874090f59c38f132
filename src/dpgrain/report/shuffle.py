"""The report of a shuffled sum: guarantee, trust assumptions, noise and traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from dpgrain._formatting import powers, quantity, rounded_up
from dpgrain.planning.plan_tables import PlanRow
from dpgrain.planning.shuffle_plans import (
    Honest,
    central_sd,
    deployment_rows,
    device_sensitivity,
    honest_curve,
    noise_norm,
    traffic_rows,
    user_curve,
)
from dpgrain.report.figures import figures
from dpgrain.report.page import PageFacts
from dpgrain.report.plots import plot_epsilons, plot_honest
from dpgrain.shuffle.device_noise import BinomialNoise
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.units import RELATIONS, Relation
from dpgrain.words.headings import text
from dpgrain.words.odds import Odds

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["plot_honest", "plot_protocol", "shuffle_page"]


@dataclass(frozen=True)
class _HonestRow:
    """One row of the table of honest devices."""

    share: str
    devices: str
    odds: Odds
    promised: bool


@dataclass(frozen=True, kw_only=True)
class _SumFacts(PageFacts):
    """The common facts; the curve is for several users, with data on their devices."""

    users: Sequence[int]
    epsilons: Mapping[Relation, Sequence[float]]

    @cached_property
    def curve_plots(self) -> Markup:
        draw = partial(plot_epsilons, self.users, self.epsilons, "user", self.guarantee.delta)
        return figures("curve", partial(draw, own=self.relation), 320)


def shuffle_page(protocol: ShuffledSum) -> str:
    """Return the report of a shuffled sum as HTML."""
    guarantee = protocol.guarantee
    users, epsilons = user_curve(guarantee)
    page = _SumFacts(
        of="sum",
        guarantee=guarantee,
        distorted="noise",
        users=users,
        epsilons=epsilons,
        settings=tuple((key, text(value)) for key, value in _settings(protocol)),
    )
    return page.html(
        "shuffle.html",
        groups=[
            (quantity(k, "user"), [Odds(epsilons[r][i], guarantee.delta) for r in RELATIONS])
            for i, k in enumerate(users)
        ],
        **_protocol_facts(protocol),
        **_honest_facts(honest_curve(protocol), guarantee.delta),
        **_corrupt_facts(protocol),
        **_noise_facts(protocol),
        traffic=[(row.name, _cell(row)) for row in traffic_rows(protocol)],
    )


def _protocol_facts(protocol: ShuffledSum) -> dict[str, object]:
    """Describe the protocol and its users."""
    return {
        "scalar": not protocol.centred,
        "n": f"{protocol.n_users:,}",
        "honest": f"{protocol.honest:,}",
        "all_honest": protocol.honest == protocol.n_users,
        "dim": protocol.encoding.dim,
        "coordinates": quantity(protocol.encoding.dim, "coordinate"),
        "bound": f"{protocol.encoding.bound:g}",
        "rounds": protocol.rounds,
        "shares_budget": protocol.beside is not None,
        "asked": rounded_up(protocol.epsilon, 6),
    }


def _honest_facts(curve: Sequence[Honest], delta: float) -> dict[str, object]:
    """Return ε over the share of honest devices."""
    return {
        "curve": [
            _HonestRow(line.share, f"{line.devices:,}", Odds(line.epsilon, delta), line.promised)
            for line in curve
        ],
        "least": next((line.share for line in curve if math.isinf(line.epsilon)), ""),
        "honest_plots": figures("honest", partial(plot_honest, curve, delta), 320),
    }


def _corrupt_facts(protocol: ShuffledSum) -> dict[str, object]:
    """Return the largest change of the sum by one device."""
    return {
        "own": _number(device_sensitivity(protocol)),
        "corrupt": _number(protocol.influence),
        "noise": _number(noise_norm(protocol)),
        "corrupt_in_own": _number(protocol.influence / device_sensitivity(protocol)),
        "corrupt_in_noise": _number(protocol.influence / noise_norm(protocol)),
    }


def _noise_facts(protocol: ShuffledSum) -> dict[str, object]:
    """Return the noise, compared with a trusted curator."""
    sd, central = protocol.noise_sd, central_sd(protocol)
    return {
        "sd": _number(sd),
        "sd_mean": _number(sd / protocol.n_users),
        "central": _number(central),
        "central_mean": _number(central / protocol.n_users),
        "ratio": _number(sd / central),
    }


def _number(value: float) -> str:
    return PlanRow("", value).text


def _cell(row: PlanRow) -> str:
    return f"{row.text} {row.unit}".rstrip()


def _settings(protocol: ShuffledSum) -> list[tuple[str, object]]:
    """List the settings of a protocol as text."""
    design = protocol.design
    design_rows = [(row.name, _cell(row)) for row in deployment_rows(protocol)[:2]]
    if isinstance(design.noise, BinomialNoise) and design.noise.probability != 0.5:
        design_rows.append(("Probability of a one", f"{design.noise.probability:.6g}"))
    return [
        ("Protocol", type(protocol).__name__),
        ("Devices per batch, n", f"{protocol.n_users:,}"),
        ("Coordinates, d", f"{protocol.encoding.dim:,}"),
        ("Norm bound" if protocol.centred else "Upper bound", protocol.encoding.bound),
        ("ε", rounded_up(protocol.epsilon, 6)),
        ("δ", powers(protocol.delta)),
        ("Neighbouring relation", protocol.relation),
        ("Rounds with the same users", f"{protocol.rounds:,}"),
        ("Honest devices, γ", f"{protocol.honest_fraction:g}"),
        *((name[0].upper() + name[1:], text) for name, text in design_rows),
        ("δ spent per coordinate", f"{design.leak:.4g}"),
    ]


def plot_protocol(protocol: ShuffledSum, ax: Axes | None = None) -> Axes:
    """Draw ε of a shuffled sum by the share of honest devices."""
    return plot_honest(honest_curve(protocol), protocol.delta, ax)
