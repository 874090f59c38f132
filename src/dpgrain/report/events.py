"""Sentences on events: one for each kind, none of them a ``repr``.

No number looks safer than it is: noise and thresholds are rounded down, and what costs privacy up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dpgrain._wording import counted, powers, printed, rounded_down, rounded_up
from dpgrain.accounting import Contribution, Event
from dpgrain.units import Level

# A user's data are what is clipped as one, in these words.
_BLOCKS: dict[Level, str] = {
    "record": "each record",
    "element": "each user's data in one cell",
    "user": "each user's data",
}
_LAYOUTS = {
    "disjoint": "Parts of one person fall on different coordinates.",
    "shared": "Parts of one person may add up on the same coordinates.",
    "pooled": "Parts of one person may meet in a coordinate, at most {per_coordinate} of them.",
}
# Parts of an event that are shown one by one, at most.
_MOST_PARTS = 50


def sentences(event: Event) -> list[str]:
    """Return what happened, a few sentences for each part of an event.

    Args:
        event: the event of a guarantee.

    >>> from dpgrain.accounting import Gaussian
    >>> sentences(Gaussian(4.0))[0].partition(". ")[0]
    'Gaussian noise was added to a sum, with a standard deviation of 4 clipping bounds'
    """
    parts = event.parts
    told = [_told(part) for part in parts[:_MOST_PARTS]]
    left = len(parts) - len(told)
    return (
        [*told, f"And {counted(left, 'event')} more, which the JSON below lists."] if left else told
    )


def _told(event: Event) -> str:
    """Return one event in words; of a kind that has none, its public numbers."""
    words = _WORDS.get(type(event).__name__)
    return _numbers_of(event) if words is None else words(event)


def _numbers_of(event: Event) -> str:
    numbers = {name: value for name, value in event.to_dict().items() if name != "event"}
    told = "; ".join(
        f"{name.replace('_', ' ')} {printed(value)}" for name, value in numbers.items()
    )
    return f"{type(event).__name__}: {told}."


def _times(count: int, noun: str) -> str:
    """Return ``a sum``, or ``each of 3 sums``."""
    return f"a {noun}" if count == 1 else f"each of {counted(count, noun)}"


def _clipped(contribution: Contribution) -> str:
    """Return how units enter a sum."""
    most = contribution.max_elements
    kept = f" Of each user at most {counted(most, 'element')} counted." if most is not None else ""
    layout = _LAYOUTS[contribution.layout].format(per_coordinate=contribution.per_coordinate)
    apart = f" {layout}" if contribution.block == "element" else ""
    block = _BLOCKS[contribution.block]
    return f"{block[0].upper()}{block[1:]} was clipped to the bound first.{apart}{kept}"


def _gaussian(event: Any) -> str:
    return (
        f"Gaussian noise was added to {_times(event.count, 'sum')}, with a standard deviation of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds. {_clipped(event.contribution)}"
    )


def _laplace(event: Any) -> str:
    return (
        f"Laplace noise (on whole numbers: two-sided geometric noise) was added to "
        f"{_times(event.count, 'sum')}, with a scale of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds. {_clipped(event.contribution)}"
    )


def _selection(event: Any) -> str:
    spread = (
        f"Each unit counted for at most {counted(event.max_items, 'item')}, by 1/√(its items)"
        if event.max_items > 1
        else "Each unit counted once"
    )
    return (
        f"Items were named where their noisy count of holders was at least "
        f"{rounded_down(event.threshold)}. {spread}; the Gaussian noise had a standard deviation of "
        f"{rounded_down(event.noise_multiplier)}."
    )


def _again(event: Any) -> str:
    return (
        f"Items with a first noisy count of at least {rounded_down(event.floor)} went on to a second "
        "round, in which each user gave weights of norm at most 1 to some of those held, and were "
        f"named where their noisy count was at least {rounded_down(event.threshold)}; the Gaussian "
        f"noise had a standard deviation of {rounded_down(event.noise_multiplier)}."
    )


def _truncated_geometric(event: Any) -> str:
    return (
        f"Items were named, with their noisy counts of holders, where these were above "
        f"{event.cutoff:,}, which noise alone cannot pass. Each unit counted for at most "
        f"{counted(event.max_items, 'item')}; one count that changes by 1 costs ε = "
        f"{rounded_up(event.rate)}."
    )


def _known(promise: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return the words for a mechanism with only its promise known."""

    def told(event: Any) -> str:
        ran = "once" if event.count == 1 else f"{event.count:,} times"
        return (
            f"Something ran {ran} of which only its promise to one {event.level} "
            f"({event.relation}) is known: {promise(event)}."
        )

    return told


def _drawn(event: Any) -> str:
    what = (
        _BLOCKS[event.level] if event.sampling == "pairs" else "each user, with all data at once,"
    )
    return f"{what} was in it with probability {rounded_up(event.sampling_rate)}, drawn anew"


def _sampled(event: Any) -> str:
    runs = "" if event.count == 1 else f" There were {event.count:,} such runs."
    return (
        f"In {counted(event.rounds, 'round')}, Gaussian noise with a standard deviation of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds was added to a clipped sum over a "
        f"random sample: {_drawn(event)} in each round.{_kept(event)}{runs}"
    )


def _participation(event: Any) -> str:
    runs = "" if event.count == 1 else f" There were {event.count:,} such runs."
    return (
        f"Gaussian noise with a standard deviation of {rounded_down(event.noise_multiplier)} clipping "
        f"bounds was added to clipped sums, of which {_BLOCKS[event.level]} entered at most "
        f"{event.rounds:,}.{_kept(event)}{runs}"
    )


def _banded(event: Any) -> str:
    return (
        f"In {counted(event.rounds, 'round')}, clipped sums over random samples got Gaussian noise "
        f"that cancels over {event.bands:,} rounds, of a standard deviation of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds before that: {_drawn(event)} when "
        f"the turn came to its part of the people.{_kept(event)}"
    )


def _kept(event: Any) -> str:
    most = event.max_elements
    return f" Of each user at most {counted(most, 'element')} counted." if most is not None else ""


def _bits(event: Any) -> str:
    if type(event).__name__ == "Binomial":
        # Coins hide the most at 1/2.
        least = rounded_down if event.probability <= 0.5 else rounded_up
        noise = f"{event.trials:,} coins with the probability {least(event.probability)}"
    else:
        noise = f"Poisson noise of mean {rounded_down(event.mean)}"
    return (
        f"In {counted(event.rounds, 'round')}, devices added {noise} to each of "
        f"{counted(event.coordinates, 'coordinate')} of a sum of whole numbers, and only all of them "
        f"together were seen. One user moves that sum by at most {event.grid:,} steps before rounding; "
        f"{powers(event.leak)} of δ is given away for each coordinate and round."
    )


def _best(event: Any) -> str:
    law = event.stopping.replace("_", " ")
    return (
        f"A private candidate ran a random number of times ({law} law, {rounded_up(event.mean)} on "
        f"average), and only the best result was published. Each run: {_inner(event)}"
    )


def _above_threshold(event: Any) -> str:
    runs = "a search" if event.count == 1 else f"each of {event.count:,} searches"
    return (
        f"In {runs}, the position of the first query was told that passed a noisy threshold: "
        f"{event.noise} noise, of scale {rounded_down(event.threshold_scale)} on the threshold and "
        f"{rounded_down(event.query_scale)} on each query, which one {event.level} moves by at most "
        f"{rounded_up(event.sensitivity)}."
    )


def _exponential(event: Any) -> str:
    return (
        f"{_choices(event.count)} made by the largest of noisy scores: Gumbel noise of scale "
        f"{rounded_down(event.scale)}, where one {event.level} moves a score by at most "
        f"{rounded_up(event.sensitivity)}."
    )


def _bounded_range(event: Any) -> str:
    return (
        f"{_choices(event.count)} made from the public list by noisy numbers of holders: one choice "
        f"costs ε = {rounded_up(event.rate)}, however many items one {event.level} holds."
    )


def _choices(count: int) -> str:
    return "A choice was" if count == 1 else f"{count:,} choices were"


def _soft_core(event: Any) -> str:
    return (
        f"In at most {counted(event.rounds, 'round')}, the mean of those users was published who lie "
        f"close to most others of {event.users:,}, with Gaussian noise of "
        f"{rounded_down(event.noise_multiplier)} times the radius, as long as noisily about "
        f"{event.core:,} users agree."
    )


def _close(event: Any) -> str:
    return (
        f"What is seen is, but for a statistical distance of {powers(event.variation)}, made of the "
        f"following alone. {_inner(event)}"
    )


def _parallel(event: Any) -> str:
    return f"Of groups that share no person: {_inner(event)}"


def _scoped(event: Any) -> str:
    return " ".join(
        f"Of the records of {region}: {' '.join(sentences(part))}"
        for part, region in zip(event.events, event.regions, strict=True)
    )


def _inner(event: Any) -> str:
    inside = event.events
    return " ".join(_parts_of((inside,) if isinstance(inside, Event) else inside))


def _parts_of(events: tuple[Event, ...]) -> Iterator[str]:
    for event in events:
        yield from sentences(event)


_WORDS: dict[str, Callable[[Any], str]] = {
    "Gaussian": _gaussian,
    "Laplace": _laplace,
    "Selection": _selection,
    "AdaptiveSelection": _again,
    "TruncatedGeometric": _truncated_geometric,
    "ApproximateDP": _known(
        lambda event: (
            f"ε = {rounded_up(event.guaranteed_epsilon)}, δ = {powers(event.guaranteed_delta)}"
        )
    ),
    "ZCDP": _known(lambda event: f"{rounded_up(event.rho)}-zCDP"),
    "RDP": _known(
        lambda event: (
            f"Rényi divergences of {counted(len(event.orders), 'order')}, "
            f"from α = {min(event.orders):.4g} to {max(event.orders):.4g}"
        )
    ),
    "SampledGaussian": _sampled,
    "Participation": _participation,
    "BandedGaussian": _banded,
    "Binomial": _bits,
    "Poisson": _bits,
    "SelectBest": _best,
    "AboveThreshold": _above_threshold,
    "ExponentialMechanism": _exponential,
    "BoundedRange": _bounded_range,
    "SoftCore": _soft_core,
    "StatisticallyClose": _close,
    "Parallel": _parallel,
    "Scoped": _scoped,
}
