"""What the commands print on, and how."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpgrain.wording import rounded_up

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Where results are printed; lines are as long as they are."""
    from rich.console import Console

    return Console(soft_wrap=True)


def errors() -> Console:
    """Where errors and warnings are printed."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def shown(epsilon: float) -> str:
    """An ε in a table."""
    return "no promise" if math.isinf(epsilon) else rounded_up(epsilon, 4)


def plain(text: str) -> str:
    """Text from a table, which the console must not read as markup or as control characters."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() else "�" for c in text))
