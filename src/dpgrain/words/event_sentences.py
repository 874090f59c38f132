"""Descriptions of events in sentences.

Rounding never makes an event look safer: noise and thresholds are rounded down, costs are rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dpgrain._formatting import one_line, powers, quantity, rounded_down, rounded_up
from dpgrain.accounting import Contribution, Event
from dpgrain.units import Level

#: The data clipped as one block.
BLOCKS: dict[Level, str] = {
    "record": "each record",
    "element": "each user's data in one cell",
    "user": "each user's data",
}
_LAYOUTS = {
    "disjoint": "Elements of one person contribute to different coordinates.",
    "shared": "Elements of one person may add up on the same coordinates.",
    "pooled": "At most {per_coordinate} elements of one person contribute to the same coordinate.",
}
# Maximum number of listed parts of an event.
_MOST_PARTS = 50


def sentences(event: Event) -> list[str]:
    """Describe each part of an event in a few sentences."""
    parts = event.parts
    described = [_describe(part) for part in parts[:_MOST_PARTS]]
    left = len(parts) - len(described)
    return (
        [*described, f"{quantity(left, 'more event')}: see the JSON below."] if left else described
    )


def _describe(event: Event) -> str:
    """Describe one event; unknown types by their public numbers."""
    words = _WORDS.get(type(event).__name__)
    return _describe_numbers(event) if words is None else words(event)


def _describe_numbers(event: Event) -> str:
    numbers = {name: value for name, value in event.to_dict().items() if name != "event"}
    text = "; ".join(
        f"{name.replace('_', ' ')} {one_line(value)}" for name, value in numbers.items()
    )
    return f"{type(event).__name__}: {text}."


def _times(count: int, noun: str) -> str:
    """Return ``a sum``, or ``each of 3 sums``."""
    return f"a {noun}" if count == 1 else f"each of {quantity(count, noun)}"


def _clipped(contribution: Contribution) -> str:
    """Describe how units enter a sum."""
    most = contribution.max_elements
    limit = "" if most is None else f" At most {quantity(most, 'element')} per user counted."
    layout = _LAYOUTS[contribution.layout].format(per_coordinate=contribution.per_coordinate)
    apart = f" {layout}" if contribution.block == "element" else ""
    block = BLOCKS[contribution.block]
    return f"{_upper(block)} was clipped to the bound first.{apart}{limit}"


def _gaussian(event: Any) -> str:
    return (
        f"Gaussian noise was added to {_times(event.count, 'sum')}, with a standard deviation of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds. {_clipped(event.contribution)}"
    )


def _laplace(event: Any) -> str:
    return (
        f"Laplace noise (for integers: two-sided geometric noise) was added to "
        f"{_times(event.count, 'sum')}, with a scale of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds. {_clipped(event.contribution)}"
    )


def _selection(event: Any) -> str:
    spread = (
        f"Each unit counted for at most {quantity(event.max_items, 'item')}, by 1/√(its items)"
        if event.max_items > 1
        else "Each unit counted once"
    )
    return (
        f"Items with a noisy user count of at least {rounded_down(event.threshold)} were selected. "
        f"{spread}; the Gaussian noise had a standard deviation of "
        f"{rounded_down(event.noise_multiplier)}."
    )


def _second_selection(event: Any) -> str:
    return (
        f"Items with a first noisy count of at least {rounded_down(event.floor)} entered a second "
        "round. In it, each user added weights of norm at most 1 to some of their items. Items with a "
        f"noisy count of at least {rounded_down(event.threshold)} were selected; "
        "the Gaussian noise had a standard "
        f"deviation of {rounded_down(event.noise_multiplier)}."
    )


def _truncated_geometric(event: Any) -> str:
    return (
        f"Items with a noisy user count above {event.cutoff:,}, which noise alone cannot reach, were "
        "published with their counts. Each unit counted for at most "
        f"{quantity(event.max_items, 'item')}; one count that changes by 1 costs ε = "
        f"{rounded_up(event.rate)}."
    )


def _known(promise: Callable[[Any], str]) -> Callable[[Any], str]:
    """Describe a mechanism by its guarantee."""

    def describe(event: Any) -> str:
        ran = "once" if event.count == 1 else f"{event.count:,} times"
        return (
            f"A mechanism ran {ran}. Only its privacy guarantee is known: {promise(event)} per "
            f"{event.level} ({event.relation})."
        )

    return describe


def _drawn(event: Any) -> str:
    what = BLOCKS[event.level] if event.sampling == "pairs" else "each user, with all data at once,"
    return f"{what} was sampled with probability {rounded_up(event.sampling_rate)}, independently"


def _sampled(event: Any) -> str:
    runs = "" if event.count == 1 else f" There were {event.count:,} such runs."
    return (
        f"In {quantity(event.rounds, 'round')}, Gaussian noise with a standard deviation of "
        f"{rounded_down(event.noise_multiplier)} clipping bounds was added to a clipped sum over a "
        f"random sample: {_drawn(event)} in each round.{_element_limit(event)}{runs}"
    )


def _participation(event: Any) -> str:
    runs = "" if event.count == 1 else f" There were {event.count:,} such runs."
    return (
        f"Gaussian noise with a standard deviation of {rounded_down(event.noise_multiplier)} clipping "
        f"bounds was added to clipped sums; {BLOCKS[event.level]} entered at most {event.rounds:,} of "
        f"them.{_element_limit(event)}{runs}"
    )


def _banded(event: Any) -> str:
    return (
        f"In {quantity(event.rounds, 'round')}, Gaussian noise that cancels over {event.bands:,} "
        "rounds was added to clipped sums over random samples. Its standard deviation before "
        f"cancelling was {rounded_down(event.noise_multiplier)} clipping bounds. "
        f"{_upper(_drawn(event))} in the rounds of its part of the people.{_element_limit(event)}"
    )


def _upper(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"


def _element_limit(event: Any) -> str:
    most = event.max_elements
    return "" if most is None else f" At most {quantity(most, 'element')} per user counted."


def _bits(event: Any) -> str:
    if type(event).__name__ == "Binomial":
        # Coins protect most at probability 1/2.
        least = rounded_down if event.probability <= 0.5 else rounded_up
        noise = f"{event.trials:,} coins of probability {least(event.probability)}"
    else:
        noise = f"Poisson noise of mean {rounded_down(event.mean)}"
    return (
        f"In {quantity(event.rounds, 'round')}, devices added {noise} to each of "
        f"{quantity(event.coordinates, 'coordinate')} of a sum of integers, and only the total was "
        f"revealed. One user changes that sum by at most {event.grid:,} steps before rounding; "
        f"{powers(event.leak)} of δ is spent per coordinate and round."
    )


def _best(event: Any) -> str:
    law = event.stopping.replace("_", " ")
    return (
        f"A private candidate ran a random number of times ({law} distribution, "
        f"{rounded_up(event.mean)} on average), and only the best result was published. Each run: "
        f"{_inner(event)}"
    )


def _above_threshold(event: Any) -> str:
    runs = "a search" if event.count == 1 else f"each of {event.count:,} searches"
    return (
        f"In {runs}, the position of the first query above a noisy threshold was published: "
        f"{event.noise} noise of scale {rounded_down(event.threshold_scale)} on the threshold and "
        f"{rounded_down(event.query_scale)} on each query. One {event.level} changes a query by at "
        f"most {rounded_up(event.sensitivity)}."
    )


def _exponential(event: Any) -> str:
    return (
        f"{_choices(event.count)} made by the largest of noisy scores: Gumbel noise of scale "
        f"{rounded_down(event.scale)}, where one {event.level} changes a score by at most "
        f"{rounded_up(event.sensitivity)}."
    )


def _bounded_range(event: Any) -> str:
    return (
        f"{_choices(event.count)} made from the public list by noisy user counts: one choice "
        f"costs ε = {rounded_up(event.rate)}, however many items one {event.level} has."
    )


def _choices(count: int) -> str:
    return "One choice was" if count == 1 else f"{count:,} choices were"


def _soft_core(event: Any) -> str:
    return (
        f"In at most {quantity(event.rounds, 'round')}, the mean of users close to most others of "
        f"{event.users:,} was published, with Gaussian noise of "
        f"{rounded_down(event.noise_multiplier)} times the radius, if about {event.core:,} users "
        "agreed (with noise)."
    )


def _close(event: Any) -> str:
    return (
        f"Up to a statistical distance of {powers(event.variation)}, the output depends only on the "
        f"following. {_inner(event)}"
    )


def _parallel(event: Any) -> str:
    return f"For groups without common people: {_inner(event)}"


def _scoped(event: Any) -> str:
    return " ".join(
        f"For the records of {region}: {' '.join(sentences(part))}"
        for part, region in zip(event.events, event.regions, strict=True)
    )


def _inner(event: Any) -> str:
    inside = event.events
    return " ".join(_part_sentences((inside,) if isinstance(inside, Event) else inside))


def _part_sentences(events: tuple[Event, ...]) -> Iterator[str]:
    for event in events:
        yield from sentences(event)


_WORDS: dict[str, Callable[[Any], str]] = {
    "Gaussian": _gaussian,
    "Laplace": _laplace,
    "Selection": _selection,
    "AdaptiveSelection": _second_selection,
    "TruncatedGeometric": _truncated_geometric,
    "ApproximateDP": _known(
        lambda event: (
            f"ε = {rounded_up(event.guaranteed_epsilon)}, δ = {powers(event.guaranteed_delta)}"
        )
    ),
    "ZCDP": _known(lambda event: f"{rounded_up(event.rho)}-zCDP"),
    "RDP": _known(
        lambda event: (
            f"Rényi divergences of {quantity(len(event.orders), 'order')}, "
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
