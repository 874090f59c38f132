"""Choice of the noise of gradient rounds: independent, or correlated in bands."""

from __future__ import annotations

from typing import Literal

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain.errors import ParameterError
from dpgrain.means.band_search import MAX_BANDS, band_candidates, best, prefix_noise
from dpgrain.planning.error_plan import ErrorPlan, PlanRow, checked_promise, promise_text
from dpgrain.units import Element, Relation, Unit, unit_level


def plan_bands(
    epsilon: float,
    delta: float,
    *,
    rounds: int,
    sampling_rate: float,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    sampling: Literal["pairs", "users"] = "pairs",
    most: int = MAX_BANDS,
) -> ErrorPlan:
    """Compare the noise of summed gradients for each number of bands, and choose one.

    Args:
        epsilon: the promised ε for the whole run.
        delta: the promised δ, in (0, 1).
        rounds: the number of rounds.
        sampling_rate: the public probability q of a block, or a user, to be in a round.
        unit: the protected unit, an element by default; for ``User()`` whole users are clipped, for
            ``User(max_elements=M)`` at most M pairs per user.
        relation: ``"zero_out"`` or ``"replace"``.
        sampling: ``"pairs"`` or ``"users"``.
        most: the maximum number of bands to try, which is also the number of stored noise vectors.

    Raises:
        ParameterError: if a parameter is out of range.

    The comparison uses the rms noise of the sum of the first t gradients, over all t: the sums of
    descent with constant step size. The row ``"bands"`` is the smallest number of bands within 1%
    of the minimum; 1 means independent noise.

    Formal guarantee: that of :attr:`ErrorPlan.event`, calibrated to (ε, δ).

    Source: docs/theory, "Banded noise".

    >>> plan = plan_bands(8.0, 1e-6, rounds=500, sampling_rate=0.002, most=32)
    >>> plan["bands"], round(plan["noise of sums ÷ that of independent noise"], 2)
    (32, 0.35)
    """
    epsilon, delta = checked_promise(epsilon, delta, relation)
    rounds = _validate.integer(minimum=1, rounds=rounds)
    rate = _validate.probability(sampling_rate=sampling_rate)
    if rate == 0:
        raise ParameterError(
            "sampling_rate must be above 0, not 0, because nothing would be sampled."
        )
    unit = Element() if unit is None else unit
    unit_level(unit, "element")
    means = band_candidates(
        most=_validate.integer(minimum=1, most=most),
        epsilon=epsilon,
        delta=delta,
        n_users=1,
        rounds=rounds,
        unit=unit,
        relation=relation,
        sampling_rate=rate,
        sampling=sampling,
    )
    mean = best(means)
    noise = prefix_noise(mean)
    lines = (
        PlanRow("bands", mean.bands),
        PlanRow("noise multiplier σ", mean.noise_multiplier, "clipping bounds"),
        PlanRow("noise of a round", mean.noise_sd * rate, "clipping bounds"),
        PlanRow("noise of sums", noise, "clipping bounds"),
        PlanRow("noise of sums ÷ that of independent noise", noise / prefix_noise(means[0])),
        *(
            PlanRow(
                f"noise of sums, {other.bands} {'band' if other.bands == 1 else 'bands'}",
                prefix_noise(other),
                "clipping bounds",
            )
            for other in means
            if other != mean
        ),
    )
    title = (
        f"Noise of {quantity(rounds, 'round')} at the rate {rate:g}, "
        f"{promise_text(epsilon, delta, relation, unit)}"
    )
    notes = (
        "The noise of sums is the root mean square over the sums of the first 1, 2, … rounds.",
        f"A run stores {mean.bands - 1} secret vectors of noise, each the size of a gradient.",
    )
    return ErrorPlan(title, epsilon, delta, mean.event, lines, notes)
