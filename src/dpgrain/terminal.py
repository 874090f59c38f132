"""What the commands print on, and how."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpgrain._later import later
from dpgrain._wording import rounded_up

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
else:
    rich_console, rich_markup = later("rich.console"), later("rich.markup")


def console() -> rich_console.Console:
    """Where results are printed; lines are as long as they are."""
    return rich_console.Console(soft_wrap=True)


def errors() -> rich_console.Console:
    """Where errors and warnings are printed."""
    return rich_console.Console(stderr=True, soft_wrap=True)


def shown(epsilon: float) -> str:
    """An ε in a table."""
    return "no promise" if math.isinf(epsilon) else rounded_up(epsilon, 4)


def plain(text: str) -> str:
    """Text from a table, which the console must not read as markup or as control characters."""
    return rich_markup.escape("".join(c if c.isprintable() else "�" for c in text))
