"""Public facts in words: the sentence of each kind."""

from __future__ import annotations

from string import Formatter
from types import MappingProxyType
from typing import Any

from dpgrain._formatting import rounded_up

_KNOWN = "a solution within {:g} of the start, gradients of norm at most {:g}"
_TYPICAL = "and {:,|record} of a typical user, which only accuracy rests on"

#: The sentence of each kind. Kinds are stored in files: none is renamed or gets another meaning.
SENTENCES = MappingProxyType(
    {
        "stated": "{}",
        "setting": "in some settings {}",
        # Users, rows and partitions.
        "enrolled-users": "{:,|enrolled user}",
        "counted-users": "{:.0%} of the budget for the number of users, which is published with "
        "noise of standard deviation {:.3g}",
        "a-row-per-user": "each row is all that one user has, because no users were passed",
        "records-only": "only records are protected, because no users were passed",
        "rows-where": "only rows where {} are used",
        "some-rows-where": "some releases use only rows where {}",
        "column": "the column {!r} is {}",
        "person": "one row per person, with {}",
        "person-by": "one row per person and {}, with {}",
        "first-rows": "only the first of a person's rows with the same {} is used",
        "distinct-rows": "rows that are equal in all columns are used once",
        "paired-row": "rows of {} are paired with one row of the same person in {}",
        "paired-rows": "rows of {} are paired with at most {:,} rows of the same person in {}",
        "items": "the list of {:,|item}",
        "values": "the list of {:,|value} of {!r}",
        "labels": "{:,|label}",
        "boolean-labels": "the labels {}, as booleans have them",
        "stated-labels": "the labels {}, as stated",
        "bins": "the bins",
        "edges": "the list of {:,|edge} of {!r}",
        "thresholds": "the list of {:,|threshold} of {!r}",
        "partition": "the partition into elements",
        "partition-own": "the partition into elements (an item without a cell is its own cell)",
        "partition-drop": "the partition into elements (items without a cell are dropped)",
        "partition-error": "the partition into elements (items without a cell are rejected)",
        "elements-used": "at most {:,} elements of a user are used, the first in a public order",
        "elements-kept": "at most {:,} elements of a user are used",
        "owners": "the owners of a record are all users in {}, and whole records are protected, "
        "but not the removal of one name from a record",
        "with-each": "the facts in the guarantee of each release",
        # Selection, clipping and ranges.
        "selected-items": "at most {:,} items of one {} are used in the selection, the first in "
        "a public order",
        "items-of-a-unit": "at most {:,} items of one unit are used, the first in a public order",
        "two-rounds": "items are selected in two rounds, and the second gives weight to items "
        "that the first neither selected nor ruled out",
        "best-items": "the best {:,|item} of the list are selected",
        "threshold": "items with a noisy count above {:,} are published",
        "weighted-threshold": "items with a noisy weighted count of at least {:.4g} are published",
        "selected-labels": "{:.0%} of the budget and {:.0%} of δ for the labels: each {} is "
        "counted for the label of one row, and labels with a noisy count of about {:,} are "
        "selected",
        "clamped-numbers": "numbers are clamped to [{:,.6g}, {:,.6g}]",
        "clamped-pair": "{} is clamped to [{:,.6g}, {:,.6g}], and {} to [{:,.6g}, {:,.6g}]",
        "counted-outside": "values outside of this range are counted with {:.0%} of the budget",
        "chosen-range": "the range of the numbers is chosen privately with {:.0%} of the budget",
        "clipped-units": "{:.0%} of the budget for the numbers of complete and clipped units",
        "chosen-bounds": "clipping bounds between {:,.6g} and {:,.10g}, chosen privately with "
        "{:.0%} of the budget",
        "shared-bounds": "clipping bounds between {:,.6g} and {:,.10g}, chosen privately per "
        "cell with {:.0%} of the budget, in part from joint counts of similar cells",
        "scaled-bounds": "a clipping bound between {:,.6g} and {:,.10g}, and a factor on it of "
        "1/256 to 1 per group, chosen privately with {:.0%} of the budget",
        "clipping-bound": "the clipping bound {:,.6g}",
        "scaled-bound": "the clipping bound {:,.6g} × {:,.6g} = {:,.6g}",
        "unclipped": "each {} adds at most {:,.6g}",
        "bound": "the bound {:,.6g}",
        "bounds": "the bounds {}",
        "doubled-bound": "a bound of {:,.6g}, doubled at most {:,|time}, chosen privately with "
        "ε = {:.3g}",
        # Means.
        "dimension": "vectors of {:,|number}",
        "record-bound": "a bound of {:g}, to which longer records are clipped",
        "gradient-bound": "a clipping bound of {:g}",
        "counted-with-sum": "a division by the noisy number of users, published with the sum",
        "record-weights": "users weighted by their number of records, of which at most {:,} count",
        "chosen-record-weights": "users weighted by their number of records, of which at most a "
        "number count that is chosen privately with {:.0%} of the budget",
        "summed-weights": "{:.0%} of the budget for the sum of weights, which is published with "
        "noise of standard deviation {:.3g}",
        "divided-by-weight": "a division by the noisy sum of weights, published with the sum",
        "weighted-iterations": "at most {:,|iteration}, each around the result of the previous one, "
        "within a privately chosen radius, and their number follows from the published sum of "
        "weights; then a mean around their result, clipped together with the weights, unless a "
        "check within the budget shows that this moves the mean, in which case all vectors are "
        "clipped to the bound",
        "weighted-iterations-or-mean": "at most {:,|iteration}, each around the result of the "
        "previous one, within a privately chosen radius, and their number follows from the "
        "published sum of weights; then a mean around their result, clipped together with the "
        "weights, or all vectors clipped to the bound if the sum is small, or if a check within "
        "the budget shows that this moves the mean",
        "clipping-radius": "a clipping radius of {:g}",
        "full-rounds": "{:,|round} with all users",
        "sampled-rounds": "{:,|round} of samples, each with probability {:g}",
        "turns": "{:,} random parts of the users in turn, with noise of the same number of bands",
        "followed-norms": "vectors in units of a clipping bound, {:g} in the first round, which "
        "then follows the norms that {:,} of their coordinates count",
        "radius-around": "a clipping radius of {:g} around the result of the previous round",
        "radius-at-most": "a clipping radius of at most {:g} around the result of the previous "
        "round",
        "iterations": "{:,|iteration}, each around the result of the previous one, within a "
        "privately chosen radius that leaves about {:.0%} of the users outside in the end, unless a "
        "check within the budget shows that these move the mean, in which case all vectors are "
        "clipped to the bound",
        "iterations-at-most": "at most {:,|iteration}, each around the result of the previous "
        "one, within a privately chosen radius, and their number and shares of the noise follow "
        "from the published number of users",
        "iterations-or-mean": "at most {:,|iteration}, each around the result of the previous "
        "one, within a privately chosen radius, or one mean of vectors clipped to the bound, "
        "and their number and shares of the noise follow from the published number of users",
        "radii": "{:,} radii from {:g} to {:.3g}",
        "agreeing-users": "{:,} of {:,} users have to agree",
        "distance-grid": "distances on a grid of {:.3g}",
        "concentration": "a concentration radius of {:g}",
        "stated-concentration": "a concentration radius of {:g}, which only accuracy rests on",
        "chosen-concentration": "a concentration radius chosen privately with {:.0%} of ε, from "
        "{:.3g} to {:g}",
        "fresh-rounds": "{:,|round} with {:,} users each, who are identified by their numbers "
        "and asked once",
        "unused-users": "the last {:,} enrolled users are never asked",
        "ordered-rounds": "{:,|round} with {} users each, in the order of enrolment",
        "state-seen": "the internal state is seen at most once, at any time between two users",
        "rotated-vectors": "vectors of {:,} numbers, clipped to norm {:g}, padded to {:,} and "
        "rotated by public random signs",
        "clipped-coordinates": "each coordinate is clipped to {:g} on both sides of a private "
        "centre, and for vectors within {:g} of a point nothing is clipped, except with "
        "probability {:g}",
        "padded-vectors": "vectors padded to {:,} coordinates and rotated by public random "
        "signs, and each coordinate is clipped to a privately chosen interval",
        "intervals-of-few": "intervals are arbitrary if fewer than about {:,} users have a vector",
        "rounds-at-most": "at most {:,|round} with all of {:,} users",
        "close-users": "a run ends if about {:,} users are not close to the same number of others",
        "no-mean": "no mean unless about {:,} users are close to the same number of others",
        "sensitivity": "the element sensitivity {:g}, as stated by the caller",
        "most-records": "a number of records of at most {:,}",
        # Shuffled sums.
        "batches": "batches of {:,|device}, each of which participates in at most {:,|round}",
        "shuffler": "a trusted shuffler, which passes on the multiset of all messages of a "
        "batch as counts, the number of reports and the number of dropped reports, and nothing "
        "else",
        "honest-devices": "at least {:,} devices of a batch that report and follow the protocol",
        "device-vectors": "vectors of {:,|coordinate} and norm at most {:g}, clipped on the device",
        "device-numbers": "numbers of at most {:g}, clipped on the device",
        # Fits and choices.
        "block-rounds": "{:,|round}, each block sampled with probability {:g}",
        "user-rounds": "{:,|round}, each user sampled with probability {:g}",
        "all-rounds": "{:,|round} with all blocks",
        "features": "the features, their number and their scale",
        "scaled-feature": "the range of {!r}, {:g} to {:g}, scaled to [0, 1]",
        "levels": "the levels of {!r}: {}",
        "feature-bound": "rows of norm at most {:g}, to which longer ones are clipped",
        "clipped-targets": "targets clipped to ±{:g}",
        "counted-targets": "targets are clamped to [{:g}, {:g}]",
        "division": "a division by {:g} elements per user",
        "ridge": "a ridge of {:g}",
        "warm-up": "the first fifth of the rounds estimates the solution, and then the clipping "
        "bound is chosen within the budget",
        "intervals": "{:.0%} of the budget for intervals",
        "phases": "phases of {} users, who are identified by their numbers",
        "known": f"{_KNOWN}, {_TYPICAL}",
        "known-smooth": f"{_KNOWN}, curvatures of at most {{:g}}, {_TYPICAL}",
        "known-strong": f"{_KNOWN}, curvatures of at least {{:g}}, {_TYPICAL}",
        "known-both": f"{_KNOWN}, curvatures of at most {{:g}} and of at least {{:g}}, {_TYPICAL}",
        "folds": "{:,} folds of users, each excluded from one fit",
        "settings": "{:,} settings of {}, and {:g} runs on average (their number and time are "
        "not published)",
        "scored-losses": "losses of records are clipped to [0, {:g}] in the scores",
        "copied-model": "the parameters of this model, which scikit-learn copied: scores "
        "without noise, choices based on them, other copies, and steps that learn from rows or "
        "repeat them are not covered",
        "positive-label": "which label is positive",
        "probabilities": "a model, which computes the probability of each row from that row only",
        "predictions": "a model, which predicts each row from that row only",
        "classifier": "a classifier, which labels each row from that row only",
        "candidates": "{:,} candidates",
        "record-losses": "a loss of each record from that record only, clipped to [{:g}, {:g}]",
        "evaluations": "{:g} evaluations on average (their number and time are not published)",
        "own-evaluations": "evaluations that are {:up}-DP, as stated by the caller",
        "runs": "{:g} runs on average (their number and time are not published)",
        # Floating point, and assumptions about networks.
        "floating-sums": "sums are computed in floating point, and the guarantee ignores their "
        "rounding",
        "floating-gradients": "gradients are computed in floating point, and the guarantee "
        "ignores their rounding",
        "floating-moments": "second moments are added in floating point, and the guarantee "
        "ignores their rounding",
        "floating-noise": "noise is drawn in floating point, from a generator with a secret seed",
        "separate-gradients": "the gradient of each record is computed separately from other "
        "records, to the last bit",
        "followed-bounds": "later clipping bounds follow from noisy counts that each step "
        "publishes",
        "batches-as-read": "batches reach the network and the loss unchanged or changed record "
        "by record, numbers taken out of a batch change nothing, and network and loss have no "
        "custom batching rules, dispatch modes or seeds",
        "collated-rows": "collate_fn computes each row only from the record at the same position",
        "nothing-fails": "no record makes reading, the network or the loss fail, which would "
        "end the run",
        "evaluated-records": "the records for evaluating the network during the training",
        "padding": "the output of the model for a record does not depend on how far it is padded",
        "tried-padding": "the output of the model for a record does not depend on how far it is "
        "padded, as tests on synthetic records confirm",
    }
)


class _NounFormatter(Formatter):
    """A formatter with nouns: ``{:,|item}`` is "1 item" or "2 items", and ``{:up}`` rounds up."""

    def format_field(self, value: Any, spec: str) -> str:
        spec, bar, noun = spec.partition("|")
        text = rounded_up(value) if spec == "up" else super().format_field(value, spec)
        return f"{text} {noun}{'' if value == 1 else 's'}" if bar else str(text)


def written(sentence: str, numbers: tuple[int | float | str, ...]) -> str:
    """Return a sentence with its numbers filled in."""
    return _NounFormatter().format(sentence, *numbers)


def places(sentence: str) -> list[str]:
    """Return the format of each number of a sentence."""
    return [spec or "" for _, name, spec, _ in Formatter().parse(sentence) if name is not None]
