"""``dg.audit_releases``: audit of each release in a release file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain.auditing.audit import audit
from dpgrain.auditing.verdict import POINTER, Audit, Verdict
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing.budget import composed
from dpgrain.releases.plan import PlannedReleases, plan_releases
from dpgrain.tables.table import UserTable


@dataclass(frozen=True, repr=False)
class FileAudit(Mapping[str, Audit]):
    """Audits of the releases in a file, by name; returned by :func:`audit_releases`.

    Args:
        audits: the audit of each audited release.
        by_hand: the releases that require a manual audit, each with the reason.
        confidence: the probability with which all bounds of all audits are valid together.
        file: the name and the mark of the file.

    >>> FileAudit({}, {"fit": "its rows are arrays"}, 0.99).verdict
    'not audited'
    """

    audits: Mapping[str, Audit] = field(hash=False)
    by_hand: Mapping[str, str] = field(hash=False)
    confidence: float
    file: str = ""

    def __getitem__(self, name: str) -> Audit:
        return self.audits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.audits)

    def __len__(self) -> int:
        return len(self.audits)

    @property
    def verdict(self) -> Verdict:
        """Worst verdict of all releases; "not audited" if any release was not."""
        verdicts = {each.verdict for each in self.audits.values()}
        if self.by_hand or not verdicts:
            verdicts.add("not audited")
        worst: tuple[Verdict, ...] = ("violated", "not audited", "weak", "kept")
        return next(verdict for verdict in worst if verdict in verdicts)

    def __str__(self) -> str:
        lines = [f"{name}: {each.text}" for name, each in self.audits.items()]
        lines += [f"{name}: not audited: {why}" for name, why in self.by_hand.items()]
        left = [name for name, each in self.audits.items() if each.verdict == "not audited"]
        missing = ", ".join([*left, *self.by_hand])
        whole = (
            f"All bounds are valid together with confidence {self.confidence:.6g}: {self.verdict}"
            f"{missing and f' ({missing})'}. {POINTER}"
        )
        if len(self.audits) > 1:
            whole += " Each release was audited separately; their joint ε was not."
        title = [f"Audit of {self.file}"] if self.file else []
        return "\n\n".join([*title, *lines, whole])

    __repr__ = __str__

    def explain(self) -> str:
        """Describe the columns of each audit."""
        return "\n\n".join(f"{name}: {each.explain()}" for name, each in self.audits.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the audits as JSON values."""
        return {
            "file": self.file,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "releases": {name: each.to_dict() for name, each in self.audits.items()},
            "by_hand": dict(self.by_hand),
        }


def audit_releases(
    path: str | Path,
    table: UserTable | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    units: Sequence[int] = (1, 2, 4),
    seconds: float = 60.0,
    confidence: float = 0.99,
    random_state: RandomState = None,
) -> FileAudit:
    """Audit each release in a release file; nothing is read, charged or written.

    Args:
        path: the file in TOML format, described in docs/releases.md.
        table: the table, instead of the one in the file; only its schema is used.
        where: the public region of all releases.
        units: the numbers of changed units of one user.
        seconds: the approximate total duration, except for the searches for the worst neighbours,
            which are never interrupted.
        confidence: the probability with which all bounds of all releases are valid together.
        random_state: a seed for tests, for an audit of predictable noise.

    Returns:
        the audits by names of releases.

    Raises:
        ParameterError: with all errors in the file, one per line, or if an argument is out of
            range.
        DataError: if the file, or a file that it refers to, cannot be read.

    Guarantee: the guarantee of :func:`dpgrain.audit`, for all releases together. Source:
    docs/tutorials/audits.md.

    >>> import pyarrow as pa
    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "releases.toml"
    ...     _ = path.write_text('''
    ...         [budget]
    ...         unit = "user"
    ...         [release.visits]
    ...         statistic = "count"
    ...         clip = 5.0
    ...         epsilon = 2.0
    ...         delta = 1e-6
    ...     ''')
    ...     found = audit_releases(path, visits, units=[1], seconds=5, random_state=1)
    >>> list(found), round(found["visits"].lines[0].claim, 6)
    (['visits'], 2.0)
    """
    seconds = _validate.positive(seconds=seconds)
    confidence = _validate.fraction(confidence=confidence)
    plan = plan_releases(path, table, where=where)
    audits, by_hand, several = dict[str, Audit](), dict[str, str](), len(plan.releases)
    for name, query in _queries(plan):
        try:
            audits[name] = audit(
                query,
                units=units,
                seconds=seconds / several,
                confidence=1 - (1 - confidence) / several,
                random_state=random_state,
            )
        except ParameterError as error:
            if error.name != "query":
                raise
            by_hand[name] = str(error)
    return FileAudit(audits, by_hand, confidence, f"{plan.file.path.name}, mark {plan.file.mark}")


def _queries(plan: PlannedReleases) -> Iterator[tuple[str, Any]]:
    """Return the queries of a plan, by names of releases."""
    for each in plan.releases:
        with composed():
            query = plan.file.query(each.entry, each.epsilon, each.delta)
        yield each.entry.name, query
