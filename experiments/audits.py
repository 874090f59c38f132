"""Audits of every statistic of a table: claims, lower bounds on ε, and detectable excess.

    python experiments/audits.py [--draws 1000000] [--runs 200] [--seconds 60] [--only WORDS] [--write]

Every statistic that the package offers is audited for records, elements and whole users, with each law
of noise, with a public domain and with private selection, if such a release exists: at ε = 1, δ =
10⁻⁶, for one unit and for two, under both relations. Neighbours follow from the schema of a
malformed table and from public parameters (``dg.audit``); no row is read. The query with the
largest lower bound, as a share of its claim, is shown. ``--write`` puts the table into the page on
audits, one row for each statistic and unit. The exit code is 4 if a claim is refuted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import dpgrain as dg
from dpgrain.auditing import Audit, AuditLine
from dpgrain.errors import ParameterError
from dpgrain.statistics import OFFERED
from dpgrain.units import Unit

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "audit-results.md"
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "element": dg.Element("day"),
    "user": dg.User(),
    "user of 3 days": dg.User(3, by="day"),
}
ITEMS = ["a", "b", "c", "d"]
# Arguments of each statistic besides unit and noise; its own domain is tried if it has one.
ASKED: dict[str, dict[str, Any]] = {
    "count": {"clip": 3.0},
    "sum": {"value": "paid", "bounds": (0.0, 10.0), "clip": 3.0},
    "mean": {"value": "paid", "bounds": (0.0, 10.0)},
    "variance": {"value": "paid", "bounds": (0.0, 10.0)},
    "std": {"value": "paid", "bounds": (0.0, 10.0)},
    "covariance": {
        "value": "paid",
        "other": "age",
        "bounds": (0.0, 10.0),
        "other_bounds": (0.0, 100.0),
    },
    "correlation": {
        "value": "paid",
        "other": "age",
        "bounds": (0.0, 10.0),
        "other_bounds": (0.0, 100.0),
    },
    "quantiles": {"value": "paid", "bounds": (0.0, 10.0)},
    "distribution": {"value": "paid", "at": [2.0, 5.0, 8.0]},
    "histogram": {"item": "page", "clip": 3.0},
    "top": {"item": "page", "k": 2},
    "elements_per_user": {"by": "day"},
}


def table() -> dg.UserTable:
    """Return a table with unread rows; only its columns and their types are used."""
    rows = {
        "who": [1, 2, None],
        "page": ["a", "b", None],
        "day": [1, 1, 2],
        "paid": [1.0, float("nan"), float("inf")],
        "age": [30.0, -0.0, 1e300],
    }
    return dg.read(pa.table(rows), user="who")


@dataclass(frozen=True)
class Query:
    """A query, and its name in the table."""

    statistic: str
    unit: str
    options: dict[str, Any]

    @property
    def said(self) -> str:
        names = ["named" if self.options.get("domain") == ITEMS else ""]
        names += [str(self.options.get("noise", ""))]
        return ", ".join(name for name in names if name) or "–"

    def made(self) -> Any:
        statistic = getattr(dg, self.statistic)
        asked = {**ASKED[self.statistic], **self.options}
        if self.unit == "record" and "clip" in asked:
            # A record adds no more than 1, or the largest number, and noise is for the stated bound.
            asked["clip"] = 1.0
        return statistic.query(table(), unit=UNITS[self.unit], **PROMISE, **asked)


def queries() -> Iterator[Query]:
    """Yield all queries; some have no valid release."""
    for statistic, unit in itertools.product(OFFERED, UNITS):
        names: list[dict[str, Any]] = [{}]
        if "item" in ASKED[statistic]:
            names.append({"domain": ITEMS})
        if statistic == "top":
            for named in names:
                yield Query(statistic, unit, named)
            continue
        for named, noise in itertools.product(names, ("gaussian", "laplace")):
            yield Query(statistic, unit, {**named, "noise": noise})


@dataclass(frozen=True)
class Row:
    """A row of the table: the line of a query with the largest bound for its claim."""

    query: Query
    found: Audit

    @property
    def line(self) -> AuditLine:
        return max(self.found.lines, key=lambda line: _largest(line) / line.claim)

    @property
    def cells(self) -> list[str]:
        line = self.line
        number = f"{line.units}, {line.relation}"
        bounds = [f"{bound}" for bound in (line.free, line.named)]
        seen = min(bound.seen or float("inf") for bound in (line.free, line.named))
        least = "–" if seen == float("inf") else f"{seen:.3g}×"
        asked = [self.query.statistic, self.query.unit, self.query.said, number]
        return [*asked, f"{line.claim:.4g}", *bounds, least, self.found.verdict]


def _largest(line: AuditLine) -> float:
    return max(bound.epsilon or 0.0 for bound in (line.free, line.named))


HEADINGS = (
    "statistic", "unit", "options", "units, relation", "claim", "free", "named", "seen from", "verdict",
)  # fmt: skip


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Audit the queries; yield the valid ones."""
    for query in queries():
        words = f"{query.statistic} {query.unit} {query.said}"
        if not any(word in words for word in options.only.split(",")):
            continue
        try:
            asked = query.made()
            found = dg.audit(
                asked, units=(1, 2), draws=options.draws, runs=options.runs, seconds=options.seconds
            )
        except ParameterError as refused:
            if not options.quiet:
                print(f"no such release: {words}: {refused}", file=sys.stderr)
            continue
        if found.lines:
            yield Row(query, found)


def shortened(found: list[list[str]]) -> list[list[str]]:
    """Return the lines of the page: of each statistic and unit the query nearest to its claim."""
    lines = [["statistic", "unit", "queries", *HEADINGS[2:]]]
    for name, of in itertools.groupby(found, key=lambda cells: cells[:2]):
        queries = list(of)
        nearest = max(queries, key=_share)
        worst = max(
            (cells[-1] for cells in queries), key=("unmoved", "kept", "weak", "violated").index
        )
        lines.append([*name, f"{len(queries)}", *nearest[2:-1], worst])
    return lines


def put(name: str, lines: list[list[str]]) -> None:
    """Replace the table with that name on the page.

    Args:
        name: the text of the comment above the table.
    """
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end, 1)
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    told = "".join(f"| {' | '.join(cells)} |\n" for cells in ruled)
    PAGE.write_text(f"{before}{begin}\n{told}\n{end}{after}", encoding="utf-8")


def _share(cells: list[str]) -> float:
    claim, *bounds = (float(cell) if cell != "–" else 0.0 for cell in cells[4:7])
    return max(bounds) / claim


def main() -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="", help="queries with one of these words: a,b")
    parser.add_argument("--quiet", action="store_true", help="do not name what is refused")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for row in rows(options):
        found.append(row)
        print(*row.cells, sep=" | ", flush=True)
    if options.write:
        put("audits of every statistic", shortened([row.cells for row in found]))
    return 4 if any(row.found.verdict == "violated" for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
