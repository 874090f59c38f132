"""Counted draws: noise for the parts of an event, each at most as often as the event states."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._lazy_import import lazy_import
from dpgrain._types import BoolArray, FloatArray, IndexArray, IntArray
from dpgrain.accounting import (
    AboveThreshold,
    AdaptiveSelection,
    ApproximateDP,
    BandedGaussian,
    Binomial,
    BoundedRange,
    Compose,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Parallel,
    Poisson,
    SampledGaussian,
    SelectBest,
    Selection,
    SoftCore,
    TruncatedGeometric,
)
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.accounting.events.choices import GDP_OF_RANGE
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, SeededSource
from dpgrain.noise.additive_noise import GAUSSIAN
from dpgrain.noise.choice import choose_scores, uniform_below
from dpgrain.noise.counts import CountDistribution, draw_counts
from dpgrain.noise.device_normals import NormalStream, draws_itself
from dpgrain.noise.distributions import raise_scale
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.noisy_sums import (
    add_gaussian_noise,
    with_gaussian,
    with_laplace,
    with_truncated_geometric,
)
from dpgrain.noise.stopping import negative_binomial, poisson

torch = lazy_import("torch")

#: Events of Gaussian noise, of which each round is one draw.
GaussianNoise: TypeAlias = Gaussian | SampledGaussian | BandedGaussian

Kind = TypeVar("Kind", bound=Event)
# 64-bit words of the seed of a NumPy generator.
_SEED_WORDS = 4
# Relative rounding of sums of μ².
_ROUNDING = 2.0**-40


class Draws(ABC):
    """Noise for the parts of an event, each at most as often as the event states."""

    def __init__(self, event: Event, source: RandomSource) -> None:
        self._source = source
        self._left = Counter(tickets(event))
        self._lock = threading.Lock()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise ParameterError(f"a {name} cannot be copied: both copies would draw the same noise.")

    @abstractmethod
    def _check_open(self) -> None:
        """Raise if nothing may be drawn any more."""

    def _take(self, part: Event) -> None:
        self._check_open()
        with self._lock:
            wanted = tickets(part)
            if not wanted <= self._left:
                raise _exhausted_error(part)
            self._left -= wanted

    def noisy(
        self, part: GaussianNoise | Laplace, sums: NDArray[Any], radius: ArrayLike = 1.0
    ) -> NDArray[Any]:
        """Add the noise of a part to sums of integers, of any shape.

        ``radius`` is the largest norm of the contribution of one block, for all sums or each sum.
        """
        self._take(part)
        scale = part.noise_multiplier * np.broadcast_to(np.ravel(radius), sums.size)
        return with_noise(part, sums, scale, self._source)

    def select(
        self, part: Selection | AdaptiveSelection, sums: IntArray, radius: float, step: float
    ) -> tuple[IntArray, BoolArray]:
        """Add noise to (V,) weighted counts of users, and compare them with the threshold.

        Args:
            part: the part of the event.
            sums: (V,) the counts, in steps; in a second round, only of its items.
            radius: the weight 1, in steps.
            step: a step, as a fraction of the weight 1.

        Returns:
            (V,) noisy counts in steps, and whether each reaches the threshold.
        """
        self._take(part)
        # One step higher, because rounding of the noise can raise a count by half a step.
        threshold = math.ceil(part.threshold / step) + 1
        scale = np.full(sums.size, part.noise_multiplier * radius)
        noisy = with_gaussian(sums, raise_scale(scale), source=self._source)
        if isinstance(part, AdaptiveSelection):
            # The first round counted all users of these items. Dropping zeros would reveal who adds to
            # an item again.
            return noisy, noisy >= threshold
        # Never select an item without contributions: a block may contain any number of unused items,
        # and among many zeros some would pass the threshold by chance.
        return noisy, (sums > 0) & (noisy >= threshold)

    def truncated(self, part: TruncatedGeometric, counts: IntArray) -> tuple[IntArray, BoolArray]:
        """Add truncated geometric noise to (V,) counts of users, and return which items pass."""
        self._take(part)
        noisy = with_truncated_geometric(counts, part.rate, part.cutoff, source=self._source)
        # The noisy count of an item without users is at most the cutoff and never passes.
        return noisy, (counts > 0) & (noisy > part.cutoff)

    def order(
        self, part: ExponentialMechanism | BoundedRange, scores: IntArray, radius: float = 1.0
    ) -> IndexArray:
        """Select the indices of the largest of (V,) scores by one-shot Gumbel noise, best first.

        The part has their number; ``radius`` is the sensitivity of a score to one block.
        """
        self._take(part)
        return gumbel_order(scores, order_scale(part, radius), part.count, source=self._source)

    def flip(self, part: ApproximateDP, scores: IntArray, radius: float = 1.0) -> int:
        """Select the index of a large one of (V,) scores by permute-and-flip.

        The ε of the part is for scores that all change in one direction; ``radius`` is the sensitivity
        of a score to one block.
        """
        self._take(part)
        return permute_and_flip(scores, flip_scale(part, radius), source=self._source)


class CountedSource(Draws):
    """Draws of one mechanism; more than :attr:`event` contains raise RuntimeError.

    Gaussians with equal contributions share Σ1/multiplier², so a draw with less noise takes more.
    Neither scale nor number of :meth:`words` is checked: a custom mean must draw as its event states.
    """

    def __init__(
        self,
        event: Event,
        source: RandomSource,
        check: Callable[[], None] | None = None,
        rounds: int | None = None,
    ) -> None:
        super().__init__(event, source)
        self.event, self._check, self._end = event, check, -1
        if rounds is not None:
            (part,) = self._left
            if not 0 <= rounds <= self._left[part]:
                raise _exhausted_error(event)
            self._left = Counter({part: rounds})
        self._gaussians, self._drawn = _gaussians(self._left), Counter[Gaussian]()
        self._named, self._most_named = Counter[str](), max(1, self._left.total())

    def _check_open(self) -> None:
        if self._check is not None:
            self._check()

    def _take(self, part: Event) -> None:
        self._check_open()
        wanted = tickets(part)
        gaussians = _gaussians(wanted)
        others = Counter({one: n for one, n in wanted.items() if one not in gaussians})
        with self._lock:
            drawn = self._drawn + gaussians
            spent = all(
                _precision(drawn, one) <= _precision(self._gaussians, one) * (1 + _ROUNDING)
                for one in gaussians
            )
            if not (spent and others <= self._left):
                raise _exhausted_error(part)
            self._left -= others
            self._drawn = drawn

    def group(
        self, first: int, end: int, part: Event | None = None, *, times: int = 1
    ) -> CountedSource:
        """Return draws for users ``first`` to ``end`` − 1, who are in no earlier group.

        ``part``, by default the only one, is drawn ``times`` times if only the first draw meets data
        without noise.
        """
        if self._end < 0:
            # The groups share the draws of the event.
            self._take(self.event)
        self._check_open()
        events = self.event.events if isinstance(self.event, Parallel) else (self.event,)
        part = events[0] if part is None and len(events) == 1 else part
        with self._lock:
            if part not in events or not self._end <= first <= end:
                raise RuntimeError("these users were in an earlier group, or their event is new.")
            self._end = end
        drawn = part if times == 1 else Compose((part,) * times)
        return CountedSource(drawn, self._source, self._check)

    # -- noise --

    def floating(self, part: GaussianNoise, total: FloatArray, radius: float = 1.0) -> FloatArray:
        """Add Gaussian noise of a part to floating-point sums, (d,), on a grid."""
        self._take(part)
        return add_gaussian_noise(total, radius, part.noise_multiplier, self._source)

    def normals(self, part: GaussianNoise, *radii: float) -> list[Normals]:
        """Return the normal noise of one draw, in double precision, for sums with these radii."""
        self._take(part)
        return [Normals(part.noise_multiplier * radius, self._seed()) for radius in radii]

    def comparisons(
        self, part: AboveThreshold | SoftCore, size: int = 1, unit: float = 1.0
    ) -> Comparisons:
        """Start (size,) comparisons with noisy thresholds, for values in 1/unit."""
        self._take(part)
        return Comparisons(part, size, unit, self)

    def choose(
        self, sizes: IntArray, rate: float, *, pure: bool = False
    ) -> tuple[IntArray, IntArray]:
        """Choose an outcome per row of (rows, scores) sizes, with P ∝ e^{−rate·score}.

        Charged is :func:`range_event` or, if ``pure``, ε = rate per row. The result is the (rows,)
        scores and the outcomes' indices among those with the same score.
        """
        self._take(ApproximateDP(rate, count=len(sizes)) if pure else range_event(rate, len(sizes)))
        scores = choose_scores(sizes, rate, source=self._source)
        alike = sizes[np.arange(len(sizes)), scores]
        return scores, uniform_below(alike, source=self._source)

    def counts(self, part: Binomial | Poisson, law: CountDistribution, size: int) -> IntArray:
        """Draw (size,) counts: the noise of all devices, from a distribution at least as wide."""
        if size > part.coordinates or not part.is_narrower(law):
            raise RuntimeError(f"{type(part).__name__} is charged for more noise.")
        self._take(part)
        return draw_counts(law, size, self._source)

    # -- randomness that is not noise --

    @property
    def private(self) -> bool:
        """True if the bits are unpredictable, so that releases with them are private."""
        return self._source.private

    @property
    def seeded(self) -> SeededSource | None:
        """The seeded generator; None for a private source, which has no state."""
        return self._source if isinstance(self._source, SeededSource) else None

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw words for a custom mechanism, which are not counted."""
        self._check_open()
        return self._source.words(size)

    def bits(self, purpose: str, size: int) -> NDArray[np.uint64]:
        """Draw (size,) words for sampling or another purpose that adds no noise."""
        self._name(purpose)
        return self._source.words(size)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator with a secret seed, for a purpose that adds no noise."""
        self._name(purpose)
        return np.random.default_rng(self._seed())

    def _name(self, purpose: str) -> None:
        self._check_open()
        with self._lock:
            if self._named[purpose] >= self._most_named:
                raise RuntimeError(f"{purpose} has no charged draws left.")
            self._named[purpose] += 1

    def _seed(self) -> list[int]:
        return [int(word) for word in self._source.words(_SEED_WORDS)]


class Normals:
    """Normal noise with a fixed standard deviation, for one floating-point sum in several parts."""

    def __init__(self, sd: float, seed: list[int]) -> None:
        self.sd, self._seed, self._streams = sd, seed, count()
        self._generator = np.random.Generator(np.random.PCG64DXSM(seed))

    def draw(self) -> float:
        """Draw a number."""
        return self.sd * float(self._generator.standard_normal())

    def tensors(
        self, like: Sequence[Any], mixes: Sequence[Callable[[Any], Any]] | None = None
    ) -> Iterator[Any]:
        """Draw a double-precision tensor for each of ``like``, on its device.

        ``mixes`` combine each tensor, in sds, with those of earlier draws.
        """
        numbers = Counter[Any]()
        for tensor in like:
            numbers[tensor.device] += tensor.numel()
        streams = {
            device: NormalStream(self._seed, next(self._streams), device, total)
            for device, total in numbers.items()
            if draws_itself(device)
        }
        for place, tensor in enumerate(like):
            stream = streams.get(tensor.device)
            if stream is None:
                drawn = torch.from_numpy(self._generator.standard_normal(tensor.numel()))
            else:
                drawn = stream.take(tensor.numel())
            noise = drawn.mul_(self.sd) if mixes is None else mixes[place](drawn) * self.sd
            yield noise.view(tensor.shape)


class Comparisons:
    """Comparisons with noisy thresholds, each of which stops once and for all."""

    def __init__(
        self, part: AboveThreshold | SoftCore, size: int, unit: float, draws: CountedSource
    ) -> None:
        self._part, self._unit, self._draws = part, unit, draws
        self._open, self._passed = np.ones(size, dtype=np.bool_), False
        self._left = part.rounds if isinstance(part, SoftCore) else math.inf
        self._lowered = self._noisy(np.zeros(size, dtype=np.int64), part.threshold_scale)

    def _noisy(self, values: IntArray, scale: float) -> IntArray:
        return with_laplace(values, raise_scale(scale * self._unit), source=self._draws._source)

    def stop(self, values: IntArray, test: Callable[[IntArray, IntArray], BoolArray]) -> BoolArray:
        """Return which comparisons of noisy values with the noise of thresholds stop now."""
        self._draws._check_open()
        if self._left < 1 or not self._open.any():
            raise _exhausted_error(self._part)
        self._left -= 1
        stopping: BoolArray = self._open & test(
            self._noisy(values, self._part.query_scale), self._lowered
        )
        self._open &= ~stopping
        self._passed = bool(self._open.all())
        return stopping

    def noisy(self, sums: NDArray[Any], radius: float) -> NDArray[Any]:
        """Add the Gaussian noise of a round of :class:`SoftCore` that did not stop."""
        self._draws._check_open()
        if not (isinstance(self._part, SoftCore) and self._passed):
            raise _exhausted_error(self._part)
        self._passed = False
        scale = raise_scale(raise_scale(self._part.noise_multiplier * radius))
        return with_gaussian(sums, scale, source=self._draws._source)


def counted(source: RandomSource, event: Event) -> CountedSource:
    """Return the source of a charged mechanism, or one for the draws of an event on its own."""
    return source if isinstance(source, CountedSource) else CountedSource(event, source)


def one_draw(event: Kind) -> Kind:
    """Return the event of one of several equal draws, such as a round."""
    several = {name: 1 for name in _repeated(event) if getattr(event, name) > 1}
    return replace(event, **several) if several else event  # type: ignore[type-var]


def _repeated(event: Event) -> list[str]:
    """Return the fields that count the equal draws of an event."""
    names = ("rounds", "count") if not isinstance(event, SoftCore) else ()
    return [name for name in names if hasattr(event, name)]


@lru_cache(maxsize=256)
def tickets(event: Event) -> Counter[Event]:
    """Return the number of draws of each part of an event, at any depth."""
    if event.parts != (event,):
        return sum((tickets(part) for part in event.parts), Counter())
    draws = math.prod(getattr(event, name) for name in _repeated(event))
    if isinstance(event, SampledGaussian) and event.sampling_rate == 1:
        return Counter({Gaussian(event.noise_multiplier, event.contribution): draws})
    return Counter({one_draw(event): draws})


def range_event(rate: float, choices: int) -> Gaussian:
    """Return the event of choices of bounded range ``rate``, if a user is removed.

    Formal guarantee: a choice of η-bounded range is √(π/8)·η-GDP, for any dependence on earlier
    choices; that is tight as η → 0. Source: docs/theory, "A range for each coordinate".
    """
    return Gaussian(1 / (GDP_OF_RANGE * (1 + 2.0**-48) * rate), ONE_EACH, choices)


def order_scale(part: ExponentialMechanism | BoundedRange, radius: float = 1.0) -> float:
    """Return the noise scale of :meth:`Draws.order`, rounded up."""
    return part.scale if radius == 1 else float(raise_scale(raise_scale(part.scale * radius)))


def flip_scale(part: ApproximateDP, radius: float = 1.0) -> float:
    """Return the noise scale of :meth:`Draws.flip`, rounded up."""
    # Rounds the division towards more noise.
    scale = (1 / part.guaranteed_epsilon) * (1 + 2.0**-50)
    return float(raise_scale(raise_scale(scale * radius)))


def with_noise(
    event: GaussianNoise | Laplace, sums: NDArray[Any], scale: ArrayLike, source: RandomSource
) -> NDArray[Any]:
    """Add the noise of an event to sums of integers, with at least this scale, for all or each."""
    law = event.law if isinstance(event, Laplace) else GAUSSIAN
    return law.add_noise(sums, raise_scale(np.asarray(scale)), source=source)


def _gaussians(draws: Counter[Event]) -> Counter[Gaussian]:
    return Counter({part: n for part, n in draws.items() if isinstance(part, Gaussian)})


def _precision(draws: Counter[Gaussian], like: Gaussian) -> float:
    """Return Σ1/multiplier² of Gaussians with the same contribution."""
    return math.fsum(
        n / part.noise_multiplier**2
        for part, n in draws.items()
        if part.contribution == like.contribution
    )


def _exhausted_error(part: Event) -> RuntimeError:
    return RuntimeError(f"{type(part).__name__} has no charged draws left.")


Result = TypeVar("Result")


def best_run(
    run: Callable[[RandomSource], tuple[float, Result]], event: SelectBest, source: RandomSource
) -> tuple[float, Result] | None:
    """Return score and result of the best of a random number of runs, if there is one."""
    # The first of equal scores wins, and NaN is the smallest score.
    best: tuple[float, Result] | None = None
    for _ in range(draw_run_count(event, source)):
        score, result = run(source)
        score = -math.inf if math.isnan(score) else float(score)
        if best is None or score > best[0]:
            best = score, result
    return best


def draw_run_count(event: SelectBest, source: RandomSource) -> int:
    """Draw the number of runs from the distribution of the event."""
    if event.stopping == "poisson":
        return poisson(event.mean, source=source)
    return negative_binomial(event.eta, event.gamma, source=source)
