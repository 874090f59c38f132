"""The consoles that commands print on, and the tables that they write."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import atomic_write, check_outputs
from dpgrain._formatting import rounded_up
from dpgrain._lazy_import import lazy_import
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.table as rich_table
    from matplotlib.axes import Axes

    from dpgrain.cli import results
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics import printed
    from dpgrain.statistics.release import Release
else:
    printed = lazy_import("dpgrain.statistics.printed")
    results = lazy_import("dpgrain.cli.results")
    rich_console, rich_markup = lazy_import("rich.console"), lazy_import("rich.markup")
    rich_table = lazy_import("rich.table")


_PICTURES = (".png", ".svg", ".pdf")
# Letters of a key that are printed, at most.
_LETTERS = 200
# A word of a key that is no longer than this is not broken, however many columns there are.
_WHOLE = 20


def console() -> rich_console.Console:
    """Return the console for results, which wraps no lines."""
    return results.Results(soft_wrap=True)


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


def check_picture(path: Path) -> None:
    """Raise unless a picture can be written there."""
    if path.suffix.lower() not in _PICTURES:
        raise ParameterError(f"--plot must end in .png, .svg or .pdf, not {str(path)!r}.")
    check_outputs([path])


def write_plot(axes: Axes, path: Path) -> None:
    """Write the picture that axes are on, as the path's ending says."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - axes that were drawn on have a figure
    with atomic_write(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), bbox_inches="tight")


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
        table.add_column(name, justify="right", overflow="fold")
    return table


def shown(epsilon: float) -> str:
    """Return an ε as tables show it."""
    return "no promise" if math.isinf(epsilon) else rounded_up(epsilon, 4)


def plain(text: str) -> str:
    """Return text that the console does not read as markup or as control characters."""
    return rich_markup.escape("".join(c if c.isprintable() else "�" for c in text))


def tell_release(release: Release, top: int, *, kept: Path | None = None) -> None:
    """Print the first estimates of a release, notes and its guarantee: in full, unless a file has it.

    Args:
        release: the release.
        top: the number of estimates.
        kept: a file that has the full guarantee, if there is one.
    """
    tell_estimates(release, top)
    if not len(release):
        say("--check shows the curator which values are missing or invalid.")
    tell_guarantee(release.guarantee, kept)


def tell_guarantee(guarantee: Guarantee, kept: Path | None) -> None:
    """Print a guarantee: in one line if a file has it in full, otherwise in full."""
    say(str(guarantee) if kept is None else f"{guarantee.brief} Full guarantee: {kept}")


def tell_estimates(release: Release, top: int) -> None:
    """Print the title of a release, its first estimates as a table, and notes.

    Args:
        release: the release.
        top: the number of estimates.
    """
    say(printed.title(release))
    if len(release):
        _tell_table(release, top)
    for note in printed.notes(release):
        say(spelled_inside(note), style="yellow" if note.startswith("Warning") else None)


def _tell_table(release: Release, top: int) -> None:
    table = rich_table.Table()
    lines = printed.lines_of(release, printed.shown(release, top), letters=_LETTERS)
    for place, name in enumerate(printed.key_headings(release)):
        words = (word for line in lines for word in line.keys[place].split())
        longest = max(map(len, words), default=0)
        table.add_column(plain(name), overflow="fold", min_width=min(longest, _WHOLE))
    numbers = [line.numbers(release) for line in lines]
    for place, name in enumerate(printed.number_headings(release)):
        # No number and no word is ever cut: the table grows wider than the terminal instead.
        whole = (name, *(row[place] for row in numbers))
        table.add_column(name, justify="right", min_width=max(map(len, whole)))
    for line, row in zip(lines, numbers, strict=True):
        table.add_row(*map(plain, line.keys), *row)
    console().print(table)
    if footer := printed.more_rows(release, len(lines)):
        say(footer.replace(".to_pandas()", "--output FILE, or a larger --top"))
