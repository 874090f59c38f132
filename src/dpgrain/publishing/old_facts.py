"""Public facts in guarantees of version 0.1, which stored sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from string import Formatter
from types import MappingProxyType
from typing import Any

from dpgrain import _validate
from dpgrain.publishing.facts import Fact
from dpgrain.words.fact_sentences import SENTENCES, written

_KNOWN = "a solution within {:g} of the start, gradients of norm at most {:g}"
_TYPICAL = "and {:,|record} of a typical user, which only accuracy rests on"
_BOUNDS = "clipping bounds between {:,.6g} and {:,.10g}, chosen with {:.0%} of the budget"
_LOOKS = (
    "at most {:,} looks, each around what the one before has published, as far as a radius that is "
    "chosen inside the budget"
)
_SHARES = "; how many, and how they share the noise, follows from the number that was released"
_NOT_OTHERS = ", whose number and time are not published"

#: Sentences of version 0.1 that differ from today's, with the numbers in the same order.
OLD_SENTENCES = MappingProxyType(
    {
        "enrolled-users": "a roster of {:,|user}",
        "counted-users": "{:.0%} of the budget for the number of users, which is released with noise "
        "of standard deviation {:.3g}",
        "a-row-per-user": "each row is all that one user has, as no users were passed",
        "boolean-labels": "the labels {}, as truths are",
        "records-only": "a record is all that is protected, as no users were passed",
        "rows-where": "rows are those where {}",
        "person": "a person's row is {}",
        "paired-rows": "rows of {} are paired with {:,} rows at most of the same person in {}",
        "partition-own": "the partition into elements (items without a cell are their own)",
        "partition-drop": "the partition into elements (items without a cell are left out)",
        "partition-error": "the partition into elements (items without a cell are refused)",
        "elements-kept": "at most {:,} elements of a user, which are kept",
        "owners": "records are owned by all whom {} name: a record goes for all of its owners; that a "
        "name goes from a record that stays is not covered",
        "with-each": "what each release names with its own promise",
        "selected-items": "at most {:,} items of one {} take part in selecting, the first in a public "
        "order",
        "items-of-a-unit": "at most {:,} items of one unit take part, the first in a public order",
        "two-rounds": "items are selected in two rounds, of which the second turns weight to those "
        "that the first neither named nor found hopeless",
        "best-items": "the best {:,|item} of the list are chosen",
        "threshold": "items with a noisy count above {:,} are named",
        "weighted-threshold": "items with a noisy weighted count of at least {:.4g} are named",
        "selected-labels": "{:.0%} of the budget and {:.0%} of δ for the labels: each {} counts for "
        "the label of one row, and labels with a count of about {:,} are selected",
        "clamped-numbers": "numbers are cut off at {:,.6g} and {:,.6g}",
        "chosen-range": "the range of the numbers is chosen with {:.0%} of the budget",
        "chosen-bounds": _BOUNDS,
        "shared-bounds": f"{_BOUNDS}, those of similar cells together",
        "doubled-bound": "a bound of {:,.6g}, doubled at most {:,|time}, found with ε = {:.3g}",
        "record-bound": "a bound of {:g}, which longer records are shortened to",
        "turns": "{:,} random parts of the users in turn, with noise of as many bands",
        "counted-with-sum": "their number, which is released with the sum",
        "radius-around": "a clipping radius of {:g} around what the round before has published",
        "radius-at-most": "a clipping radius at most {:g} around what the round before has published",
        "iterations": "{:,} looks, each around what the one before has published, as far as a radius "
        "that is chosen inside the budget, and leaves about {:.0%} of the users outside in the end, "
        "unless a check inside the budget shows that they move the mean: then all vectors are clipped "
        "to the bound",
        "iterations-at-most": f"{_LOOKS}{_SHARES}",
        "iterations-or-mean": f"{_LOOKS}, or one mean of vectors clipped to the bound{_SHARES}",
        "agreeing-users": "{:,} of {:,} users that have to agree",
        "chosen-concentration": "a concentration radius found with {:.0%} of ε, from {:.3g} to {:g}",
        "fresh-rounds": "{:,} rounds with {:,} users each, told apart by their numbers and asked once",
        "unused-users": "the last {:,} of the roster are never asked",
        "ordered-rounds": "{:,} rounds with {} users each, in the order of the roster",
        "state-seen": "its internal state seen at most once, at any time between two users",
        "clipped-coordinates": "each coordinate clipped to {:g} on both sides of a private middle; for "
        "vectors within {:g} of a point nothing is clipped, but for probability {:g}",
        "padded-vectors": "vectors padded to {:,} coordinates, rotated by public random signs, and "
        "each coordinate clipped to an interval that is chosen inside the budget",
        "intervals-of-few": "intervals that lie anywhere where fewer than about {:,} users have a "
        "vector",
        "close-users": "a run that ends where about {:,} users are not close to as many",
        "no-mean": "no mean unless about {:,} users are close to as many",
        "batches": "batches of {:,|device}, each of which takes part in {:,|round} at most",
        "shuffler": "a shuffler that is trusted to hand on the bag of all messages of a batch, as its "
        "counts, how many reports there were and how many were dropped, and nothing else",
        "device-vectors": "vectors of {:,|coordinate} and norm at most {:g}, shortened to it on the "
        "device",
        "device-numbers": "numbers of at most {:g}, shortened to it on the device",
        "block-rounds": "{:,} rounds, each block drawn with probability {:g}",
        "user-rounds": "{:,} rounds, each user drawn with probability {:g}",
        "all-rounds": "{:,} rounds, with all blocks",
        "features": "the features, their number and the scale they are given on",
        "feature-bound": "rows of norm at most {:g}, shortened to it",
        "counted-targets": "targets count from {:g} to {:g}",
        "warm-up": "the first fifth of the rounds looks for the solution; then the clipping bound is "
        "chosen inside the budget",
        "intervals": "{:.0%} of the budget kept for intervals",
        "phases": "phases of {} users, told apart by their numbers",
        "known-strong": f"{_KNOWN}, and of at least {{:g}}, {_TYPICAL}",
        "known-both": f"{_KNOWN}, curvatures of at most {{:g}}, and of at least {{:g}}, {_TYPICAL}",
        "folds": "{:,} folds of users, each left out of one fit",
        "settings": f"{{:,}} settings of {{}}, and {{:g}} runs on average{_NOT_OTHERS}",
        "scored-losses": "losses of records clipped to [0, {:g}] in the scores",
        "probabilities": "a model, which gives each row a probability by itself",
        "predictions": "a model, which predicts each row by itself",
        "classifier": "a classifier, which labels each row by itself",
        "record-losses": "a loss of each record by itself, clipped to [{:g}, {:g}]",
        "evaluations": f"{{:g}} evaluations on average{_NOT_OTHERS}",
        "runs": f"{{:g}} runs on average{_NOT_OTHERS}",
        "floating-sums": "sums are made in floating point, whose rounding is left out",
        "floating-gradients": "gradients are computed in floating point, whose rounding is left out",
        "floating-moments": "second moments are added in floating point, whose rounding is left out",
        "separate-gradients": "each record's gradient is computed apart from other records, to the "
        "last bit",
        "batches-as-read": "batches reach the network and the loss as the loader hands them out or "
        "changed record by record, numbers taken out of a batch change nothing, and network and loss "
        "have no batching rules, dispatch modes or seeds of their own",
        "collated-rows": "collate_fn makes each row from the record of that place alone",
        "nothing-fails": "no record makes reading it, the network or the loss fail, which would end "
        "the run",
        "evaluated-records": "the records on which the network was evaluated while it was trained",
        "padding": "assumed of the model: it makes the same of a record, however far the record is "
        "padded",
        "tried-padding": "assumed of the model, and tried on made-up records: it makes the same of a "
        "record, however far the record is padded",
    }
)

_SETTING = "in some settings "
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""


def parse_fact(sentence: str) -> Fact:
    """Return the fact of a sentence of version 0.1; a stated fact if it is unknown."""
    if (known := _known(sentence)) is not None:
        return known
    inner = _known(sentence.removeprefix(_SETTING)) if sentence.startswith(_SETTING) else None
    return (
        Fact("stated", (sentence,))
        if inner is None
        else Fact("setting", (inner.kind, *inner.numbers))
    )


def _known(sentence: str) -> Fact | None:
    """Return the fact with the same old sentence; None if there is none."""
    for kind, old, pattern, parsers in _patterns():
        match = pattern.fullmatch(sentence)
        if match is None:
            continue
        try:
            numbers = [parse(text) for parse, text in zip(parsers, match.groups(), strict=True)]
            fact = Fact(kind, tuple(numbers))
            if written(old, fact.numbers) == sentence:
                return fact
        except (*_validate.MISFIT_ERRORS, SyntaxError):
            continue
    return None


def with_facts(values: dict[str, Any]) -> dict[str, Any]:
    """Replace old sentences by facts in the fields of a guarantee read from JSON."""
    public = values.get("public")
    if not isinstance(public, list | tuple) or not any(isinstance(one, str) for one in public):
        return values
    facts = (parse_fact(one).to_dict() if isinstance(one, str) else one for one in public)
    return {**values, "public": list(facts)}


_Parser = Callable[[str], int | float | str]


@cache
def _patterns() -> tuple[tuple[str, str, re.Pattern[str], tuple[_Parser, ...]], ...]:
    """Return the kinds with patterns of their old sentences, longest fixed text first."""
    others = {kind: text for kind, text in SENTENCES.items() if kind not in ("stated", "setting")}
    known = {**others, **OLD_SENTENCES}
    ordered = sorted(known, key=lambda kind: -_fixed(known[kind]))
    return tuple((kind, known[kind], *_pattern(known[kind])) for kind in ordered)


def _fixed(sentence: str) -> int:
    return sum(len(text) for text, *_ in Formatter().parse(sentence))


def _pattern(sentence: str) -> tuple[re.Pattern[str], tuple[_Parser, ...]]:
    """Return a pattern of a sentence, and a parser of each number."""
    pieces, parsers = [], []
    for text, name, spec, conversion in Formatter().parse(sentence):
        pieces.append(re.escape(text))
        if name is None:
            continue
        form, _, noun = (spec or "").partition("|")
        parser, pattern = _reader(form, conversion)
        parsers.append(parser)
        pieces.append(f"({pattern})" + (f" {noun}s?" if noun else ""))
    return re.compile("".join(pieces), re.DOTALL), tuple(parsers)


def _reader(form: str, conversion: str | None) -> tuple[_Parser, str]:
    """Return the parser and the pattern of a number with this format."""
    if conversion == "r":
        return _unquoted, _QUOTED
    if form == ",":
        return lambda text: int(text.replace(",", "")), r"[\d,]+"
    if form.endswith("%"):
        return lambda text: int(text[:-1]) / 100, r"\d+%"
    if form:
        return lambda text: float(text.replace(",", "")), _NUMBER
    return str, ".+"


def _unquoted(text: str) -> str:
    return str(ast.literal_eval(text))
