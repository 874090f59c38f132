"""Compare dpgrain: ``python -m benchmarks.peers [--make] [--run PART …] [--runs 200]``.

``--make`` creates an environment for each library under ``build/peers`` (some gigabytes; Tumult
needs Java 17), ``--run`` measures parts and stores them in ``results.json``; every call then
rewrites ``docs/comparison.md``. ``make peers`` does all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from . import accountants, environments, first, fits, networks, page, released
from .released import Limits

PARTS: dict[str, Callable[[Limits], Any]] = {
    "users": partial(released.run, "users"),
    "records": partial(released.run, "records"),
    "granularity": released.granularity,
    "fits": fits.run,
    "accounting": lambda _: accountants.run(_FEW),
    "networks": lambda _: networks.run(_FEW),
    "first": lambda _: first.run(),
}
#: Draws other than of a statistic.
_FEW = 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Make, measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--make", nargs="*", choices=list(environments.NEEDS))
    parser.add_argument("--run", nargs="*", choices=list(PARTS), default=None)
    parser.add_argument("--runs", type=int, default=200, help="draws of each statistic, at most")
    parser.add_argument("--seconds", type=float, default=600, help="seconds of each, at most")
    options = parser.parse_args(arguments)
    if options.make is not None:
        environments.make(options.make or environments.NEEDS)
    if options.run is not None:
        for part in options.run or PARTS:
            found = PARTS[part](Limits(options.runs, options.seconds))
            # Another part may have been stored in the meantime.
            page.keep({part: found, "environments": environments.made()})
    page.write()


if __name__ == "__main__":
    main()
