"""Estimates in words: their quantity, clipping, clamping and ranking, from the facts of a release."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dpgrain._formatting import powers, quantity, quote_user, rounded_up
from dpgrain.words.notes import note_texts

if TYPE_CHECKING:
    from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata

# Contribution of a record without a numeric column.
_EACH = {
    "record": "1 for each record",
    "holder": "1 for each unit with the item",
    "share": "1/√(items of the unit) for each unit with the item",
    "user": "1 for each user",
}
# Words for an aggregate of one user's rows, before the column.
_AGGREGATES = {
    "count": "number of records with a value of",
    "sum": "sum of",
    "mean": "mean of",
    "min": "smallest",
    "max": "largest",
    "nunique": "number of different values of",
    "first": "first",
    "last": "last",
    "most": "most frequent",
    "median": "median of",
}
# Aggregates without negative values.
_COUNTS = ("count", "size", "nunique")
# First words of counted quantities.
_COUNTED = ("records", "people", "users", "elements", "units")
# Privately chosen limits of these sizes are rounded to integers.
_AS_INTEGERS = (100.0, 1e9)
# Small shares of clipped units exclude no large effect.
_UNKNOWN_PART = "but few can make up most of the total"
# Clipped norms of a contribution, by noise distribution.
_NORMS = {"gaussian": "l2 norm", "laplace": "l1 norm"}


def description(metadata: ReleaseMetadata) -> dict[str, str]:
    """Description line by line, as in saved files and reports."""
    words = dict(metadata.told) if metadata.told else _first_lines(metadata)
    # Name of the warning in older files.
    words.pop("take care", None)
    if metadata.found is not None:
        words["range of the numbers"] = clamped_to(metadata)
    if clamping_effect(metadata):
        words["outside of the range"] = clamping_effect(metadata)
    if clipping_effect(metadata):
        words["left out"] = clipping_effect(metadata)
    if metadata.care:
        words["warning"] = warnings(metadata)
    if metadata.processed:
        words["post-processing"] = post_processing(metadata)
    return words


def _first_lines(metadata: ReleaseMetadata) -> dict[str, str]:
    lines = {
        "statistic": metadata.statistic.name,
        "table": metadata.title,
        "item": keys_text(metadata) or "none: one number over all records",
        "domain": _domain(metadata),
        "weight": record_contribution(metadata),
        "bad values": dropped_rows(metadata),
        "user": metadata.user or "none",
        "n_users": "not given" if metadata.n_users is None else f"{metadata.n_users:,}",
        "unit": metadata.unit or "",
        "elements": metadata.elements or "none",
        "relation": metadata.relation or "",
        "epsilon": "" if metadata.epsilon is None else rounded_up(metadata.epsilon, 6),
        "delta": "" if metadata.delta is None else powers(metadata.delta),
        "clip": "" if metadata.clip is None else clip_text(metadata.clip),
        "noise": metadata.noise,
    }
    return {line: words for line, words in lines.items() if words}


def keys_text(metadata: ReleaseMetadata) -> str:
    """Keys as text; empty without keys."""
    return ", ".join(metadata.by)


def record_contribution(metadata: ReleaseMetadata) -> str:
    """Contribution of a record."""
    if metadata.value is None:
        return _EACH[metadata.each]
    if metadata.bounds is None:
        return value_text(metadata) or ""
    return f"{metadata.value} {_clamped(metadata.bounds)}"


def value_text(metadata: ReleaseMetadata) -> str | None:
    """Numeric column, or two with their ranges; None if other things are counted."""
    if not metadata.pair:
        return metadata.value
    one, low, high, other, *ends = metadata.pair
    return f"{one} {_clamped((low, high))} and {other} {_clamped(ends)}"


def _domain(metadata: ReleaseMetadata) -> str:
    if metadata.public_items is not None:
        return quantity(metadata.public_items, "public item")
    if not metadata.selected:
        return ""
    some = len(metadata.selected) < len(metadata.by)
    named = f"{', '.join(metadata.selected)} " if some else ""
    return f"{named}selected privately{', the rest public' if some else ''}"


def dropped_rows(metadata: ReleaseMetadata) -> str:
    """Conditions of dropped rows; empty if there are none."""
    if metadata.told:
        return dict(metadata.told).get("bad values", "")
    if metadata.statistic.stacked:
        user_id = f"without a value in {quote_user(metadata.user)} or " if metadata.user else ""
        return f"rows {user_id}with an unknown value in any of the columns are dropped"
    user = [] if metadata.user is None or metadata.shared else [quote_user(metadata.user)]
    columns = [*user, *map(repr, metadata.by)]
    missing = [f"a value in {' or '.join(columns)}"] if columns else []
    if metadata.value is not None and not metadata.statistic.weighted:
        number = "both columns" if metadata.statistic.paired else repr(metadata.value)
        missing.append(f"a finite number in {number}")
    public = metadata.by and (
        metadata.public_items is not None or 0 < len(metadata.selected) < len(metadata.by)
    )
    outside = ", or with a group outside of the public list," * bool(public)
    rows = f"rows without {' or '.join(missing)}{outside} are dropped" if missing else ""
    if metadata.shared and metadata.user is not None:
        neither = "rows with neither " + metadata.user.replace("' and '", "' nor '")
        also = f", or without {' or '.join(missing)}{outside or ','}" if missing else ""
        rows = f"{neither}{also} are dropped"
    weighted = metadata.statistic.weighted and metadata.value is not None
    return f"{rows}; missing weights and weights below 0 count 0" if weighted else rows


def estimand(metadata: ReleaseMetadata) -> str:
    """Description of the estimates, with the clipping of one unit's contribution."""
    if metadata.is_weighted:
        whose = metadata.unit or "unit"
        return (
            f"score per {keys_text(metadata)} for ranking, not a number of people: each {whose} adds "
            f"1/√k to each of k items, which are all of its items or {_first_items(metadata)}"
        )
    if metadata.statistic.has_bins:
        return (
            f"number of users by how many values of {keys_text(metadata)}, and how many records, "
            "each has"
        )
    keys = ", ".join(map(partial(_with_meaning, metadata), metadata.by))
    per = f" per {keys}" if metadata.by else ""
    value = value_text(metadata)
    value = None if value is None else _with_meaning(metadata, value)
    what = metadata.statistic.estimate_name(value, metadata.rows)
    if metadata.statistic.holders:
        per, what = "", f"{_holders(metadata)} with each {keys}"
    if what.split()[0] in _COUNTED:
        what = f"{_number(metadata)} of {what}"
    if metadata.statistic.stepped:
        what = f"share of {metadata.rows} with {value} at or above each value"
        per += "" if metadata.over == "records" else f", over {_over(metadata)}"
    elif metadata.statistic.ratio:
        what = f"{metadata.statistic.heading} {metadata.statistic.value_of(value)}"
        per += f", over {_over(metadata)}"
    if (
        limits := metadata.bounds or metadata.found
    ) is not None and not metadata.statistic.has_edges:
        low, high = map(format_limit, limits)
        clamping = f"clamped to [{low}, {high}] (limits chosen privately)"
        what = f"{what} {_clamped(limits) if metadata.bounds else clamping}"
    if metadata.max_elements is not None:
        first = _first(metadata.max_elements, "")
        per += f", from at most {_element_limit(metadata)} per user ({first}; others are dropped)"
    return f"{what}{per}{_clipping(metadata)}"


def _with_meaning(metadata: ReleaseMetadata, column: str) -> str:
    """Return a column, with the words for its values if it describes people."""
    known = {name: meaning for name, *meaning in metadata.meanings}
    if column not in known:
        return column
    # Older files contain the words.
    words = known[column][0] if len(known[column]) == 1 else _meaning(*known[column])
    return f"{column} ({words})"


def _meaning(function: str, of: str = "", where: str = "", order: str = "", *by: str) -> str:
    """Words for each person's value, such as "each person's sum of paid"."""
    of, where = of.strip(), where.strip()
    if function in ("any", "all"):
        words = f"value of {function}({where})"
    elif function:
        counts = function == "size" or not of
        words = "number of records" if counts else f"{_AGGREGATES[function]} {of}"
        words += f" by {order.strip()}" * bool(order) + f" where {where}" * bool(where)
    else:
        words = of
    per = f" per {', '.join(by)}" if by else ""
    return f"each person's {words}{per}"


def _first_items(metadata: ReleaseMetadata) -> str:
    """Items of a unit that a selection counts."""
    return "the first items" if metadata.max_items is None else _first(metadata.max_items, "item")


def _number(metadata: ReleaseMetadata) -> str:
    """Word for an estimated count."""
    return "clipped count" if metadata.is_clipped else "number"


def _holders(metadata: ReleaseMetadata) -> str:
    """Noun for the units that are counted once per item."""
    # If records are protected, each pair of a user and an item still counts once.
    pairs = metadata.unit == "record" or (metadata.unit == "element" and metadata.has_user_items)
    return "users" if pairs and metadata.user else f"{metadata.unit or 'unit'}s"


def _element_limit(metadata: ReleaseMetadata) -> str:
    """Remaining elements of a user."""
    assert metadata.max_elements is not None  # noqa: S101 - asked for only then
    if metadata.has_user_items:
        return f"{quantity(metadata.max_elements, 'value')} of {keys_text(metadata)}"
    noun, of, column = metadata.cell.partition(" of ")
    return f"{quantity(metadata.max_elements, noun or 'cell')}{of}{column}"


def covers(metadata: ReleaseMetadata) -> str:
    """Quantity that intervals cover, such as "clipped total"."""
    return f"{'clipped ' if metadata.is_clipped else ''}{unclipped(metadata)}"


def unclipped(metadata: ReleaseMetadata) -> str:
    """The same quantity without clipping of contributions."""
    if metadata.is_weighted:
        return "score"
    limited = metadata.bounds is not None or metadata.range_was_private or metadata.statistic.paired
    clamped = " of clamped values" if limited and not metadata.statistic.has_edges else ""
    limit = "" if metadata.max_elements is None else " of kept elements"
    return f"{metadata.statistic.covers}{clamped}{limit}"


def lower_bound_limit(metadata: ReleaseMetadata) -> str:
    """Condition on values under which ``at_least`` bounds their total; empty without clamping."""
    limits = metadata.bounds or metadata.found
    functions = {name: meaning[0] for name, *meaning in metadata.meanings}
    if not limits or metadata.value is None or metadata.statistic.has_edges:
        return ""
    counted = functions.get(metadata.value) in _COUNTS
    if limits[0] < 0 or (counted and limits[0] == 0):
        return ""
    return f"at_least requires that no value is below {format_limit(limits[0])}"


def _over(metadata: ReleaseMetadata) -> str:
    """Description of the rows that estimates cover."""
    if metadata.over == "everyone" and metadata.n_users is not None:
        return f"all {metadata.n_users:,} enrolled people, 0 for those without records"
    return "people with a record" if metadata.over == "people" else metadata.rows


def _clipping(metadata: ReleaseMetadata) -> str:
    """Clipping of one unit's contribution, after a comma; empty if nothing is clipped."""
    if not metadata.is_clipped:
        return ""
    if metadata.told:
        return f", clipped: {dict(metadata.told)['clip']}"
    assert metadata.clip is not None  # noqa: S101 - clipped contributions have a bound
    if metadata.clip.over == "item":
        return f", counting only {_first_items(metadata)} of each {metadata.unit or 'unit'}"
    limit = metadata.clip.bound
    if metadata.clip.over == "group":
        bounds = f"after division by the bound of each {metadata.statistic.noun}"
        return f"{_scaled(metadata, f'norm 1 {bounds}')}, chosen privately"
    if limit is None and metadata.bound is None:
        per = f" per {_cell(metadata)}" if metadata.clip.over == "cell" else ""
        return f"{_scaled(metadata, f'a bound{per}')}, chosen privately"
    multiple = clip_is_multiple(metadata)
    largest = max(map(abs, metadata.bounds or metadata.found or ())) if multiple else 1.0
    bound = metadata.bound if limit is None else limit * largest
    assert bound is not None  # noqa: S101 - see above
    clip = format_limit(bound / largest) if limit is None else f"{limit:,.6g}"
    product = f" (clip={clip} × {largest:,.6g})" * (largest != 1)
    chosen = ", chosen privately" * (limit is None)
    return f"{_scaled(metadata, f'{limit_text(metadata, bound)}{product}')}{chosen}"


def clip_is_multiple(metadata: ReleaseMetadata) -> bool:
    """True if an explicit bound is in units of the largest magnitude of a value, as in sums."""
    return metadata.statistic.signed and (metadata.bounds or metadata.found) is not None


def _scaled(metadata: ReleaseMetadata, limit: str) -> str:
    """Describe the clipping of one unit's contribution to a limit, after a comma."""
    if metadata.shared:
        # A record's weight below 1 requires an owner with more than the limit.
        return (
            ", each record counted once for all its users, or less where needed to clip "
            f"{_block(metadata)} to at most {limit}"
        )
    together = " together" * ("contributions" in _block(metadata))
    return f", {_block(metadata)} clipped (scaled down{together}) to at most {limit}"


def limit_text(metadata: ReleaseMetadata, bound: float) -> str:
    """Bound as text, with its unit for counts, and the norm that it limits."""
    norm, size = _joint_norm(metadata), format_limit(bound) if metadata.chosen else f"{bound:,.6g}"
    if metadata.statistic.ratio and not metadata.statistic.ranked:
        # The contribution of a record has an l1 norm of 1.
        of_one = f"{norm} {size} (one record has a norm of at most 1)"
        return f"{size} {metadata.rows}" if norm == "l1 norm" else of_one
    if norm and (norm != "l1 norm" or not _groups(metadata) or metadata.statistic.ratio):
        roots = metadata.each == "holder" and norm == "l2 norm"
        parts = metadata.statistic.signed and not _groups(metadata)
        return (
            f"{norm} {size}{f' (√k for k {_groups(metadata)})' * roots}"
            f"{' (of positive and negative parts)' * parts}"
        )
    if _counts_rows(metadata) and not metadata.statistic.ratio:
        one = "record" if metadata.over == "records" else "person"
        size += f" {one if bound == 1 else metadata.rows}"
    return f"{size} in total ({norm})" if norm else size


def _counts_rows(metadata: ReleaseMetadata) -> bool:
    """True if each row adds 1."""
    return metadata.value is None and metadata.each == "record"


def clipping_examples(metadata: ReleaseMetadata) -> str:
    """Contributions with the largest l2 norm over several groups; empty for other norms."""
    bound = None if metadata.clip is None or metadata.told else metadata.clip.bound
    joint = _groups(metadata) and _joint_norm(metadata) == "l2 norm" and _counts_rows(metadata)
    if bound is None or not joint or not metadata.is_clipped or metadata.statistic.ratio:
        return ""
    return (
        f"l2 norm {bound:,.6g} means, for example, {bound:,.6g} {metadata.rows} in one "
        f"{_groups(metadata)[:-1]}, or {bound / 2:,.6g} in each of 4"
    )


def _joint_norm(metadata: ReleaseMetadata) -> str:
    """Norm that a bound limits, if a contribution consists of several numbers."""
    if metadata.statistic.stacked:
        return "joint norm"
    ends = metadata.bounds or metadata.found
    two_signs = metadata.statistic.signed and ends is not None and ends[0] < 0 < ends[1]
    if not (_groups(metadata) or metadata.statistic.ratio or two_signs):
        return ""
    return _NORMS.get(metadata.noise, "norm")


def _groups(metadata: ReleaseMetadata) -> str:
    """Groups of one contribution, in the plural; empty for a contribution to one group."""
    if metadata.unit == "record" or (metadata.elements and metadata.has_user_items):
        return ""
    if metadata.by:
        return f"{metadata.statistic.noun}s"
    return "bins" if metadata.statistic.has_edges else ""


def _cell(metadata: ReleaseMetadata) -> str:
    """Noun for a cell of the partition: a key, a period or a cell."""
    noun = keys_text(metadata) if metadata.has_user_items else metadata.cell.partition(" of ")[0]
    return noun or "cell"


def _place(metadata: ReleaseMetadata) -> str:
    """Cell of a contribution to an element; empty without elements."""
    if metadata.has_user_items:
        return f" to each {keys_text(metadata)}"
    if metadata.cells is not None and metadata.cells > 1:
        noun, of, column = (metadata.cell or "cell").partition(" of ")
        return f" in one of {metadata.cells:,} public {noun}s{of}{column}"
    return f" in one {metadata.cell or 'cell'}" if metadata.elements else ""


def _contribution(metadata: ReleaseMetadata) -> str:
    """Contribution with one clipping bound."""
    if metadata.unit == "record":
        return "each record"
    return f"each {'user' if metadata.unit else 'unit'}'s contribution{_place(metadata)}"


def _block(metadata: ReleaseMetadata) -> str:
    """Contribution with one clipping bound, and its groups."""
    if not _groups(metadata):
        return _contribution(metadata)
    whose = "user" if metadata.unit else "unit"
    number = (
        "" if metadata.public_items is None or metadata.elements else f"{metadata.public_items:,} "
    )
    return f"each {whose}'s contributions to all {number}{_groups(metadata)}{_place(metadata)}"


def clipping_effect(metadata: ReleaseMetadata) -> str:
    """Effect of clipping on all groups together; empty if nothing is clipped."""
    if metadata.told:
        return dict(metadata.told).get("left out", "")
    if not metadata.is_clipped or (metadata.clip is not None and metadata.clip.over == "item"):
        return ""
    if metadata.counts_clipped:
        return ""
    if metadata.clipped is not None:
        most = f"at most {rounded_up(100 * metadata.clipped, 2)}% of {clipped_units(metadata)}"
        return f"{most} were clipped (95% confidence), {_UNKNOWN_PART}: quote at_least"
    ever = " for this statistic" * metadata.statistic.ratio
    return f"share of clipped {clipped_units(metadata)}: not estimated{ever}"


def clipped_units(metadata: ReleaseMetadata) -> str:
    """Clipped units, in the plural."""
    if metadata.elements:
        return f"users' contributions to one {_cell(metadata)}"
    return f"{metadata.unit or 'unit'}s"


def share_limit(metadata: ReleaseMetadata) -> str:
    """Description of the column ``clipped_share``, in one line: it limits no share of the total."""
    units = "elements" if metadata.elements else clipped_units(metadata)
    weighted = " (weighted)" * bool(_groups(metadata))
    return f"clipped_share is a 95% limit for {units}{weighted}; few can be most of the total"


def share_meaning(metadata: ReleaseMetadata) -> str:
    """Description of the share of clipped units."""
    own = bool(metadata.elements) and metadata.has_user_items
    place = f" in the {metadata.statistic.noun}" if metadata.by else ""
    where, groups = "" if own else f" with data{place}", _groups(metadata)
    root = "k" if metadata.noise == "laplace" else "√k"
    weight = f" (each user with data in k {groups} has weight 1/{root})" * bool(groups)
    units, weighted = clipped_units(metadata), "weighted " * bool(weight)
    share = f"95% upper limit on the {weighted}share of {units}{where} that were clipped{weight}"
    return f"{share}, {_UNKNOWN_PART}"


def clamping_effect(metadata: ReleaseMetadata, *, brief: bool = False) -> str:
    """Effect of a privately chosen range, or of stated bounds; empty if unknown."""
    if metadata.beyond is None and (metadata.bounds is not None or metadata.statistic.paired):
        return "share beyond the stated bounds: not estimated"
    limits = metadata.found or metadata.bounds
    if metadata.beyond is None or not (limits or metadata.pair):
        return dict(metadata.told).get("outside of the range", "")
    where = "the stated bounds"
    if limits:
        where = f"[{format_limit(limits[0])}, {format_limit(limits[1])}]"
    if brief:
        return (
            f"at most {rounded_up(100 * metadata.beyond, 2)}% of "
            f"{'pairs' if metadata.pair else 'values'}"
            f"{', averaged over users,' * (metadata.unit in ('user', 'element'))} were outside "
            f"{where} (95% confidence)"
        )
    values = "values" if metadata.value is None else f"values of {metadata.value}"
    if metadata.pair:
        values = f"pairs of {metadata.pair[0]} and {metadata.pair[3]}"
    most = f"at most {rounded_up(100 * metadata.beyond, 2)}% of all {values}"
    if metadata.outside is not None:
        most = f"about {100 * metadata.outside:.2g}%, {most}"
    confidence = "95% confidence"
    if metadata.unit in ("user", "element"):
        each, of = (
            (f" and {_cell(metadata)}s", f" in one {_cell(metadata)}")
            if metadata.elements
            else ("", "")
        )
        limit = "" if metadata.max_elements is None else ", among the kept elements"
        most = f"on average over users{each}{limit}, {most} of one user{of}"
        # Each unit's counts of bins are scaled to norm 1: their sum is 1 for the l1 norm only.
        confidence += "; users with varied values weigh more" * (metadata.noise == "gaussian")
    return f"{most} were outside {where} ({confidence}) and clamped, by an unknown amount"


def bounds_effect(metadata: ReleaseMetadata) -> str:
    """Effect of explicit bounds; empty if there are none."""
    if metadata.bounds is not None:
        text = f"values are {_clamped(metadata.bounds)}"
    elif metadata.statistic.paired:
        text = "values are clamped to the given bounds"
    else:
        return ""
    return f"{text}; intervals do not include the effect of this"


def clamped_to(metadata: ReleaseMetadata) -> str:
    """Privately chosen range of the numbers in files; empty if there is none."""
    if metadata.found is None:
        return ""
    low, high = metadata.found
    return f"{low:,.6g} to {high:,.6g}, chosen privately"


def beyond_bounds(metadata: ReleaseMetadata) -> str:
    """Share of values outside of stated bounds in files; empty if there are none."""
    if metadata.bounds is None and not metadata.statistic.paired:
        return ""
    if metadata.beyond is None:
        return "not estimated"
    return f"at most {rounded_up(100 * metadata.beyond, 2)}% (95% confidence)"


def ranking_effect(metadata: ReleaseMetadata) -> str:
    """Effect of ranking by noisy counts; empty without ranking."""
    if not metadata.statistic.holders:
        return ""
    # The noise of a separate selection does not bias the counts.
    passed = metadata.is_weighted or (metadata.selected and metadata.noise == "truncated geometric")
    named, above = (" and selected", " and just above the threshold") if passed else ("", "")
    counts = "scores" if metadata.is_weighted else "counts"
    return (
        f"items are ranked{named} by their noisy {counts}, so {counts} at the top{above} tend to "
        "be overestimated; intervals do not allow for this"
    )


def quantity_name(metadata: ReleaseMetadata) -> str:
    """Name of an estimate, in one or two words."""
    words = metadata.statistic.estimate_name(value_text(metadata), metadata.rows)
    return f"weighted {words}" if metadata.is_weighted else words


def warnings(metadata: ReleaseMetadata, reason: str = "") -> str:
    """Warnings for readers of the estimates, and the reason of an empty cell, by its kind."""
    return "; ".join(note_texts((*metadata.care, *([(reason,)] if reason else []))))


def post_processing(metadata: ReleaseMetadata) -> str:
    """Post-processing of the estimates as text; empty if there was none."""
    return ", ".join(metadata.processed)


def clip_text(clip: Clip) -> str:
    """Clipping of contributions, as requested."""
    if clip.bound is None:
        per = "one bound for all items" if clip.over == "release" else f"one bound per {clip.over}"
        return f"auto ({per}, chosen privately)"
    return f"{clip.bound:,.6g}{' for each item' if clip.over == 'item' else ''}"


def _clamped(limits: Sequence[Any]) -> str:
    return f"clamped to [{limits[0]:,.6g}, {limits[1]:,.6g}]"


def format_limit(limit: float) -> str:
    """Return a privately chosen limit with three digits, or as an integer."""
    low, high = _AS_INTEGERS
    return f"{limit:,.0f}" if low <= abs(limit) < high else f"{limit:.3g}"


def _first(number: int, noun: str) -> str:
    which = "the first " + (
        noun if number == 1 else quantity(number, noun) if noun else f"{number:,}"
    )
    return f"{which.strip()} in a fixed public order"
