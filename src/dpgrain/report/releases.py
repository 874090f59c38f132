"""The report of a release file: one guarantee for all, and the numbers of each release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from dpgrain import _validate
from dpgrain._formatting import format_number, powers, rounded_up, useful_decimals
from dpgrain.errors import ParameterError
from dpgrain.learn.model import LinearModel
from dpgrain.means.problem import get_method
from dpgrain.means.user_mean import MeanOfUsers
from dpgrain.publishing.budget import Budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.releases.run import Releases, guarantee_of
from dpgrain.report.fit import fit_part, model_check
from dpgrain.report.page import Check, PageFacts, Part, hash_numbers
from dpgrain.report.release import release_check, release_part
from dpgrain.statistics.release import Release
from dpgrain.words import mean_text
from dpgrain.words.headings import text

# Maximum length of a guarantee; only long names of a caller reach it.
_SENTENCE_LETTERS = 2000


@dataclass(frozen=True, kw_only=True)
class _FileFacts(PageFacts):
    """The common contents; ``short`` is the guarantee without the public facts of each release."""

    short: Guarantee

    @property
    def sentence(self) -> str:
        """The guarantee of all releases together."""
        return text(self.short, _SENTENCE_LETTERS)


def releases_page(releases: Releases) -> str:
    """Return the report of the releases of a file as HTML."""
    guarantee, plan = releases.guarantee, releases.plan
    page = _FileFacts(
        of="release",
        guarantee=guarantee,
        short=releases.promise,
        distorted="noise and clipping",
        hashes=tuple(_check(text(name, 60), each) for name, each in releases.items()),
    )
    return page.html(
        "releases.html",
        table=text(", ".join(table.source.title for table in plan.file.tables.values()), 60),
        file=text(plan.file.path.name, 60),
        mark=plan.file.mark,
        heads=[head[0].upper() + head[1:] if head.isascii() else head for head in plan.columns],
        rows=[[text(cell, 240) for cell in row] for row in plan.rows()],
        spending=plan.spending,
        parts=[
            (text(each.entry.name, 60), _part(each.entry.own, releases[each.entry.name], place))
            for place, each in enumerate(plan.releases)
        ],
    )


def _require_releases(budget: Budget, releases: Mapping[str, Any]) -> None:
    """Raise ParameterError unless these are releases that were charged to the budget."""
    named = _validate.mapping(releases=releases)
    if not named or not all(isinstance(name, str) for name in named):
        raise ParameterError(
            "releases must be a mapping of names and releases, such as {'visits': visits}, not "
            f"{_validate.describe(releases)}.",
            name="releases",
        )
    for name, release in named.items():
        if not isinstance(release, Release | LinearModel | MeanOfUsers):
            raise ParameterError(
                f"releases {name!r} must be a release, a fitted model or a per-user mean, not "
                f"{_validate.describe(release)}.",
                name="releases",
            )
    budget.require_charged({name: guarantee_of(each) for name, each in named.items()})


def budget_page(budget: Budget, releases: Mapping[str, Any]) -> str:
    """Return the report of releases of a budget as HTML."""
    _require_releases(budget, releases)
    guarantees = {name: guarantee_of(release) for name, release in releases.items()}
    promise = budget.promise
    assert promise is not None  # noqa: S101 - releases were charged
    promise = replace(promise, private=all(each.private for each in guarantees.values()))
    page = _FileFacts(
        of="release",
        guarantee=promise,
        short=replace(promise, public=(Fact("with-each"),)),
        distorted="noise and clipping",
        hashes=tuple(_check(text(name, 60), each) for name, each in releases.items()),
    )
    parts = [
        (text(name, 60), _part({"columns": None}, release, place))
        for place, (name, release) in enumerate(releases.items())
    ]
    return page.html(
        "releases.html",
        table="one budget",
        file="",
        heads=["Release", "Publishes", "ε", "δ"],
        rows=[
            [name, text(part.title, 120), rounded_up(each.epsilon()), powers(each.delta)]
            for (name, part), each in zip(parts, guarantees.values(), strict=True)
        ],
        spending=f"{budget}.",
        parts=parts,
    )


def _check(name: str, release: Any) -> Check:
    """Return the hash that identifies a release."""
    if isinstance(release, LinearModel):
        return model_check(name, release)
    if isinstance(release, MeanOfUsers):
        how = "hashlib.sha256(mean.value.astype('<f8')).hexdigest()"
        return (name, hash_numbers(release.value), how)
    return release_check(name, release)


def _part(own: Any, release: Any, place: int) -> Part:
    """Return the numbers of one release."""
    salt = f"{place} "
    if isinstance(release, LinearModel):
        return fit_part(release, salt)
    if isinstance(release, MeanOfUsers):
        return _mean_part(release, own["columns"])
    return release_part(release, salt)


def _mean_part(mean: MeanOfUsers, columns: list[str] | None) -> Part:
    """Return the numbers of a per-user mean; without columns, coordinates have numbers."""
    if columns is None:
        columns = [f"coordinate {place}" for place in range(1, mean.value.size + 1)]
    page = PageFacts(
        of="release",
        guarantee=mean.guarantee,
        distorted="noise and clipping",
    )
    decimals = useful_decimals(mean.std_error if mean.resolved else mean.error)
    body = page.html(
        "_mean.html",
        inside=True,
        agreed=all(map(math.isfinite, mean.value)),
        lines=[
            (text(name, 120), format_number(float(value), decimals))
            for name, value in zip(columns, mean.value, strict=True)
        ],
        estimand=mean.estimand,
        warning="" if mean.resolved else mean_text.NOT_RESOLVED,
        error=format_number(mean.std_error, decimals) if mean.resolved else "unknown",
        radius=f"{mean.radius:.3g}",
        centre=get_method(mean.method).centre or "0",
        off=mean_text.largest_error(mean),
        method=mean.method,
        reason=mean.reason,
    )
    return Part(f"per-user mean of {text(', '.join(columns), 100)}", page, Markup(body))
