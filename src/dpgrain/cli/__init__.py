"""The command line: one command for each statistic, and guarantee, plan, fit, predict, demo."""

from __future__ import annotations

import sys

from dpgrain._lazy_import import require
from dpgrain.errors import MissingPackageError

__all__ = ["main"]


def main() -> None:
    """Run the command line, or print the command that installs it."""
    try:
        require("typer", "rich")
    except MissingPackageError as error:
        sys.exit(f"Error: {error}")
    from dpgrain.cli.app import main as run

    run()
