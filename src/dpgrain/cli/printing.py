"""The consoles that commands print on, and the tables that they write."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import whole_file
from dpgrain._later import later
from dpgrain._wording import rounded_up

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.table as rich_table
    from matplotlib.axes import Axes

    from dpgrain.statistics import printed
    from dpgrain.statistics.release import Release
else:
    printed = later("dpgrain.statistics.printed")
    rich_console, rich_markup = later("rich.console"), later("rich.markup")
    rich_table = later("rich.table")


# The columns of limits have these headings.
_HEADINGS = {"at_least": "at least", "up_to": "may be up to", "count_error": "its error"}
# A key is cut to so many letters.
_LETTERS = 200
# A key that is no longer than this, such as a day, stands in one line however many columns there are.
_WHOLE = 10


def console() -> rich_console.Console:
    """Return the console for results, which wraps no lines."""
    return rich_console.Console(soft_wrap=True)


def errors() -> rich_console.Console:
    """Return the console for errors and warnings."""
    return rich_console.Console(stderr=True, soft_wrap=True)


def say(text: str, *, style: str | None = None) -> None:
    """Print a sentence as it is."""
    console().print(text, style=style, markup=False, highlight=False)


def written(*paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            say(f"Written: {path}")


def write_plot(axes: Axes, path: Path) -> None:
    """Write the picture that axes are on, as the path's ending says."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - axes that were drawn on have a figure
    with whole_file(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), bbox_inches="tight")


def tell_as_json(release: Release) -> None:
    """Print all estimates of a release as JSON, with what they are of and the promise."""
    told = {
        "statistic": release.statistic.name,
        "estimates_of": release.estimand,
        "estimates": [
            {name: _known(value) for name, value in row.items()}
            for row in release.to_arrow().to_pylist()
        ],
        "notes": printed.notes(release) if len(release) else [],
        "take_care": release.asked.take_care,
        "guarantee": release.guarantee.to_dict(),
        "sentence": str(release.guarantee),
    }
    say(json.dumps(told, ensure_ascii=False, indent=1, default=str))


def _known(value: Any) -> Any:
    """Return a value of a table as JSON has it: a number that is not finite is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def grid(title: str, *columns: str, **options: Any) -> rich_table.Table:
    """Return a table whose first column holds names, and the others numbers.

    Args:
        title: the title above the table.
        columns: the heading of each column.
        options: the options of :class:`rich.table.Table`.
    """
    table = rich_table.Table(title=title, **options)
    first, *others = columns
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def shown(epsilon: float) -> str:
    """Return an ε as tables show it."""
    return "no promise" if math.isinf(epsilon) else rounded_up(epsilon, 4)


def plain(text: str) -> str:
    """Return text that the console does not read as markup or as control characters."""
    return rich_markup.escape("".join(c if c.isprintable() else "�" for c in text))


def tell_release(release: Release, top: int) -> None:
    """Print the first estimates of a release, and its promise.

    Args:
        release: the release.
        top: the number of estimates.
    """
    tell_estimates(release, top)
    say(f"Estimates of: {release.estimand}.")
    if len(release) > top:
        say("All of them: --output FILE, or a larger --top.")
    if not len(release):
        say("None passed the threshold: give --domain or more ε.")
    elif said := printed.notes(release):
        say(" ".join(said))
    if release.asked.care:
        say(f"Take care: {release.asked.take_care}.", style="yellow")
    say(str(release.guarantee))


def tell_estimates(release: Release, top: int) -> None:
    """Print the first estimates of a release as a table.

    Args:
        release: the release.
        top: the number of estimates.
    """
    ordered, known = printed.in_order(release), printed.known_more(release)
    table = rich_table.Table(
        title=f"{'First' if ordered else 'Largest'} {min(top, len(release))} of "
        f"{len(release):,} estimates"
    )
    lines = printed.lines_of(release, printed.shown(release, top), letters=_LETTERS)
    for place, name in enumerate(release.groups.names):
        longest = max((len(line.keys[place]) for line in lines), default=0)
        table.add_column(plain(name), overflow="fold", min_width=min(longest, _WHOLE))
    more = (printed.heading(release, name) for name in known)
    more = (_HEADINGS.get(name, name) for name in more)
    for name in ("estimate", "std. error", "95% low", "95% high", *more):
        table.add_column(name, justify="right")
    for line in lines:
        named = dict(zip(release.more, line.more, strict=True))
        numbers = (line.estimate, line.std_error, line.low, line.high)
        table.add_row(*map(plain, line.keys), *numbers, *(named[name] for name in known))
    console().print(table)
