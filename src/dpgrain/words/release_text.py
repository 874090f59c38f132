"""A release as text: its title, a few rows and notes, for ``print``, the terminal and notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._formatting import (
    POINTER,
    Paragraphs,
    abbreviate,
    align_columns,
    format_facts,
    format_number,
    one_line,
    quantity,
    rounded_up,
    sentence,
    shorten,
    useful_decimals,
)
from dpgrain._types import FloatArray, IntArray
from dpgrain.words import guarantee_text, quantities
from dpgrain.words.guarantee_text import filters
from dpgrain.words.notes import note_texts
from dpgrain.words.odds import privacy_sections
from dpgrain.words.quantities import (
    bounds_effect,
    clamping_effect,
    clip_is_multiple,
    clipped_units,
    clipping_effect,
    clipping_examples,
    covers,
    dropped_rows,
    estimand,
    format_limit,
    keys_text,
    lower_bound_limit,
    post_processing,
    ranking_effect,
    share_meaning,
    unclipped,
    warnings,
)

if TYPE_CHECKING:
    from dpgrain.statistics.comparisons import Comparison
    from dpgrain.statistics.intervals import ClippedUnits
    from dpgrain.statistics.release import Release
    from dpgrain.statistics.release_metadata import ReleaseMetadata

# Printed rows of a long release, and the largest number of rows of others.
_ROWS, _ALL_ROWS = 5, 20
# Maximum characters of a printed key.
_LETTERS = 39
_CHOSEN = (
    "to estimate the unclipped {unclipped} instead, pass a clip= that few contributions exceed; "
    "this adds noise"
)
_COMPARED = "comparing groups (difference, ratio) requires an explicit clip=, because bounds differ"
# Bins of other columns have a width.
_ONE_INTEGER = "where std_error is 0, the interval is one integer, although others are possible"
_NO_LEAST = (
    "there is no at_least, because values may be negative; if none is below 0, pass bounds= from 0"
)
# Groups with fewer standard errors may be empty.
_STANDS_OUT = 3.0
_COUNTS = ("count", "count_error")
# Days and months are printed in chronological order …
_MONTH = re.compile(r"(?<=-[0-9]{2})-01$")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?")
# … and the groups of bins(x, 0, 10, 100) by their lower end.
_BIN = re.compile(r"(?:(?P<first>below) \S+|(?P<low>\S+) to \S+|(?P<last>\S+) and above)")
# Integers are in order if at least this part of those between their ends are keys, like ages.
_WITHOUT_GAPS = 0.5
# Numbers with more digits keep all of them in CSV.
_DIGITS = 15


@dataclass(frozen=True)
class PrintedRow:
    """Row of a release, as printed."""

    keys: tuple[str, ...]
    estimate: str
    std_error: str
    low: str
    high: str
    more: tuple[str, ...] = ()

    def numbers(self, release: Release) -> list[str]:
        """Return the numbers of the row, without empty columns."""
        named = zip(release.more, self.more, strict=True)
        known = extra_columns(release)
        own = [self.estimate, self.std_error, self.low, self.high]
        return own + [text for name, text in named if name in known]


def format_rows(release: Release, places: IntArray, *, letters: int) -> list[PrintedRow]:
    """Format rows of a release, with the number of decimals that the noise allows."""
    columns = (release.estimate, release.std_error, release.low, release.high)
    values = np.stack([column[places] for column in columns], axis=1)
    more = {name: column[places] for name, column in release.more.items()}
    divided = "count" in more
    # Noise on integers is an integer.
    whole = not divided and bool((values[:, 0] == np.rint(values[:, 0])).all())
    known = values[np.isfinite(values[:, 1]), 1]
    usual = useful_decimals(float(np.median(known))) if known.size else None
    lines = []
    for row, keys in enumerate(format_keys(release, places, letters=letters)):
        decimals = useful_decimals(float(values[row, 1]))
        if divided and usual is not None:
            # Equal decimals for all ratios, except for much smaller or larger errors.
            near = decimals is None or abs(decimals - usual) < 2
            decimals = usual if near else decimals
        estimate, error, low, high = (
            _format(name, float(value), decimals)
            for name, value in zip(_NUMBERS, values[row], strict=True)
        )
        if whole:
            estimate = format_number(float(values[row, 0]), 0)
        own = tuple(
            _percent(float(column[row]))
            if name == "clipped_share"
            else _format(name, float(column[row]), 0 if name in _COUNTS else decimals)
            for name, column in more.items()
        )
        lines.append(PrintedRow(keys, estimate, error, low, high, own))
    return lines


def estimates_with_errors(release: Release) -> list[str | None]:
    """Return each estimate with its standard error, such as "4,445 ± 145"; None without one."""
    lines = format_rows(release, np.arange(len(release)), letters=0)
    known = np.isfinite(release.estimate).tolist()
    return [
        f"{line.estimate} ± {line.std_error}" if is_known else None
        for line, is_known in zip(lines, known, strict=True)
    ]


def _format(name: str, value: float, decimals: int | None) -> str:
    """Format a number of a column; lower limits are rounded down, and upper limits up."""
    if name in _LIMITS:
        value = _rounded(value, decimals, _ROUNDING[name])
    return format_number(value, decimals)


def _percent(limit: float) -> str:
    """Format an upper limit on a share, rounded up."""
    return f"≤{rounded_up(100 * max(limit, _LEAST_SHARE), 2)}%"


# Smallest printed upper limit on a share: noise excludes no share.
_LEAST_SHARE = 1e-4


def shown(release: Release, count: int) -> IntArray:
    """Return the indices of the rows to print: the largest, or the first in a fixed order."""
    count = _validate.integer(minimum=1, top=count)
    if release.statistic.in_order or not release.groups.names:
        return np.arange(min(count, len(release)))
    if (order := _key_order(release)) is not None:
        return order[:count]
    return np.argsort(-ranking(release), kind="stable")[:count]


def ranking(release: Release) -> FloatArray:
    """Return the numbers by which rows are ranked: for ratios their counts."""
    # The largest and smallest means are those with the most noise.
    return release.more["count"] if _is_ranked_by_count(release) else release.estimate


def ranking_name(release: Release) -> str:
    """Return words for the rows that :func:`shown` prints first."""
    if in_order(release):
        return "first"
    if _is_ranked_by_count(release):
        return f"largest by {'clipped ' * counts_are_clipped(release)}count"
    return f"largest by {release.covers}" if release.metadata.is_clipped else "largest"


def _is_ranked_by_count(release: Release) -> bool:
    return release.statistic.ratio and "count" in release.more


def in_order(release: Release) -> bool:
    """Return True if rows have a fixed order, such as days."""
    return release.statistic.in_order or _key_order(release) is not None


def _key_order(release: Release) -> IntArray | None:
    """Return the indices of the rows in the order of their first key; None if it has no order."""
    if not release.groups.names or not len(release):
        return None
    keys, order = release.groups.columns[0].to_pylist(), release.groups.order()
    if all(isinstance(key, str) and _DATE.fullmatch(key) is not None for key in keys):
        return order
    if release.statistic.has_items:
        # The largest items are of interest.
        return None
    if has_order(keys):
        return order
    lows = [_lower_end(key) for key in keys]
    if any(low is None for low in lows):
        return None
    return order[np.argsort(np.array(lows, dtype=np.float64)[order], kind="stable")]


def has_order(keys: Sequence[Any]) -> bool:
    """Return True if keys are integers without large gaps, such as ages or hours."""
    known = set(keys)
    if len(known) < 2 or not all(type(key) is int for key in known):
        return False
    return bool(len(known) >= _WITHOUT_GAPS * (max(known) - min(known) + 1))


def _lower_end(key: Any) -> float | None:
    """Return the lower end of a group of bins; None for other keys."""
    found = _BIN.fullmatch(key) if isinstance(key, str) else None
    if found is None:
        return None
    try:
        return (
            -np.inf if found["first"] else float((found["low"] or found["last"]).replace(",", ""))
        )
    except ValueError:
        return None


def rounded(release: Release, table: pa.Table) -> pa.Table:
    """Return the table of a release with numbers rounded to two digits of their error."""
    # Lower ends and bounds are rounded down, upper ends, errors and shares up. Estimates that were
    # made to add up keep all digits.
    errors = dict.fromkeys(("estimate", "std_error", "low", "high", "at_least"), "std_error")
    errors |= dict.fromkeys(_COUNTS, "count_error")
    decimals = {
        error: [
            None if value is None else useful_decimals(value)
            for value in table.column(error).to_pylist()
        ]
        for error in set(errors.values()) & set(table.column_names)
    }
    for name in set(errors) & set(table.column_names):
        if errors[name] not in decimals or (name == "estimate" and release.metadata.processed):
            continue
        way = _ROUNDING.get(name, ROUND_HALF_EVEN)
        values = zip(table.column(name).to_pylist(), decimals[errors[name]], strict=True)
        column = pa.array(
            [None if value is None else _rounded(value, digits, way) for value, digits in values],
            pa.float64(),
        )
        table = table.set_column(table.column_names.index(name), name, column)
    if "clipped_share" in table.column_names:
        limits = [
            None
            if limit is None
            else max(_rounded(limit, useful_decimals(limit), ROUND_CEILING), _LEAST_SHARE)
            for limit in table.column("clipped_share").to_pylist()
        ]
        place = table.column_names.index("clipped_share")
        table = table.set_column(place, "clipped_share", pa.array(limits, pa.float64()))
    return table


_NUMBERS = ("estimate", "std_error", "low", "high")
_LIMITS = ("low", "high", "at_least")
_ROUNDING = {
    "low": ROUND_FLOOR,
    "at_least": ROUND_FLOOR,
    "high": ROUND_CEILING,
    "std_error": ROUND_CEILING,
    "count_error": ROUND_CEILING,
}


def _rounded(value: float, decimals: int | None, way: str) -> float:
    """Return a number with these decimals, or unchanged if it has more digits than a double."""
    if decimals is None or not np.isfinite(value):
        return value
    made = Decimal(value).quantize(Decimal(1).scaleb(-decimals), way, _ALL_DIGITS)
    # Adding 0 turns −0 into 0.
    return float(made) + 0.0 if len(made.as_tuple().digits) <= _DIGITS else value


# Max digits of a double in CSV, before and after the point.
_ALL_DIGITS = Context(prec=350)


def key_headings(release: Release) -> tuple[str, ...]:
    """Return the headings of the keys, which describe what :func:`format_keys` prints."""
    if release.statistic.has_bins:
        return ("counted", "per user")
    if release.statistic.stepped:
        return (*release.key_names[:-1], release.metadata.value or "value")
    # Backquotes around the names in expressions are for the parser only.
    return tuple(name.replace("`", "") for name in release.key_names)


def format_keys(release: Release, places: IntArray, *, letters: int) -> list[tuple[str, ...]]:
    """Format the keys of the groups at these indices, each with a limited number of characters."""
    columns = [column.to_pylist() for column in release.groups.take(places).columns]
    for place, name in enumerate(release.groups.names):
        if name in release.metadata.months:
            columns[place] = list(map(_format_month, columns[place]))
    statistic = release.statistic
    if statistic.has_bins:
        values = f"values of {keys_text(release.metadata)}"
        counted = [values if kind == "elements" else kind for kind in columns[0]]
        columns = [counted, format_bins(release, columns[1])]
    elif statistic.stepped:
        columns[-1] = [f"≥ {format_key(least)}" for least in columns[-1]]
    elif statistic.binned:
        columns[-2] = ["−∞" if end is None else end for end in columns[-2]]
        columns[-1] = ["∞" if end is None else end for end in columns[-1]]
    if statistic.stacked:
        columns = [["(all)" if key is None else key for key in column] for column in columns]
    texts = [abbreviate([format_key(key) for key in column], letters) for column in columns]
    return list(zip(*texts, strict=True)) or [()] * len(places)


def with_months(release: Release, table: pa.Table) -> pa.Table:
    """Return the table of a release with months such as 2025-01, as they are printed."""
    for name, key in zip(release.key_names, release.groups.names, strict=False):
        if key in release.metadata.months:
            place = table.column_names.index(name)
            months = list(map(_format_month, table.column(place).to_pylist()))
            table = table.set_column(place, name, pa.array(months, pa.string()))
    return table


def _format_month(key: Any) -> str | None:
    """Format a month by its first day; None for no month."""
    return None if key is None else _MONTH.sub("", str(key))


def format_key(key: Any) -> str:
    """Format one key."""
    if isinstance(key, float):
        return f"{key:.10g}"
    return "none" if key is None else one_line(key)


def format_bins(release: Release, most: Sequence[int | None]) -> list[str]:
    """Format bins as intervals; each is given by its largest number, or None for the last."""
    edges = sorted({edge for edge in release.groups.columns[1].to_pylist() if edge is not None})
    names: dict[int | None, str] = {}
    before = 0
    for edge in edges:
        names[edge] = f"{edge:,}" if edge == before + 1 else f"{before + 1:,}–{edge:,}"
        before = edge
    names[None] = f"over {before:,}"
    return [names[edge] for edge in most]


def extra_columns(release: Release) -> list[str]:
    """Return the names of the additional columns with a known number."""
    return [name for name, column in release.more.items() if not np.isnan(column).all()]


def number_headings(release: Release) -> tuple[str, ...]:
    """Return the names of the numeric columns with a known number."""
    return ("estimate", "std_error", "low", "high", *extra_columns(release))


def counts_are_clipped(release: Release) -> bool:
    """Return True if the counts next to estimates are clipped."""
    return release.metadata.is_clipped and release.metadata.over != "everyone"


def title(release: Release) -> str:
    """Return the title of a release: quantity, keys, clipping, number of groups and filter."""
    only = (f"only {each}" for each in filters(release.guarantee))
    return ", ".join([_title(release), *only])


def _title(release: Release) -> str:
    metadata = release.metadata
    words = one_line(estimand(metadata))
    words = f"{words[:1].upper()}{words[1:]}"
    if not release.groups.names or release.statistic.has_bins:
        return words
    points = len(release.groups.columns[-1].unique()) if release.statistic.pointwise else 1
    noun = "bin" if release.statistic.binned else release.statistic.noun
    groups = len(release) // max(points, 1)
    number = quantity(groups, noun)
    if metadata.selected and release.statistic.holders:
        return f"{words} (the {groups:,} largest, chosen privately; others are missing)"
    if metadata.selected_groups is not None:
        whole = quantity(metadata.selected_groups, noun)
        return f"{words} (the {groups:,} largest of {whole} chosen privately)"
    if metadata.selected:
        return f"{words} ({number}, chosen privately; rare ones are missing)"
    if metadata.public_items is None or noun == "bin":
        return words if (groups, noun) == (1, "group") else f"{words} ({number})"
    public = f"{metadata.public_items:,} public {noun}{'s' * (metadata.public_items != 1)}"
    some = f"the {groups:,} largest of " if release.statistic.holders else f"{groups:,} of "
    return f"{words} ({some if groups < metadata.public_items else ''}{public})"


def notes(release: Release) -> list[str]:
    """Return at most two notes (four lines): quantity of the intervals, warnings."""
    metadata = release.metadata
    if not len(release):
        return [
            "No group passed the threshold: ask the curator to check the columns for unreadable "
            "values (--check), or pass domain= or a larger epsilon=."
        ]
    parts = [_intervals(release), clipping_effect(metadata), clamping_effect(metadata, brief=True)]
    if not np.isnan(release.estimate).all():
        parts.append(_lower_bounds(release))
    unseen = any(kind == "few-numbers" for kind, *_ in metadata.care)
    if np.isnan(release.estimate).any() and not unseen:
        parts.append("blank estimates did not stand out from the noise")
    if "count" in extra_columns(release) and counts_are_clipped(release):
        parts.append(f"count is the clipped number of {metadata.rows}")
    if release.statistic.ranked and (release.std_error == 0).any():
        parts.append(_ONE_INTEGER)
    lines = [" ".join(sentence(part) for part in parts if part)]
    care = all_warnings(release)
    return [*lines, f"Warning: {care}."] if care else lines


def share_limit(release: Release) -> str:
    """Describe the column ``clipped_share``, and the number to quote; empty without the column."""
    if "clipped_share" not in extra_columns(release):
        return ""
    return f"{quantities.share_limit(release.metadata)}{_number_to_quote(release)}"


def _number_to_quote(release: Release) -> str:
    return "" if lacks_lower_bounds(release) else ": quote at_least"


def file_notes(release: Release) -> str:
    """Return all notes except the warnings that rows of files repeat."""
    parts = notes(release)[:1]
    if "clipped_share" in extra_columns(release):
        share = f"{share_meaning(release.metadata)}{_number_to_quote(release)}"
        parts.append(f"clipped_share: {share}.")
    if care := _clipping_warning(release):
        parts.append(f"Warning: {care}.")
    return " ".join(parts)


def all_warnings(release: Release) -> str:
    """Return the warnings of a release, and that of clipped units."""
    return "; ".join(filter(None, (warnings(release.metadata), _clipping_warning(release))))


def _clipping_warning(release: Release) -> str:
    """Describe groups with many possibly clipped units, and the remedy; empty for none."""
    units: ClippedUnits | None = getattr(release, "units", None)
    guessed = any(kind == "no-bound" for kind, *_ in release.metadata.care)
    if units is None or guessed or units.is_small.all() or np.isnan(release.estimate).all():
        return ""
    low, high, many = units.low, units.high, int((~units.is_small).sum())
    if len(release) == 1:
        least = f"at least {100 * low[0]:.2g}% and " if low[0] > 0 else ""
        share = f"{least}at most {rounded_up(100 * high[0], 2)}%"
        return f"{share} of {clipped_units(release.metadata)} were clipped, by an unknown amount"
    noun = release.statistic.noun
    hidden = int((np.abs(release.estimate) < _STANDS_OUT * release.std_error).sum())
    if 2 * hidden > len(release):
        # A larger clip= would add noise.
        visible = release.estimate >= _STANDS_OUT * release.std_error
        clipped = int((visible & ~units.is_small).sum())
        return (
            f"{hidden:,} of {len(release):,} {noun}s do not stand out from the noise: ask the curator "
            "to check the labels, values and format of the file (--check), or publish larger groups"
            + f"; clipping may matter in {clipped:,} others (see clipped_share)"
            * bool(clipped)
        )
    some = f", especially in {many:,} of {len(release):,} {noun}s"
    where = f" in all {noun}s" if many == len(release) else some
    multiple = " (a multiple of the largest value)" if clip_is_multiple(release.metadata) else ""
    return (
        f"clipping may matter{where} (see clipped_share): pass a larger clip={multiple}, or publish "
        f"{noun}s with a large share separately, with their own clip="
    )


def _lower_bounds(release: Release) -> str:
    """Describe missing lower bounds of totals, or the values that they require."""
    if lacks_lower_bounds(release):
        return _NO_LEAST
    return lower_bound_limit(release.metadata) if "at_least" in extra_columns(release) else ""


def lacks_lower_bounds(release: Release) -> bool:
    """Return True for clipped sums without lower bounds, because their values may be negative."""
    least = getattr(release, "at_least", None)
    return least is not None and bool(np.isnan(least).all()) and len(release) > 0


def explanation(release: Release) -> Paragraphs:
    """Describe every column, the clipping, the noise and the guarantee."""
    privacy = privacy_sections(release.guarantee, release.shares, release.query)
    return format_facts(title(release), {**column_meanings(release), **privacy})


def column_meanings(release: Release) -> dict[str, str]:
    """Describe each column, clipping, noise and other facts, by name."""
    metadata, statistic = release.metadata, release.statistic
    facts = {
        "clipping": _clipping(release),
        "lower bound": _lower_bounds(release),
        "rows": dropped_rows(metadata),
        "values": "; ".join(filter(None, (bounds_effect(metadata), clamping_effect(metadata)))),
        "average": _average(release),
        "ranking": ranking_effect(metadata),
        "labels": _long_labels(release),
        "negatives": "negative estimates were set to 0, so small ones are biased upwards"
        if getattr(release, "nonnegative", False)
        else "",
        "noise": metadata.noise or getattr(release, "noise", "gaussian"),
        "warning": all_warnings(release),
    }
    columns = {
        "estimate": f"the {covers(metadata)}, plus noise",
        "std_error": "standard error of the noise",
        "low, high": _intervals(release).replace(" (low to high)", ""),
        "at_least": f"95% lower bound for the unclipped {unclipped(metadata)}. No private release can "
        "give an upper bound, because one person may contribute any amount",
        "count": _count(release),
        "count_error": "standard error of count",
        "clipped_share": share_meaning(metadata),
        "clip": f"clipping bound of the {statistic.noun}, for users with data only in it",
    }
    if statistic.ratio:
        columns["estimate"] = f"the {covers(metadata)}, computed from noisy sums"
        columns["std_error"] = "approximate standard error that the noise causes"
    if metadata.processed:
        columns["estimate"] = (
            f"the {covers(metadata)}, after post-processing ({post_processing(metadata)})"
        )
        columns["std_error"] = "approximate standard error after post-processing"
    known = ("low, high", *number_headings(release))
    texts = {name: text for name, text in columns.items() if name in known}
    texts |= {name.capitalize(): text for name, text in facts.items() if text}
    return texts


def _intervals(release: Release) -> str:
    """Describe the quantity of the intervals and the limits."""
    metadata = release.metadata
    text = f"95% interval (low to high) for the {covers(metadata)}"
    if metadata.statistic.stepped:
        text = f"95% band (low to high) for all {covers(metadata)}s of a group at once"
    if metadata.processed:
        text = f"approximate {text}, after post-processing ({post_processing(metadata)})"
    return f"{text}; it {effects}" if (effects := interval_effects(metadata)) else text


def interval_effects(metadata: ReleaseMetadata) -> str:
    """Describe the errors inside and outside of intervals; empty if noise is the only one."""
    ratio, stated = metadata.statistic.ratio and metadata.chosen, metadata.bounds is not None
    if not metadata.widened:
        limits = _limits(metadata)
        return f"covers the noise only, not the {limits}" if limits else ""
    effects = ["clamping"] * (not stated) + ["clipping"] * ratio
    extremes = ["extreme values"] * (not stated) + ["a few heavy users"] * ratio
    outside = "clamping" if stated else "clipping" * (metadata.is_clipped and not ratio)
    return (
        f"covers the noise and likely {' and '.join(effects)}"
        f"{f', not the {outside}' * bool(outside)}; {' or '.join(extremes)} may exceed it"
    )


def _limits(metadata: ReleaseMetadata) -> str:
    """Name the limits outside of the intervals."""
    clamped = "clamping" if "clamped" in unclipped(metadata) else ""
    return " and ".join(filter(None, (clamped, "clipping" * metadata.is_clipped)))


def _count(release: Release) -> str:
    """Describe the counts behind ratios."""
    if release.metadata.over == "everyone":
        return "public number of people"
    clipped = "clipped " if counts_are_clipped(release) else ""
    return f"{clipped}number of {release.metadata.rows}, plus noise"


def _clipping(release: Release) -> str:
    """Describe the effect of clipping, and how to avoid it."""
    metadata = release.metadata
    if not metadata.is_clipped:
        if metadata.max_elements is not None:
            limit = quantity(metadata.max_elements, "element")
            return f"at most {limit} of each user were kept; nothing was clipped"
        return "contributions were not clipped"
    chosen = metadata.chosen and not metadata.statistic.ratio
    more = sentence(_CHOSEN.format(unclipped=unclipped(metadata))) if chosen else ""
    bounds = getattr(release, "clip", np.zeros(0))
    bound = ""
    if chosen and len(set(bounds)) == 1:
        bound = f"the chosen bound is {format_limit(bounds[0])}"
    elif chosen and metadata.clip is not None and metadata.clip.over == "group":
        low, high = format_limit(min(bounds)), format_limit(max(bounds))
        bound = (
            f"the chosen bounds per {metadata.statistic.noun}, in column clip, are {low} to {high}"
        )
    compared = _COMPARED * (chosen and len(set(bounds)) > 1 and not metadata.statistic.holders)
    parts = (bound, compared, clipping_effect(metadata), clipping_examples(metadata), more)
    return " ".join(map(sentence, filter(None, parts))).rstrip(".")


def _average(release: Release) -> str:
    """Describe the average of a ratio."""
    if not release.statistic.ratio:
        return ""
    if release.metadata.rows == "people":
        return "the numbers describe the average person"
    return (
        "the numbers describe the average record, not the average person, and clipping lets people "
        "with many records count less; if a few people have extreme values, the unclipped quantity "
        "can be far outside of the interval"
    )


def _long_labels(release: Release) -> str:
    """Describe labels of long texts, if the release has any."""
    letters = release.groups.long_label_prefix
    if letters is None:
        return ""
    return f"a long text is shown as its first {letters} characters, … and its SHA-256 hash"


def summary(release: Release) -> str:
    """Return a release as printed: title, a few rows, notes and the short guarantee."""
    table = _table(release) if len(release) else []
    promise = guarantee_text.summary(release.guarantee, release.query)
    return "\n".join([title(release), *table, *notes(release), promise, POINTER])


def _table(release: Release) -> list[str]:
    """Return all rows of a short release, or the first or largest ones, as lines of equal width."""
    places = shown(release, _ROWS if len(release) > _ALL_ROWS else _ALL_ROWS)
    rows = [
        [*line.keys, *line.numbers(release)]
        for line in format_rows(release, places, letters=_LETTERS)
    ]
    heads = [shorten(one_line(name), _LETTERS) for name in key_headings(release)]
    lines = align_columns([[*heads, *number_headings(release)], *rows])
    return lines + [f"[{footer}]" for footer in table_footers(release, len(places))]


def table_footers(release: Release, count: int) -> list[str]:
    """Return the lines below a table with some rows: their number, long labels, clipped shares."""
    order = ranking_name(release)
    lines = [f"{len(release):,} rows, {count} {order} shown; all: .to_pandas()"]
    lines = lines if len(release) > count else []
    rows = "; ".join([*lines, *filter(None, [_long_labels(release)])])
    return list(filter(None, [rows, share_limit(release)]))


def comparison_text(comparison: Comparison) -> str:
    """Return a difference or a ratio of two groups as printed."""
    sign = "−" if comparison.operation == "difference" else "÷"
    compared = f" {sign} ".join(comparison.groups)
    title = (
        f"{comparison.operation.capitalize()} of {comparison.covers.removesuffix('s')}s, {compared}"
    )
    if np.isnan(comparison.estimate):
        return f"{title}: no estimate, because {comparison.groups[1]} is within the noise"
    decimals = useful_decimals(comparison.std_error)
    numbers = (comparison.estimate, comparison.std_error, comparison.low, comparison.high)
    estimate, error, low, high = (format_number(number, decimals) for number in numbers)
    interval = f"95% interval {low} to {high}"
    if comparison.covers.startswith("clipped"):
        interval += "; without clipping, any value is possible"
    care = "".join(f"\nWarning: {text}." for text in note_texts(comparison.care))
    return f"{title}: {estimate} ± {error} ({interval}){care}"
