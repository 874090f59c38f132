"""The page of the comparison, written from the results stored next to this file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from textwrap import fill
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "comparison.md"
TEMPLATE = HERE / "comparison.md"
WIDTH = 100

Results = Mapping[str, Any]
#: Libraries with statistics, as columns.
STATISTICS = ("dpgrain", "dpgrain, given bound", "OpenDP", "PipelineDP", "Tumult")
RECORDS = ("dpgrain", "diffprivlib", "OpenDP")
FITS = ("dpgrain", "dpgrain, given bound", "diffprivlib")
SCRIPTS = {
    "dpgrain": "dpgrain",
    "opendp": "OpenDP",
    "pipeline_dp": "PipelineDP",
    "tumult": "Tumult Analytics",
    "diffprivlib": "diffprivlib",
    "dpgrain_torch": "dpgrain[torch]",
    "opacus": "Opacus",
    "jax_privacy": "jax_privacy",
}
#: Why a peer comes closer, by part and task.
REASONS = {
    "users": {
        "mean price": "their bound is from hindsight; we spend part of the budget to choose ours",
        "mean price in five countries": "their bound is from hindsight; five groups are few for "
        "choosing one",
        "variance of price": "their bound is from hindsight; we spend part of the budget to "
        "choose ours",
        "median price": "it is one of a few round prices, which a bound from hindsight or "
        "candidates of five pence nearly always hit; we allow for a bias that it does not have",
        "median amount of a record": "large customers differ, so the best bound is high; ours is "
        "chosen without knowing that",
    },
    "records": {
        "records per item": "its counts are truncated at zero, which helps small ones but biases "
        "them upwards; ours are unbiased",
        "mean price": "it treats the number of records as public; we spend budget on it",
        "variance of price": "it treats the number of records as public; we spend budget on it",
    },
}
#: Standard errors of a difference below which two errors count as equal.
CHANCE = 2.0


def keep(found: Results) -> None:
    """Put parts into the stored results."""
    kept = results() if RESULTS.exists() else {}
    # Results from elsewhere retain their versions.
    if "environments" in found:
        made = {**kept.get("environments", {}), **found["environments"]}
        found = {**found, "environments": made}
    RESULTS.write_text(json.dumps({**kept, **_rounded(found)}, indent=1) + "\n", encoding="utf-8")


def results() -> dict[str, Any]:
    """The stored results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def write() -> None:
    """Rewrite the page."""
    PAGE.write_text(text(results()), encoding="utf-8")


def text(found: Results) -> str:
    """The page: the template with its tables."""
    users, records = found["users"], found["records"]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        versions=_versions(found["environments"]),
        first=_first(found),
        rows=f"{users['rows']:,}",
        people=f"{users['people']:,}",
        users=_errors(users["tasks"], STATISTICS),
        users_better=_better(users["tasks"], STATISTICS, REASONS["users"]),
        users_seconds=_seconds(users["tasks"], ("dpgrain", "OpenDP", "PipelineDP", "Tumult")),
        records=_errors(records["tasks"], RECORDS),
        records_better=_better(records["tasks"], RECORDS, REASONS["records"]),
        records_seconds=_seconds(records["tasks"], RECORDS),
        granularity=_granularity(found["granularity"]),
        fits=_fits(found["fits"]),
        networks=_networks(found["networks"]),
        memory=_memory(found["networks"]),
        accounting=_accounting(found["accounting"]),
    )


def _rounded(value: Any) -> Any:
    """Numbers with six digits, which is more than they are good for."""
    if isinstance(value, Mapping):
        return {key: _rounded(of) for key, of in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """A number with two or three digits, for readers."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"


def _cell(figures: Mapping[str, Any] | None, key: str, bold: bool = False) -> str:
    """A figure, or why there is none."""
    if figures is None:
        return "–"
    if "failed" in figures:
        return "fails"
    shown = number(figures[key])
    return f"**{shown}**" if bold else shown


def _by_chance(one: Results, other: Results) -> bool:
    """Whether two errors differ by no more than chance makes them."""
    spread = [each["rmse"] * each.get("off", 0.0) for each in (one, other)]
    return bool(abs(one["rmse"] - other["rmse"]) <= CHANCE * math.hypot(*spread))


def _errors(tasks: Results, libraries: Sequence[str]) -> str:
    """Root mean squared errors, the smallest of each task in bold."""

    def line(name: str, by: Results) -> list[str]:
        there = [by[of] for of in libraries if "rmse" in by.get(of, {})]
        best = min(there, key=lambda figures: figures["rmse"])
        cells = [
            _cell(by.get(of), "rmse", "rmse" in by.get(of, {}) and _by_chance(by[of], best))
            for of in libraries
        ]
        if "unknown" in name:
            cells = [
                f"{cell} ({by[of]['published']})" if "published" in by.get(of, {}) else cell
                for cell, of in zip(cells, libraries, strict=True)
            ]
        told = by["dpgrain"].get("printed") if "dpgrain" in by else None
        return [name, *cells, "–" if told is None else number(told), _draws(by, libraries)]

    return table(
        ["root mean squared error", *(_short(of) for of in libraries), "dpgrain prints", "draws"],
        (line(name, by) for name, by in tasks.items()),
    )


def _short(library: str) -> str:
    return "a stated bound" if library == "dpgrain, given bound" else library


def _better(tasks: Results, libraries: Sequence[str], reasons: Mapping[str, str]) -> str:
    """Measures with a more accurate peer, and why."""
    lines = []
    for name, by in tasks.items():
        own = by["dpgrain"]
        peers = [of for of in libraries if not of.startswith("dpgrain")]
        ahead = [of for of in peers if _ahead(by.get(of, {}), own)]
        if ahead:
            told = " and ".join(f"{of} ({number(by[of]['rmse'])})" for of in ahead)
            reason = f": {reasons[name]}" if name in reasons else ""
            sentence = f"{name[0].upper()}{name[1:]}, {number(own['rmse'])}: {told}{reason}."
            lines.append(_wrapped(sentence))
    return "\n".join(lines) or "- nowhere"


def _ahead(figures: Results, own: Results) -> bool:
    """Whether a peer's error is smaller by more than chance makes it."""
    return bool(
        "rmse" in figures and figures["rmse"] < own["rmse"] and not _by_chance(figures, own)
    )


def _wrapped(sentence: str) -> str:
    return fill(
        sentence, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def _seconds(tasks: Results, libraries: Sequence[str]) -> str:
    """Processor time over the plain query's, and seconds in parentheses."""

    def cell(by: Results, library: str) -> str:
        figures, plain = by.get(library), by["not private"]["seconds"]
        if figures is None or "failed" in figures:
            return _cell(figures, "")
        return f"{number(figures['seconds'] / plain)} ({number(figures['seconds'])})"

    return table(
        ["times the plain query (seconds)", *libraries],
        ([name, *(cell(by, of) for of in libraries)] for name, by in tasks.items()),
    )


def _draws(by: Results, libraries: Sequence[str]) -> str:
    """The number of each library's draws: once for all, and for exceptions."""
    runs = {of: by[of]["runs"] for of in libraries if "runs" in by.get(of, {})}
    most = max(runs.values(), default=0)
    return "; ".join([str(most), *(f"{of} {n}" for of, n in runs.items() if n != most)])


def _granularity(found: Results) -> str:
    libraries = ("dpgrain", "OpenDP")
    return table(
        ["root mean squared error", *libraries, "draws"],
        (
            [unit, *(_cell(by.get(of), "rmse") for of in libraries), _draws(by, libraries)]
            for unit, by in found.items()
        ),
    )


def _fits(found: Results) -> str:
    """Retained shares of the gain, with their standard errors and times."""

    def cell(figures: Mapping[str, Any] | None) -> str:
        if figures is None or "failed" in figures:
            return _cell(figures, "")
        if figures["kept"] < 0:
            return f"none, {number(figures['ratio'])}×"
        return f"{figures['kept']:.1%} ± {figures['error']:.1%}, {number(figures['ratio'])}×"

    rows = [
        [
            f"{name}, ε = {epsilon}",
            *(cell(by[epsilon].get(of)) for of in FITS),
            _draws(by[epsilon], FITS),
        ]
        for name, by in found.items()
        for epsilon in by
        if isinstance(by[epsilon], Mapping)
    ]
    return table(["share of the gain kept, time", *(_short(of) for of in FITS), "draws"], rows)


def _networks(found: Results) -> str:
    """Times of a step over the plain one's; a line per library, a column per block size."""
    methods = [of for of in next(iter(found.values())) if of != "PyTorch, not private"]
    heads = ["1 to 8" if block == "ragged" else block for block in found]
    rows = ([of, *(_cell(by[of], "ratio") for by in found.values())] for of in methods)
    return table(["records of a block", *heads], rows)


def _memory(found: Results) -> str:
    methods = list(next(iter(found.values())))
    heads = ["1 to 8" if block == "ragged" else block for block in found]
    rows = (
        [
            of,
            *(
                "fails" if "failed" in by[of] else f"{by[of]['megabytes']:.0f}"
                for by in found.values()
            ),
        ]
        for of in methods
    )
    return table(["MB that a step adds", *heads], rows)


def _accounting(found: Results) -> str:
    """ε, and seconds of processor time in parentheses."""

    def cell(figures: Mapping[str, Any]) -> str:
        if "failed" in figures:
            return "fails"
        return f"{figures['epsilon']:.4f} ({number(figures['seconds'])} s)"

    methods = list(next(iter(found.values())))
    rows = ([question, *(cell(by[of]) for of in methods)] for question, by in found.items())
    return table(["ε at δ = 10⁻⁶", *methods], rows)


def _versions(environments: Results) -> str:
    """One sentence with the versions of all libraries."""
    told = {
        name: version
        for made in environments.values()
        for name, version in made.get("versions", {}).items()
    }
    versions = sorted(told.items(), key=_name)
    listed = ", ".join(f"{name} {version}" for name, version in versions)
    return fill(listed, WIDTH, break_on_hyphens=False)


def _name(pair: tuple[str, str]) -> str:
    return pair[0].lower()


def _first(found: Results) -> str:
    """Lines, megabytes, and the cost of the run."""

    def line(name: str, script: Mapping[str, Any]) -> list[str]:
        made = found["environments"].get(name, {})
        ran = "fails" if "failed" in script else number(script["seconds"])
        return [SCRIPTS[name], str(script["lines"]), f"{made['megabytes']:,}", ran]

    return table(
        ["", "lines", "MB", "seconds"],
        (line(name, script) for name, script in found["first"].items()),
    )
