"""The report of a release file: one guarantee for all, and the numbers of each release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dpgrain._formatting import format_number, useful_decimals
from dpgrain.learn.model import LinearModel
from dpgrain.means.problem import get_method
from dpgrain.means.user_mean import MeanOfUsers
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.releases.plan import COLUMNS
from dpgrain.releases.run import Releases
from dpgrain.report.fit import fit_part, model_check
from dpgrain.report.page import Check, PageFacts, Part, hash_numbers
from dpgrain.report.release import release_check, release_part
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
        heads=[head[0].upper() + head[1:] if head.isascii() else head for head in COLUMNS],
        rows=[[text(cell, 120) for cell in row] for row in plan.rows()],
        spending=plan.spending,
        parts=[
            (text(each.entry.name, 60), _part(each.entry.own, releases[each.entry.name], place))
            for place, each in enumerate(plan.releases)
        ],
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


def _mean_part(mean: MeanOfUsers, columns: list[str]) -> Part:
    """Return the numbers of a per-user mean."""
    page = PageFacts(
        of="release",
        guarantee=mean.guarantee,
        distorted="noise and clipping",
    )
    decimals = useful_decimals(mean.std_error)
    body = page.html(
        "_mean.html",
        inside=True,
        agreed=all(map(math.isfinite, mean.value)),
        lines=[
            (text(name, 120), format_number(float(value), decimals))
            for name, value in zip(columns, mean.value, strict=True)
        ],
        error=format_number(mean.std_error, decimals),
        radius=f"{mean.radius:.3g}",
        centre=get_method(mean.method).centre or "0",
        off=mean.off,
        method=mean.method,
        reason=mean.reason,
    )
    return Part(f"per-user mean of {text(', '.join(columns), 100)}", page, Markup(body))
