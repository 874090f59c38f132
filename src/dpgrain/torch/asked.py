"""Validated request for a training run: mean, clipping bound and guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Mean
from dpgrain.means.in_bands import best, in_bands
from dpgrain.publishing import Promise
from dpgrain.publishing.facts import Fact
from dpgrain.torch.adaptive import AdaptiveNorm, check_bound
from dpgrain.units import User

Noise = Literal["independent", "banded"]


@dataclass(frozen=True)
class Numbers:
    """Public numbers of a run as passed by the caller; None if omitted."""

    n_users: int | None
    steps: int | None
    sampling_rate: float | None
    max_grad_norm: float | AdaptiveNorm | None
    noise_multiplier: float | None
    target_epsilon: float | None
    share: float | None
    bands: int | None


@dataclass(frozen=True)
class Asked:
    """Validated request for a run; ``rule`` is None for a fixed clipping bound."""

    promise: Promise
    mean: Mean
    rule: AdaptiveNorm | None = None

    def facts(self, *, named: bool, collated: bool) -> tuple[Fact, ...]:
        """Return the facts that the run assumes to be public, and what it rests on.

        Args:
            named: True if users' labels were passed.
            collated: True if a function of the caller makes batches of records.
        """
        roster = Fact("enrolled-users", (self.mean.n_users,))
        alone = () if named else (Fact("records-only"),)
        follows = () if self.rule is None else (Fact("followed-bounds"),)
        floats = isinstance(self.mean, ClippedMean) and not self.mean.exact
        drawn = (Fact("floating-noise"),) if floats else ()
        rows = (Fact("collated-rows"),) if collated else ()
        rests = (Fact("batches-as-read"), *rows, Fact("nothing-fails"))
        return (roster, *alone, *self.mean.facts, *follows, *rests, *drawn)


def clipped_run(
    promise: Promise,
    *,
    numbers: Numbers,
    sampling: Literal["pairs", "users"],
    elements_per_user: float,
    exact: bool,
    noise: Noise,
) -> Asked:
    """Validate the request for a run with clipped blocks, and calibrate its noise."""
    _validate.one_of(("pairs", "users"), sampling=sampling)
    rule, start = _bound(numbers.max_grad_norm)
    rounds = _validate.integer(minimum=1, steps=numbers.steps)
    given: dict[str, Any] = {
        "n_users": numbers.n_users,
        "clip": start,
        "sampling_rate": _validate.probability(sampling_rate=numbers.sampling_rate),
        "sampling": sampling,
        "blocks_per_user": elements_per_user,
        "exact": _validate.boolean(exact=exact),
        "rounds": rounds,
    }
    bands = _bands(numbers, noise, exact=exact)
    if numbers.noise_multiplier is not None:
        return Asked(promise, _stated(promise, numbers.noise_multiplier, bands or 1, given), rule)

    asked: dict[str, Any] = {
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "unit": promise.unit,
        "relation": promise.relation,
        **given,
    }
    result = (
        best(in_bands(**asked)) if bands is None else ClippedMean.calibrate(**asked, bands=bands)
    )
    return Asked(promise, result, rule)


def given_mean(promise: Promise, *, mean: Mean, numbers: Numbers, noise: Noise) -> Asked:
    """Check that a private mean can be published in each step of a run."""
    if isinstance(mean, type) or not (hasattr(mean, "start") and hasattr(mean, "event")):
        raise ParameterError(
            f"mean must be a private mean of dpgrain.means, not {_validate.describe(mean)}.",
            name="mean",
        )
    stated = [name for name, value in vars(numbers).items() if value is not None]
    if noise != "independent":
        stated.append("noise")
    if stated:
        raise ParameterError(
            f"{stated[0]} must be omitted with mean=, which sets all public numbers and the noise.",
            name=stated[0],
        )
    kept = promise.unit.max_elements if isinstance(promise.unit, User) else None
    level = "element" if kept is not None else promise.level
    if mean.level != level or getattr(mean, "max_elements", None) != kept:
        raise ParameterError(
            f"mean must have the blocks of unit={promise.unit!r}, not blocks of level "
            f"{mean.level!r} with max_elements={getattr(mean, 'max_elements', None)!r}.",
            name="mean",
        )
    if isinstance(mean, ClippedMean):
        check_bound(clip=mean.clip)
    return Asked(promise, mean)


def _bound(stated: float | AdaptiveNorm | None) -> tuple[AdaptiveNorm | None, float]:
    """Return the rule of the clipping bound, if any, and the bound of the first step."""
    if isinstance(stated, AdaptiveNorm):
        return stated, stated.start
    return None, check_bound(max_grad_norm=stated)  # type: ignore[arg-type]


def _bands(numbers: Numbers, noise: Noise, *, exact: bool) -> int | None:
    """Return the number of bands, or None to choose the best number."""
    _validate.one_of(("independent", "banded"), noise=noise)
    if noise == "independent":
        if numbers.bands is not None:
            raise ParameterError(
                f"bands = {numbers.bands!r} requires noise='banded'.", name="bands"
            )
        return 1
    if exact:
        raise ParameterError(
            "exact must be False with noise='banded', because banded noise is not an integer.",
            name="exact",
        )
    if numbers.bands is None and numbers.noise_multiplier is not None:
        raise ParameterError(
            "bands is required with noise='banded' and noise_multiplier; or pass target_epsilon, "
            "which chooses the best number.",
            name="bands",
        )
    return None if numbers.bands is None else _validate.integer(minimum=1, bands=numbers.bands)


def _stated(
    promise: Promise, noise_multiplier: float, bands: int, given: dict[str, Any]
) -> ClippedMean:
    """Return the public numbers of a run with an explicit noise multiplier."""
    kept = promise.unit.max_elements if isinstance(promise.unit, User) else None
    level = "element" if kept is not None else promise.level
    return ClippedMean(
        noise_multiplier=noise_multiplier, level=level, max_elements=kept, bands=bands, **given
    )
