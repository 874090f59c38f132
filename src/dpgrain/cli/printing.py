"""Output of commands: sentences, tables, pictures and errors."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import atomic_write, check_outputs
from dpgrain._formatting import rounded_up
from dpgrain._lazy_import import lazy_import
from dpgrain.cli.spelling import options, spelled_inside
from dpgrain.errors import DataError, ParameterError

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.table as rich_table
    from matplotlib.axes import Axes

    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics.release import Release
    from dpgrain.words import release_text as formatting
else:
    formatting = lazy_import("dpgrain.words.release_text")
    rich_console, rich_markup = lazy_import("rich.console"), lazy_import("rich.markup")
    rich_table = lazy_import("rich.table")

#: True if a command prints only its JSON document.
as_json: ContextVar[bool] = ContextVar("as_json", default=False)
# Maximum number of characters of a printed key.
_KEY_LENGTH = 200
# Characters per line in a file or pipe, so that tables are not wrapped there.
_UNWRAPPED = 10_000
# Words of a key are not broken up to this length, however many columns there are.
_UNBROKEN = 20


def _print(content: Any, *, document: bool = False, **settings: Any) -> None:
    """Print text, or the JSON document, to standard output, without wrapping."""
    if as_json.get() and not document:
        return
    try:
        wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        console = rich_console.Console(soft_wrap=True, width=_UNWRAPPED if wide else None)
        console.print(content, **settings)
    except (OSError, SystemExit) as error:  # rich exits if the pipe is closed
        # Buffered output would fail again when the process ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        reason = getattr(error, "strerror", None) or os.strerror(errno.EPIPE)
        raise DataError(_lost(reason)) from error


def _lost(reason: str) -> str:
    """Describe which output is lost, and the option that writes it to a file."""
    known = options.get({})
    counts = ", and the published results still count" if "ledger" in known else ""
    file = f"; {known['output']} writes it to a file" if "output" in known else ""
    full = f"Standard output cannot be written ({reason})"
    return f"{full}: the output not printed is lost{counts}{file}."


def say(text: str, *, style: str | None = None, document: bool = False) -> None:
    """Print a text without markup."""
    _print(text, document=document, style=style, markup=False, highlight=False)


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[int] = (0,),
    **settings: Any,
) -> None:
    """Print a table, with right-aligned columns except for the indices in ``left``."""
    table = rich_table.Table(title=title, **settings)
    for place, name in enumerate(headings):
        table.add_column(name, justify="left" if place in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def say_error(text: str, *, style: str | None = None) -> None:
    """Print a text without markup to standard error."""
    console = rich_console.Console(stderr=True, soft_wrap=True)
    console.print(text, style=style, markup=False, highlight=False)


def written(*paths: Path | None) -> None:
    """Print the paths of written files."""
    for path in paths:
        if path is not None:
            say(f"Written: {path}")


def check_picture(path: Path | None) -> None:
    """Raise unless the path of ``--plot`` is omitted or a writable picture."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ParameterError(f"--plot must end in .png, .svg or .pdf, not {str(path)!r}.")
    check_outputs([path])


def write_plot(axes: Axes, path: Path) -> None:
    """Write the picture of axes in the format of the path."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - drawn axes have a figure
    with atomic_write(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), bbox_inches="tight")


def shown(epsilon: float) -> str:
    """Return an ε or μ for a table."""
    return "none" if math.isinf(epsilon) else rounded_up(epsilon, 4)


def plain(text: str) -> str:
    """Return text without markup and control characters."""
    return rich_markup.escape("".join(c if c.isprintable() else "�" for c in text))


def print_release(release: Release, top: int, *, kept: Path | None = None) -> None:
    """Print estimates, notes and the guarantee, in one line if the file ``kept`` has it in full."""
    print_estimates(release, top)
    if not len(release):
        say("--check shows the curator which values are missing or invalid.")
    print_guarantee(release.guarantee, kept)


def print_guarantee(guarantee: Guarantee, kept: Path | None) -> None:
    """Print a guarantee, in one line if the file ``kept`` has it in full."""
    say(str(guarantee) if kept is None else f"{guarantee.summary} Full guarantee: {kept}")


def print_estimates(release: Release, top: int) -> None:
    """Print the title of a release, a table of its first estimates, and notes."""
    say(formatting.title(release))
    if len(release):
        _print_table(release, top)
    for note in formatting.notes(release):
        say(spelled_inside(note), style="yellow" if note.startswith("Warning") else None)


def _print_table(release: Release, top: int) -> None:
    table = rich_table.Table()
    lines = formatting.format_rows(release, formatting.shown(release, top), letters=_KEY_LENGTH)
    for place, name in enumerate(formatting.key_headings(release)):
        words = (word for line in lines for word in line.keys[place].split())
        longest = max(map(len, words), default=0)
        table.add_column(plain(name), overflow="fold", min_width=min(longest, _UNBROKEN))
    numbers = [line.numbers(release) for line in lines]
    for place, name in enumerate(formatting.number_headings(release)):
        # Numbers are never truncated: the table may become wider than the terminal.
        whole = (name, *(row[place] for row in numbers))
        table.add_column(name, justify="right", min_width=max(map(len, whole)))
    for line, row in zip(lines, numbers, strict=True):
        table.add_row(*map(plain, line.keys), *row)
    _print(table)
    for footer in formatting.table_footers(release, len(lines)):
        say(footer.replace(".to_pandas()", "--output FILE, or a larger --top"))
