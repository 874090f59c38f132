"""Plans of deployments of shuffled sums: traffic, noise and guarantees."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpgrain._formatting import powers, quantity
from dpgrain._progress import Progress
from dpgrain.accounting import Binomial, Compose, Event, Poisson
from dpgrain.planning.plan_tables import ErrorPlan, PlanRow
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.shuffle.design import gaussian_mu_for
from dpgrain.shuffle.device_noise import BinomialNoise, PoissonNoise
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.units import RELATIONS, Relation

# Shares of users to evaluate; few, because one ε takes up to a second.
_FRACTIONS = (1.0, 0.9, 0.75, 0.5, 1 / 3, 0.2, 0.1, 0.05, 0.02, 0.01)
_FEW_FRACTIONS = (1.0, 0.9, 0.75, 0.5, 0.2, 0.1)
_USERS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Honest:
    """The guarantee if only a share of the devices follows the protocol."""

    fraction: float
    devices: int
    epsilon: float  # at the promised δ; infinite without a guarantee
    promised: bool = False  # the share that the protocol is designed for

    @property
    def share(self) -> str:
        """The share γ in per cent."""
        return f"{100 * self.fraction:.4g}%"

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain JSON values, with ε None if infinite."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return {**asdict(self), "epsilon": epsilon}


def honest_curve(protocol: ShuffledSum) -> tuple[Honest, ...]:
    """Return ε for shares of honest devices, from all to one in a hundred.

    Formal guarantee: each line is that of ``protocol.guarantee_with``.
    """
    shares = {protocol.device_count(fraction): fraction for fraction in reversed(_FRACTIONS)}
    shares[protocol.honest] = protocol.honest_fraction
    lines = []
    with Progress(len(shares)) as progress:
        for devices, fraction in sorted(shares.items(), reverse=True):
            progress.stage(f"{quantity(devices, 'honest device')}")
            epsilon = protocol.guarantee_with(fraction).epsilon()
            lines.append(Honest(fraction, devices, epsilon, devices == protocol.honest))
    return tuple(lines)


def user_curve(guarantee: Guarantee) -> tuple[tuple[int, ...], dict[Relation, list[float]]]:
    """Return the ε of 1, 2, 5 and 10 users together, under both relations."""
    with Progress(len(RELATIONS) * len(_USERS)) as progress:

        def epsilon(users: int, relation: Relation) -> float:
            progress.stage(f"{quantity(users, 'user')}, {relation}")
            return guarantee.epsilon(units=users, relation=relation)

        return _USERS, {r: [epsilon(users, r) for users in _USERS] for r in RELATIONS}


def honest_shares(guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
    """Return shares of honest devices, and the ε of a guarantee with only these.

    Formal guarantee: each ε is an upper bound, because whole devices add at least this many random
    bits.
    """
    if not any(isinstance(part, Binomial | Poisson) for part in guarantee.event.parts):
        return ()
    return tuple(
        (share, replace(guarantee, event=_with_share(guarantee.event, share)).epsilon())
        for share in _FEW_FRACTIONS
    )


def _with_share(event: Event, share: float) -> Event:
    """Return the event if devices add only a share of the noise."""
    if isinstance(event, Binomial):
        return replace(event, trials=max(1, math.floor(event.trials * share)))
    if isinstance(event, Poisson):
        return replace(event, mean=event.mean * share)
    if isinstance(event, Compose):
        return Compose(tuple(_with_share(part, share) for part in event.events))
    return event


def central_sd(protocol: ShuffledSum) -> float:
    """Return the noise sd of a coordinate of one round's sum, with a trusted curator.

    Source: Balle & Wang 2018, "Improving the Gaussian mechanism for differential privacy".
    """
    mu = gaussian_mu_for(protocol.epsilon, protocol.delta, protocol.relation, protocol.beside)
    # The change of the sum by one user under the relation of the promise.
    moved = protocol.encoding.bound * (
        2 if protocol.centred and protocol.relation == "replace" else 1
    )
    return moved * math.sqrt(protocol.rounds) / mu


def device_sensitivity(protocol: ShuffledSum) -> float:
    """Return the l2 change of the sum if one honest device has another vector."""
    return protocol.encoding.bound * (2 if protocol.centred else 1)


def noise_norm(protocol: ShuffledSum) -> float:
    """Return the root mean square norm of a sum's noise, if all devices are honest."""
    return protocol.noise_sd * math.sqrt(protocol.encoding.dim)


class _IntegerRow(PlanRow):
    """An integer of a plan, shown with all its digits."""

    @property
    def text(self) -> str:
        return f"{self.value:,.0f}"


def traffic_rows(protocol: ShuffledSum) -> tuple[PlanRow, ...]:
    """Return the rows on a device's messages in one round."""
    randomizer = protocol.randomizer()
    size = randomizer.report_bytes
    about = " (on average)" if isinstance(protocol.design.noise, PoissonNoise) else ""
    return (
        _IntegerRow("report of a device", size, "bytes"),
        _IntegerRow(f"one-bit messages that it stands for{about}", round(randomizer.messages)),
        _IntegerRow("reports of a batch", protocol.n_users * size, "bytes"),
    )


def deployment_rows(protocol: ShuffledSum) -> tuple[PlanRow, ...]:
    """Return a deployment's numbers without ε: design, traffic, noise, corruption."""
    sd, central, n = protocol.noise_sd, central_sd(protocol), protocol.n_users
    noise = protocol.design.noise
    if isinstance(noise, BinomialNoise):
        noise_row: PlanRow = _IntegerRow("coins of a device and coordinate, b", noise.count)
    else:
        noise_row = PlanRow("ones that a device adds to a coordinate, mean", noise.mean)
    return (
        _IntegerRow("steps of the grid, g", protocol.design.grid),
        noise_row,
        *traffic_rows(protocol),
        PlanRow("noise sd of the sum", sd, "a coordinate"),
        PlanRow("noise sd of the mean", sd / n, "a coordinate"),
        PlanRow("central Gaussian noise sd of the sum", central, "a coordinate"),
        PlanRow("central Gaussian noise sd of the mean", central / n, "a coordinate"),
        PlanRow("times the central noise", sd / central),
        PlanRow("an honest device changes the sum by", device_sensitivity(protocol), "l2 norm"),
        PlanRow("a corrupt device changes the sum by", protocol.influence, "l2 norm"),
        PlanRow("noise of the sum, root mean square", noise_norm(protocol), "l2 norm"),
    )


def deployment(protocol: ShuffledSum) -> ErrorPlan:
    """Return the plan of a shuffled sum, with its traffic and its accuracy."""
    title = (
        f"Shuffled sum of {quantity(protocol.n_users, 'device')}, "
        f"{quantity(protocol.encoding.dim, 'coordinate')}, ε = {protocol.epsilon:g}, "
        f"δ = {powers(protocol.delta)}, {protocol.relation}"
    )
    if protocol.rounds > 1:
        title += f", {protocol.rounds:,} rounds"
    return ErrorPlan(
        title,
        protocol.epsilon,
        protocol.delta,
        protocol.event,
        deployment_rows(protocol),
        (("protocol", "; ".join(map(str, protocol.facts))),),
    )
