"""Choices among candidates in words: the candidate, its loss and the limits of the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._formatting import POINTER, format_facts, rounded_up, short_repr
from dpgrain.words.odds import privacy_sections

if TYPE_CHECKING:
    from dpgrain.choices.select import Choice


def summary(choice: Choice) -> str:
    """Return a choice as printed."""
    pointer = POINTER.replace("columns", "numbers")
    chosen = f"{_chosen(choice)}{_loss(choice)}"
    return "\n".join([chosen, _caution(choice), choice.guarantee.summary, pointer])


def explanation(choice: Choice) -> str:
    """Describe the choice, the mean loss and the guarantee."""
    facts = {
        "value": "the chosen candidate; index is its position in the list, from 0. Candidates "
        "with a smaller mean loss are more likely, but the best one is not certain",
    }
    if choice.loss is not None:
        units = f"{choice.guarantee.level}s"
        facts["loss"] = f"the mean over {units} of the mean loss of their records, plus noise"
    if choice.std_error is not None:
        facts["std_error"] = "standard error of the noise in the loss, for one evaluation"
    facts |= privacy_sections(choice.guarantee, choice.shares)
    return format_facts(_chosen(choice), {name: text for name, text in facts.items() if text})


def _chosen(choice: Choice) -> str:
    counts = [fact.numbers[0] for fact in choice.guarantee.public if fact.kind == "candidates"]
    of = f" of {counts[0]:,}" if len(counts) == 1 else ""
    return f"Chosen: {short_repr(choice.value)} (index {choice.index:,}{of}, from 0)."


def _loss(choice: Choice) -> str:
    if choice.loss is None:
        return ""
    error = choice.std_error
    after = "" if error is None else f", standard error {rounded_up(error, 2)} (noise only)"
    return f" Its mean loss over {choice.guarantee.level}s: {choice.loss:.4g}{after}."


def _caution(choice: Choice) -> str:
    ranges = {fact.numbers for fact in choice.guarantee.public if fact.kind == "record-losses"}
    low, high = ranges.pop() if len(ranges) == 1 else ("", "")
    clipped = f" Each record's loss is clipped to [{low:g}, {high:g}]." if low != high else ""
    return (
        f"A smaller mean loss over {choice.guarantee.level}s is more likely to be chosen, but another "
        f"candidate may be better.{clipped}"
    )
