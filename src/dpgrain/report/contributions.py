"""The contribution distribution next to the curve of a guarantee."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpgrain._formatting import powers
from dpgrain.errors import ParameterError
from dpgrain.report.guarantee_facts import ELEMENT_COUNTS
from dpgrain.statistics.contribution_counts import Holdings
from dpgrain.statistics.release import Release
from dpgrain.words import quantities
from dpgrain.words.headings import text
from dpgrain.words.odds import Odds


@dataclass(frozen=True)
class ContributionText:
    """A contribution distribution as text."""

    kind: str
    shares: tuple[tuple[int, str], ...]
    is_hidden: bool
    partition: str
    sentence: str
    composed: str
    odds: Odds | None
    private: bool
    guarantee_json: str

    @property
    def delta(self) -> str:
        """The δ of both releases together, as text."""
        return "" if self.odds is None else powers(self.odds.delta)


def check_holdings(release: Release, holdings: Any) -> None:
    """Raise unless these are holdings of the same partition as the release."""
    if not isinstance(holdings, Holdings):
        raise ParameterError(
            f"holdings must be the result of dg.elements_per_user, not {type(holdings).__name__}."
        )
    mine, theirs = release.guarantee.elements, holdings.guarantee.elements
    if mine != theirs:
        raise ParameterError(
            f"holdings must have the partition of the release, {mine or 'none'}, not "
            f"{theirs or 'none'}; release both with the same unit."
        )


def contribution_text(release: Release, known: Holdings | None) -> ContributionText | None:
    """Return the contribution distribution of a second release, or of the release itself."""
    if known is None or not len(known):
        return None
    mine, theirs = release.guarantee, known.guarantee
    sentence = composed = ""
    odds = None
    if known is not release:
        sentence = text(theirs, 20_000)
        if (mine.level, mine.relation) == (theirs.level, theirs.relation):
            both = mine + theirs
            composed, odds = text(both, 20_000), Odds.from_guarantee(both)
    kind: Literal["elements", "records"] = "elements" if mine.elements else "records"
    kinds, edges = (column.to_pylist() for column in known.groups.columns)
    some = [edge for one, edge in zip(kinds, edges, strict=True) if one == kind]
    users = np.array([one == kind for one in kinds])
    total = float(known.estimate[users].sum())
    error = float(np.sqrt((known.std_error[users] ** 2).sum()))
    shares = tuple((k, _share(known, k, kind)) for k in ELEMENT_COUNTS if k in some)
    return ContributionText(
        kind,
        shares,
        total <= 4 * error,
        text(quantities.keys_text(known.metadata) or "elements", 60),
        sentence,
        composed,
        odds,
        theirs.private,
        json.dumps(theirs.to_dict(), ensure_ascii=False, indent=1),
    )


def _share(holdings: Holdings, most: int, kind: Literal["elements", "records"]) -> str:
    """Return the share of users with at most ``most``, with meaningful decimals only."""
    share = holdings.share_at_most(most, kind)
    kinds, edges = (column.to_pylist() for column in holdings.groups.columns)
    users = np.array([one == kind for one in kinds])
    within = users & np.array([edge is not None and edge <= most for edge in edges])
    total = max(float(holdings.estimate[users].sum()), 1.0)
    # Standard error of within ÷ total, which have noise in common.
    weights = np.where(within, 1 - share, share)[users] * holdings.std_error[users]
    error = float(np.sqrt((weights**2).sum())) / total
    return f"{100 * share:.{1 if 100 * error < 1 else 0}f}%"
