"""Results of an audit: claims, lower bounds, detectable errors and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dpgrain._formatting import (
    align_columns,
    format_facts,
    powers,
    quantity,
    rounded_down,
    rounded_up,
)
from dpgrain._report_mixins import AuditReportMixin
from dpgrain.auditing.epsilon_bounds import Points
from dpgrain.units import Level, Relation

#: ``"violated"``: a lower bound is above its claim. ``"kept"``: no bound is, and half the noise
#: would have been detected. ``"weak"``: no bound is, but half the noise might not have been
#: detected. ``"not audited"``: no neighbours with any different draw were found.
Verdict: TypeAlias = Literal["violated", "kept", "weak", "not audited"]

#: Heading of an audit of real rows.
FOR_THE_CURATOR = (
    "For the curator, NOT PRIVATE: these bounds were computed from real rows. Do not publish them."
)
#: Last line of a printed audit.
POINTER = "What the columns mean: .explain()"
# Noise error that a useful audit must detect: noise smaller by this factor.
_HALF = 2.0
_HEADINGS = ("units", "relation", "claim", "free", "seen from", "named", "seen from", "verdict")
_MEANINGS = {
    "claim": "the ε that the query claims",
    "free": "lower bound on ε without assumptions, from draws of the noise on both neighbours",
    "named": "lower bound on ε that assumes the named noise distribution, from whole runs",
    "seen from": "factor by which the noise must be too small for the bound to exceed the claim",
    "verdict": '"violated": a bound exceeds the claim; "kept": none does, and half the noise would '
    'have been detected; "weak": none does, but half the noise might not have been detected; '
    '"not audited": no draw differs between the neighbours',
}


@dataclass(frozen=True)
class Bound:
    """Lower bound on ε; None if this type of bound is impossible."""

    epsilon: float | None
    seen: float | None = None  # smallest detectable noise error; infinite if none was

    def exceeds(self, claim: float) -> bool:
        """Return True if the bound refutes a claim."""
        return self.epsilon is not None and self.epsilon > claim

    @property
    def powerful(self) -> bool:
        """True if half the noise would have been detected."""
        return self.seen is not None and self.seen <= _HALF

    def __str__(self) -> str:
        return "–" if self.epsilon is None else rounded_down(self.epsilon)

    @property
    def seen_from(self) -> str:
        """Description of the smallest detectable error."""
        if self.epsilon is None or self.seen is None:
            return "–"
        return "none tried" if self.seen == float("inf") else f"{self.seen:.3g}×"


@dataclass(frozen=True)
class AuditLine:
    """Result for a number of units and a relation.

    Args:
        units: the number of changed units of one user.
        relation: whether they are removed or replaced.
        claim: the claimed ε.
        free: the bound without assumptions about the noise distribution.
        named: the bound for the named noise distribution.
        pair: a description of the neighbours; empty for real rows.
        curve: the trade-off of tests of the neighbours; empty for real rows.
    """

    units: int
    relation: Relation
    claim: float
    free: Bound
    named: Bound
    pair: str = ""
    curve: Points = field(default=(), repr=False)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim, including whether half the noise would have refuted it."""
        if self.free.exceeds(self.claim) or self.named.exceeds(self.claim):
            return "violated"
        if self.free.epsilon is None and self.named.epsilon is None:
            return "not audited"
        return "kept" if self.free.powerful or self.named.powerful else "weak"


@dataclass(frozen=True, repr=False)
class Audit(AuditReportMixin):
    """Audit of a query: lower bounds on its ε, compared with its claims.

    Args:
        level: the protected unit.
        delta: the δ of the guarantee.
        confidence: the probability that all bounds are valid together.
        lines: the results, for each number of units and each relation.
        claimed: (δ, ε) pairs of the whole curve claimed for each line.
        draws: the number of noise draws of the lines on each neighbour.
        runs: the number of whole runs.
        curator: True if real rows were used, so that nothing may be published.
        notes: what was omitted, with reasons, in sentences.

    >>> line = AuditLine(1, "zero_out", 1.0, Bound(0.7, 1.5), Bound(0.85, 1.2))
    >>> print("\\n".join(str(Audit("user", 1e-6, 0.99, (line,))).splitlines()[:3]))
    Lower bounds on ε of users at δ = 10⁻⁶, with confidence 0.99: kept.
    units  relation  claim  free  seen from  named  seen from  verdict
    1      zero_out  1      0.7   1.5×       0.85   1.2×       kept
    """

    level: Level
    delta: float
    confidence: float
    lines: tuple[AuditLine, ...]
    claimed: tuple[tuple[tuple[float, float], ...], ...] = field(default=(), repr=False)
    draws: int = 0
    runs: int = 0
    curator: bool = False
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Worst verdict of the audited lines; "not audited" without any."""
        verdicts = {line.verdict for line in self.lines}
        worst: tuple[Verdict, ...] = ("violated", "weak", "kept")
        return next((verdict for verdict in worst if verdict in verdicts), "not audited")

    def __str__(self) -> str:
        return f"{self.text} {POINTER}"

    @property
    def text(self) -> str:
        """Printed audit without the pointer to the meanings of its columns."""
        heading = (
            f"Lower bounds on ε of {self.level}s at δ = {powers(self.delta)}, with confidence "
        )
        rows = [
            (
                f"{line.units}",
                line.relation,
                rounded_up(line.claim),
                str(line.free),
                line.free.seen_from,
                str(line.named),
                line.named.seen_from,
                line.verdict,
            )
            for line in self.lines
        ]
        lines = [heading + f"{self.confidence:.6g}: {self.verdict}."]
        if self.curator:
            lines.insert(0, FOR_THE_CURATOR)
        table = align_columns([_HEADINGS, *rows], left=True)
        notes = [" ".join(self.notes)] if self.notes else []
        return "\n".join([*lines, *table, *notes, self._effort])

    __repr__ = __str__

    def explain(self) -> str:
        """Describe the columns: both kinds of bounds, and the verdicts."""
        return format_facts(f"Audit of {self.level}s", {**self._meanings, "draws": self._effort})

    @property
    def _meanings(self) -> dict[str, str]:
        return _MEANINGS

    @property
    def _effort(self) -> str:
        return (
            f"{self.draws:,} draws on each neighbour of a line; {quantity(self.runs, 'whole run')}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON values; an infinite bound is the text "inf"."""
        return {
            "for_the_curator": self.curator,
            "verdict": self.verdict,
            "unit": self.level,
            "delta": self.delta,
            "confidence": self.confidence,
            "draws": self.draws,
            "runs": self.runs,
            "lines": [_line_to_dict(line) for line in self.lines],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, repr=False)
class TrainingAudit(Audit):
    """Audit of one whole training run, returned by :func:`dpgrain.audit_training`.

    Its ``draws`` are the canaries, each included with probability ½; its only line is about one
    removed unit.

    >>> line = AuditLine(1, "zero_out", 1.0, Bound(0.2, 4.0), Bound(0.75, 1.3))
    >>> print(str(TrainingAudit("user", 1e-6, 0.99, (line,), draws=4000)).splitlines()[-1])
    1 run with 4,000 canaries, each included with probability 1/2. What the columns mean: .explain()
    """

    @property
    def _meanings(self) -> dict[str, str]:
        return {
            **_MEANINGS,
            "free": "lower bound on ε without assumptions, from guesses which canaries were included",
            "named": "lower bound on ε that assumes normal scores, shifted by an included canary",
        }

    @property
    def _effort(self) -> str:
        return f"1 run with {self.draws:,} canaries, each included with probability 1/2."


def _line_to_dict(line: AuditLine) -> dict[str, Any]:
    return {
        "units": line.units,
        "relation": line.relation,
        "claim": _number(line.claim),
        "free": _number(line.free.epsilon),
        "free_seen_from": _number(line.free.seen),
        "named": _number(line.named.epsilon),
        "named_seen_from": _number(line.named.seen),
        "verdict": line.verdict,
        "neighbours": line.pair,
    }


def _number(value: float | None) -> float | str | None:
    return "inf" if value == float("inf") else value
