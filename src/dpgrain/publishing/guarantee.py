"""The guarantee of a release, as a curve and in files."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpgrain import _validate
from dpgrain._files import NUMBERS, TOGETHER, guarantee_path, read_guarantee
from dpgrain._lazy_import import lazy_import
from dpgrain._report_mixins import GuaranteeReportMixin
from dpgrain.accounting import Event, Scoped
from dpgrain.accounting.losses.rounding import sum_up
from dpgrain.errors import CareWarning, DataError, DeltaWarning, EpsilonWarning, ParameterError
from dpgrain.publishing.facts import Fact, unique_facts
from dpgrain.publishing.receipt import Receipt
from dpgrain.scope.partitions import Partition, partition_name
from dpgrain.scope.provenance import StatedProvenance, combine
from dpgrain.scope.regions import EVERYTHING, Region
from dpgrain.units import PLAIN_UNITS, Level, Relation, Unit
from dpgrain.words import guarantee_text as words
from dpgrain.words.notes import Note, note_texts

if TYPE_CHECKING:
    from dpgrain.publishing import old_facts
    from dpgrain.publishing import risk as risks
    from dpgrain.publishing.risk import Risk
else:
    old_facts = lazy_import("dpgrain.publishing.old_facts")
    risks = lazy_import("dpgrain.publishing.risk")

# A larger ε is a weak guarantee.
_LARGE_EPSILON = 10.0


@dataclass(frozen=True)
class Guarantee(GuaranteeReportMixin):
    """The guarantee of a release: unit, relation, ε, δ and assumptions.

    Args:
        level: the privacy unit, ``"record"``, ``"element"`` or ``"user"``.
        elements: the partition into elements, as text, such as ``'topic'`` in quotes for a column;
            empty if there is none.
        relation: the neighbouring relation.
        delta: the default δ of :meth:`epsilon`.
        event: the event of the release, which decides the curve.
        public: the facts assumed to be public and fixed in advance.
        private: False if the source was seeded, so that the noise is predictable.
        user: the column with the user id of a record; empty if there is none.
        scope: the public region that the release reads; other records have no influence.
        partition: the partition into elements; None if only its text is known.
        receipts: the lines of ledgers with the charge of the release.
        provenance: the origin of the rows: ``"table"``; ``"checked"`` for rows that this library
            derived from a table, row by row or person by person; ``"as given"`` for an assumption; or
            empty if unknown, which is possible in guarantees of version 0.1.

    Raises:
        ParameterError: if a field has another type, or δ is out of range.

    Formal guarantee: (ε, δ)-DP for every table. For rows as given, it assumes that no user's data
    determined the rows of other users, or whether the rows could be read.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="user"))
    >>> guarantee = Guarantee("user", "", "zero_out", 1e-6, event)
    >>> round(guarantee.epsilon(), 3), round(guarantee.epsilon(units=2), 3)
    (0.834, 1.766)
    """

    level: Level
    elements: str
    relation: Relation
    delta: float
    event: Event
    public: tuple[Fact, ...] = ()
    private: bool = True
    user: str = ""
    scope: Region = EVERYTHING
    partition: Partition | None = None
    receipts: tuple[Receipt, ...] = ()
    provenance: StatedProvenance = ""

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        # Earlier versions stored a description of a column instead of its name.
        object.__setattr__(self, "elements", partition_name(self.elements))
        _validate.delta(allow_zero=True, delta=self.delta)

    def epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        relation: Relation | None = None,
        unit: Unit | None = None,
    ) -> float:
        """Return the smallest guaranteed ε, a point of the granularity curve.

        A smaller unit can cost more than the protected one: removing one record can change a clipped
        block by more than removing the block.

        Args:
            delta: the δ; by default the release's own.
            units: the number of units of one person that differ (for ``User``, of users).
            relation: the neighbouring relation; by default the release's own.
            unit: the privacy unit, such as ``User(max_elements=40)`` or ``Record()``; by default the
                release's own. Elements always use the partition of the release, and ``by`` is ignored.

        Returns:
            ε, infinite if it has no bound.

        Raises:
            ParameterError: if an argument is out of range.
        """
        return self.event.epsilon(
            self.delta if delta is None else delta,
            units=units,
            relation=self.relation if relation is None else relation,
            unit=PLAIN_UNITS[self.level] if unit is None else unit,
        )

    def risk(
        self,
        *,
        unit: Unit | None = None,
        units: int = 1,
        relation: Relation | None = None,
        false_alarms: float = 0.05,
        prior: float = 0.5,
    ) -> Risk:
        """Return limits on the inferences of an attacker who knows all other records.

        Args:
            unit: the privacy unit; by default the release's own.
            units: the number of units of one person that differ (for ``User``, of users).
            relation: the neighbouring relation; by default the release's own.
            false_alarms: the probability of a false alarm of the attacker's test, in (0, 1).
            prior: the probability of the units before the release, in (0, 1).

        Raises:
            ParameterError: if an argument is out of range.

        Formal guarantee: every limit follows from a proved lower bound on the trade-off curve of the
        event and is rounded up; δ plays no part. If nothing bounds the units, all risks are 1. Source:
        docs/theory, "Risk".

        >>> from dpgrain.accounting import Contribution, Gaussian
        >>> event = Gaussian(2.0, Contribution(block="user"))
        >>> risk = Guarantee("user", "", "zero_out", 1e-6, event).risk()
        >>> round(risk.guess, 3), round(risk.detection, 3), risk.mu
        (0.599, 0.126, 0.5)
        """
        return risks.compute_risk(
            self.event,
            unit=PLAIN_UNITS[self.level] if unit is None else unit,
            units=units,
            relation=self.relation if relation is None else relation,
            false_alarms=false_alarms,
            prior=prior,
            private=self.private,
        )

    def __add__(self, other: Guarantee) -> Guarantee:
        """Compose the guarantees of two releases on the same people: losses compose, and δ adds.

        If no unit is in both regions, a unit is charged for one release only: daily releases over a
        year cost a user's day as much as a single release, and 30 days of a person as much as 30.

        Formal guarantee: the result is valid if the noise, type and region of the second release did
        not depend on the outcome of the first. Otherwise, put both into one :func:`dpgrain.budget`.
        """
        if not isinstance(other, Guarantee):
            return NotImplemented
        self._require_same_unit(other)
        parts = self._parts + other._parts
        apart = not any(one[1].meets(two[1]) for one in self._parts for two in other._parts)
        delta = max(self.delta, other.delta) if apart else sum_up(self.delta, other.delta)
        return Guarantee(
            self.level,
            self.elements,
            self.relation,
            min(delta, math.nextafter(1, 0)),
            _together(parts),
            unique_facts(_shared_filters(self, other) + _shared_filters(other, self)),
            self.private and other.private,
            self.user,
            self.scope.around(other.scope),
            self.partition if self.partition == other.partition else None,
            tuple(dict.fromkeys(self.receipts + other.receipts)),
            combine(self.provenance, other.provenance),
        )

    def _require_same_unit(self, other: Guarantee) -> None:
        """Reject guarantees for different units, partitions or relations."""
        mine = (self.level, self.elements, self.relation, self.user)
        theirs = (other.level, other.elements, other.relation, other.user)
        # If both partitions are known, they are compared instead of their texts.
        known = self.partition is not None and other.partition is not None
        if mine[:1] + mine[2:] != theirs[:1] + theirs[2:] or (not known and mine != theirs):
            raise ParameterError(
                f"guarantees for {_unit_text(*mine)} and {_unit_text(*theirs)} do not compose; release "
                "both for the same unit, partition and relation, and pass users and elements as "
                "the same array, or as a pandas Series with the name of the column."
            )
        if known and self.partition != other.partition:
            raise ParameterError(
                f"guarantees for elements by {self.partition} and by {other.partition} do not "
                "compose; release both for the same partition, with the same types= and dates=."
            )

    @property
    def _parts(self) -> tuple[_Part, ...]:
        """The events with the regions of their units, and their numbers."""
        if isinstance(self.event, Scoped):
            return tuple(zip(self.event.events, self.event.regions, self.event.most, strict=True))
        return ((self.event, self.unit_region, self._max_elements),)

    @property
    def unit_region(self) -> Region:
        """The smallest known region that contains all units with records in the scope.

        It contains whole units: a record with all its columns, an element with cell and user, a user
        with id.
        """
        if self.level == "record":
            return self.scope
        sides = list(self.scope.only([self.user]).sides)
        if self.level == "element" and self.partition is not None:
            whole = self.partition.whole_cells(self.scope).sides
            sides += [side for side in whole if side.column != self.user]
        return Region(tuple(sides))

    @property
    def _max_elements(self) -> int | None:
        """Maximum number of elements of one person in the scope; None if unknown."""
        if self.level != "element" or self.partition is None:
            return None
        return self.partition.cells_in(self.scope)

    @property
    def summary(self) -> str:
        """The guarantee in one line, as printed below a release.

        >>> from dpgrain.accounting import ApproximateDP
        >>> Guarantee("record", "", "zero_out", 0.0, ApproximateDP(0.5)).summary
        'ε = 1, δ = 0 per record (zero_out).'
        """
        return words.summary(self)

    def __str__(self) -> str:
        return words.sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain JSON values; the last four fields only if not empty."""
        more: dict[str, Any] = {}
        if not self.scope.everything:
            more["scope"] = self.scope.to_dict()
        if self.partition is not None:
            more["partition"] = self.partition.to_dict()
        if self.receipts:
            more["receipts"] = [asdict(receipt) for receipt in self.receipts]
        if self.provenance:
            more["provenance"] = self.provenance
        return {
            "level": self.level,
            "elements": self.elements,
            "relation": self.relation,
            "delta": self.delta,
            "event": self.event.to_dict(),
            "public": [fact.to_dict() for fact in self.public],
            "private": self.private,
            "user": self.user,
            **more,
        }

    def to_json(self) -> str:
        """Return the guarantee as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @property
    def hash(self) -> str:
        """The SHA-256 hash of the guarantee; the same after a round trip through JSON.

        >>> from dpgrain.accounting import Contribution, Gaussian
        >>> event = Gaussian(5.0, Contribution(block="user"))
        >>> promise = Guarantee("user", "", "zero_out", 1e-6, event)
        >>> Guarantee.from_json(promise.to_json()).hash == promise.hash
        True
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Guarantee:
        """Read the guarantee described by :meth:`to_dict`, or a guarantee of version 0.1.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        if isinstance(values, dict):
            values = old_facts.with_facts(values)
        return _validate.read_fields(Guarantee, values, "a guarantee")

    @staticmethod
    def from_json(text: str) -> Guarantee:
        """Read the guarantee from :meth:`to_json`, or from the guarantee file of an output.

        Raises:
            ParameterError: if the text does not describe a guarantee.

        Only :meth:`read_for_output` checks that an output still has the released numbers.
        """
        values = _validate.parse_json(text, "a guarantee")
        if isinstance(values, dict):
            values.pop(NUMBERS, None)
            values.pop(TOGETHER, None)
        return Guarantee.from_dict(values)

    @staticmethod
    def read_for_output(path: str | Path) -> Guarantee:
        """Read the guarantee of an output of a release file.

        Args:
            path: the output, such as ``pages.csv``, next to ``pages.csv.guarantee.json``.

        Raises:
            DataError: if the guarantee file is missing, or the numbers in the output have changed.
            ParameterError: if the file does not describe a guarantee.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     try:
        ...         Guarantee.read_for_output(Path(folder) / "pages.csv")
        ...     except DataError:
        ...         print("no guarantee")
        no guarantee
        """
        about = read_guarantee(_validate.path(path=path))
        if about is None:
            raise DataError(
                f"{str(path)!r} has no guarantee next to it: {guarantee_path(Path(path)).name!r} is "
                "missing; pass an output of dpgrain run, in the same folder as that file."
            )
        return Guarantee.from_dict(about)


def _shared_filters(mine: Guarantee, other: Guarantee) -> tuple[Fact, ...]:
    """Return the public facts of one of two releases; its own filters hold for a part only."""
    return tuple(
        Fact("some-rows-where", fact.numbers)
        if fact.kind == "rows-where" and fact not in other.public
        else fact
        for fact in mine.public
    )


_Part: TypeAlias = tuple[Event, Region, int | None]


def _together(parts: tuple[_Part, ...]) -> Event:
    """Compose the events of each region, and combine several regions into one event."""
    of_region: dict[tuple[Region, int | None], Event] = {}
    for event, region, most in parts:
        before = of_region.get((region, most))
        of_region[region, most] = event if before is None else before + event
    events = tuple(of_region.values())
    if len(events) == 1:
        return events[0]
    return Scoped(
        events, tuple(each for each, _ in of_region), tuple(most for _, most in of_region)
    )


def _unit_text(level: str, elements: str, relation: str, user: str) -> str:
    users = f", users by {words.user_ids(user)}" if user else ""
    return f"{level} ({words.elements_text(elements) or 'no partition'}, {relation}{users})"


def check_guarantee(guarantee: object) -> None:
    """Raise ParameterError for anything but a guarantee, such as an event."""
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"guarantee must be a Guarantee, not {type(guarantee).__name__}; build it from an "
            "event by dg.Guarantee(level, elements, relation, delta, event), such as "
            'dg.Guarantee("user", "", "zero_out", 1e-6, event).'
        )


def warn_large_delta(delta: float, level: Level, n_users: int | None, cells: int) -> None:
    """Warn of a δ that allows publishing a unit's data with a substantial probability."""
    if n_users is None or level == "record":
        return
    cells = cells if level == "element" else 1
    largest = 1 / (10 * n_users * cells)
    if delta > largest:
        warnings.warn(
            f"delta = {delta:g} is large for {n_users:,} "
            f"users{f' and {cells:,} cells' if cells > 1 else ''}: choose at most {largest:.2g}, "
            "because publishing the data of each unit outright with probability delta satisfies "
            "this guarantee.",
            DeltaWarning,
            stacklevel=_callers_level(),
        )


def warn_large_epsilon(epsilon: float) -> None:
    """Warn, once in a process, of an ε that is a weak guarantee."""
    if epsilon > _LARGE_EPSILON:
        _warn_once()


def warn_unreliable_result(care: Sequence[Note]) -> None:
    """Warn of results that will probably be unreliable."""
    for sentence in note_texts(care):
        warnings.warn(sentence, CareWarning, stacklevel=_callers_level())


@cache
def _warn_once() -> None:
    times = math.exp(_LARGE_EPSILON)
    warnings.warn(
        f"an epsilon above {_LARGE_EPSILON:g} is a weak guarantee: an outcome may be more than "
        f"{times:,.0f} times as likely with a person's data as without. This warning is shown "
        "once.",
        EpsilonWarning,
        stacklevel=_callers_level(),
    )


def _callers_level() -> int:
    """Return the stack level of the first frame outside of dpgrain, for warnings."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("dpgrain."):
        frame, level = frame.f_back, level + 1
    return level
