"""``dg.plan_releases``: guarantees and expected errors of a release file before data are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain import _validate
from dpgrain._files import exclusive_files
from dpgrain._formatting import align_columns, powers, rounded_up
from dpgrain._lazy_import import lazy_import
from dpgrain.accounting import Loss, gaussian_epsilon
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.errors import DpgrainError, ParameterError, SchemaError
from dpgrain.publishing.budget import Budget, composed
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.promise import BudgetShare, epsilon_for_share
from dpgrain.publishing.release_plan import Expected
from dpgrain.releases.file import File, ReleaseEntry, read_file
from dpgrain.releases.validation_errors import ValidationErrors
from dpgrain.tables.table import UserTable
from dpgrain.units import PLAIN_UNITS
from dpgrain.words.notes import Note, note_texts

if TYPE_CHECKING:
    from dpgrain.releases import run as running
    from dpgrain.releases.run import Releases
else:
    running = lazy_import("dpgrain.releases.run")

# Largest number of trials that scale the shares until the releases together keep the promise and …
_MOST_TRIALS = 5
# … spend at least this part of ε.
_ENOUGH_OF_EPSILON = 0.9995
# A trial stays this much below the μ that fills the budget, so that it fits.
_BELOW = 1 - 1e-5
# ε and δ for the validation of a release with a share.
_ANY = (1.0, 1e-6)


@dataclass(frozen=True)
class PlannedRelease:
    """The plan of one release of a file.

    Args:
        entry: its table in the file.
        epsilon: its ε.
        delta: its δ.
        guarantee: its guarantee.
        expected: the expected error; None if public numbers do not determine it.
        care: warnings of unreliable results, each a kind and its numbers.
        groups: the public number of groups; 1 if it is unknown.
    """

    entry: ReleaseEntry
    epsilon: float
    delta: float
    guarantee: Guarantee
    expected: Expected | None
    care: tuple[Note, ...] = ()
    groups: int = 1


@dataclass(frozen=True)
class PlannedReleases:
    """The plan of a release file, fixed before data are read; created by :func:`plan_releases`.

    Args:
        file: the file.
        releases: its releases, in order.

    >>> import pyarrow as pa
    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import budget, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "releases.toml"
    ...     _ = path.write_text('''
    ...         [budget]
    ...         unit = "user"
    ...         [release.visits]
    ...         statistic = "count"
    ...         epsilon = 1.0
    ...         delta = 1e-6
    ...     ''')
    ...     plan = plan_releases(path, visits)
    ...     with budget(2.0, 2e-6, plan=[plan.guarantee]) as whole:
    ...         made = plan.run(random_state=1)
    >>> list(made), whole.left
    (['visits'], 1.0)
    """

    file: File
    releases: tuple[PlannedRelease, ...]

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases together, at the δ of the budget."""
        together = reduce(add, self.guarantees)
        if self.file.whole.epsilon is None:
            return together
        return replace(together, delta=self.file.whole.delta)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantee of each release, for the plan of a budget or a ledger."""
        return tuple(each.guarantee for each in self.releases)

    def with_epsilon(self, epsilon: float) -> PlannedReleases:
        """Return the plan of the same file with another ε of its budget.

        Args:
            epsilon: the ε of ``[budget]``.

        Raises:
            ParameterError: if ε is not positive, or the releases do not fit into this budget.
        """
        whole = replace(self.file.whole, epsilon=_validate.positive(epsilon=epsilon))
        return _plan(replace(self.file, whole=whole), ValidationErrors(self.file.path))

    @property
    def mark(self) -> str:
        """The text that identifies the file and its region in a ledger."""
        return f"{self.file.path.name} {self.file.mark}: {self.guarantee.scope}"

    def run(
        self, *, again: bool = False, random_state: Any = None, progress: bool | None = None
    ) -> Releases:
        """Publish the releases, and write their outputs.

        Args:
            again: publish again if an output exists, or a ledger has charged this file for the same
                region; this is charged again and replaces the outputs.
            random_state: a seed, for tests and research: the releases are then *not private*.
            progress: show progress; by default on a terminal, after two seconds.

        Raises:
            RefusedError: if an output exists, the open ledger has charged the same before, or the
                releases do not fit into the open budget or ledger; nothing is charged.
            DataError: if the table cannot be read, or an output cannot be written.
        """
        return running.run(self, again=again, random_state=random_state, progress=progress)

    def check_counts(self) -> dict[str, dict[str, int]]:
        """Count invalid values for the curator: **not private, not to be published**.

        Returns:
            The counts of :meth:`UserTable.check_counts` for the columns of each release, by its name;
            nothing is charged.

        Raises:
            DataError: if the table cannot be read.

        >>> import pyarrow as pa
        >>> from tempfile import TemporaryDirectory
        >>> from dpgrain import read
        >>> rows = read(pa.table({"who": [1, 2], "page": ["a", None]}), user="who")
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "releases.toml"
        ...     _ = path.write_text('''
        ...         [budget]
        ...         unit = "user"
        ...         [release.pages]
        ...         statistic = "count"
        ...         by = "page"
        ...         epsilon = 1.0
        ...         delta = 1e-6
        ...     ''')
        ...     counts = plan_releases(path, rows).check_counts()
        >>> counts["pages"]["rows without an item (dropped)"]
        1
        """
        return {each.entry.name: self.file.check_counts(each.entry) for each in self.releases}

    @property
    def spending(self) -> str:
        """Description of the guarantee of all releases together, and of the budget of the file."""
        whole, guarantee = self.file.whole, self.guarantee
        total = (
            f"All releases together: ε = {rounded_up(guarantee.epsilon())}, "
            f"δ = {powers(guarantee.delta)} per {guarantee.level}"
        )
        if whole.epsilon is None:
            return f"{total}."
        return f"{total}, of a budget of ε = {rounded_up(whole.epsilon)}."

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of :meth:`rows`; ε of each release is at the δ of all together."""
        delta = self.guarantee.delta
        epsilon = f"ε at δ = {powers(delta)}" if delta else "ε"
        return "release", "publishes", "share", epsilon, "standard error of noise"

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of text per release, for :attr:`columns`."""
        return [
            (
                each.entry.name,
                f"{'fit ' if each.entry.word == 'fit' else ''}{each.entry.function}",
                "" if each.entry.share is None else f"{each.entry.share:g}",
                rounded_up(each.guarantee.epsilon(self.guarantee.delta)),
                "unknown" if each.expected is None else str(each.expected),
            )
            for each in self.releases
        ]

    def __str__(self) -> str:
        care = [f"Warning: {' '.join(self.care)}"] if self.care else []
        table = align_columns([self.columns, *self.rows()], left=True)
        return "\n".join([*table, *care, self.spending])

    @property
    def care(self) -> list[str]:
        """Warnings of unreliable results, with the name of the release."""
        named = ((each.entry.name, note_texts(each.care)) for each in self.releases)
        return [f"{name}: {text}" for name, texts in named for text in texts]


def plan_releases(
    path: str | Path,
    table: UserTable | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    report: str | Path | None = None,
) -> PlannedReleases:
    """Validate a release file, and plan its releases; no data are read.

    Args:
        path: the file, in TOML; docs/releases.md describes it.
        table: the table, instead of the table of the file.
        where: the public region that all releases read, as in :meth:`~dpgrain.UserTable.where`, such
            as ``{"day": "2026-01"}``; by default the whole table.
        folder: the folder of outputs, created by a run if it is missing; by default the folder of the
            file.
        report: the HTML page for all releases; by default the page that the file states, if any.

    Returns:
        The plan: printed, it is a table with the expected error of each release. ``plan.run()``
        publishes the releases, and ``plan.guarantee`` can be in the ``plan`` of a budget.

    Raises:
        ParameterError: with all errors in the file, one per line; a SchemaError if all of them are
            missing columns.
        DataError: if the file, or a file that it refers to, cannot be read.

    Shares are of the budget, as in :func:`dpgrain.budget`. They are then scaled by a common factor, so
    that all releases together, composed exactly, use the whole budget.

    Formal guarantee: all releases of one run together have :attr:`PlannedReleases.guarantee`, at most
    the budget of the file. Source: docs/theory, "Budgets".

    >>> import pyarrow as pa
    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import read
    >>> visits = read(pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"]}), user="who")
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "releases.toml"
    ...     _ = path.write_text('''
    ...         [budget]
    ...         unit = "user"
    ...         epsilon = 1.0
    ...         delta = 1e-6
    ...         [release.visits]
    ...         statistic = "count"
    ...         clip = 5.0
    ...         share = 1.0
    ...     ''')
    ...     plan = plan_releases(path, visits)
    >>> print(plan)
    release  publishes  share  ε at δ = 10⁻⁶  standard error of noise
    visits   count      1      1              ±21.1
    All releases together: ε = 1, δ = 10⁻⁶ per user, of a budget of ε = 1.
    """
    path = _validate.path(path=path)
    folder = None if folder is None else _validate.path(folder=folder)
    report = None if report is None else _validate.path(report=report)
    with exclusive_files(), composed():
        errors = ValidationErrors(path)
        file = read_file(path, table, errors, where=where, folder=folder, report=report)
        return _plan(file, errors)


def _plan(file: File | None, errors: ValidationErrors) -> PlannedReleases:
    """Plan the releases of a file, or raise its errors."""
    if file is not None:
        for entry in file.entries:
            _check(file, entry, errors)
    errors.raise_all()
    assert file is not None  # noqa: S101 - without errors there is a file
    planned = _planned(file, errors)
    errors.raise_all()
    return planned


def _check(file: File, entry: ReleaseEntry, errors: ValidationErrors) -> None:
    """Plan a release repeatedly, each time without an invalid key, to find all errors."""
    tried = _completed(file, entry)
    if tried is None:
        return
    # For a share any ε is fine, because errors in the budget are already reported.
    spend = _spend(file, entry)
    for _ in range(len(tried.own) + len(spend) + 1):
        try:
            _ = file.query(tried, *spend).plan
        except DpgrainError as error:
            column = error.name if isinstance(error, SchemaError) else ""
            if tried.own.get(column) != entry.own.get(column):
                # The error is about a replacement.
                return
            name = errors.add_error(entry.place, error)
            if name in tried.own and not entry.keys[name].required:
                tried = tried.without(name)
            elif name in ("epsilon", "delta") and spend != _ANY:
                spend = _ANY
            else:
                return
        else:
            return


def _spend(file: File, entry: ReleaseEntry) -> tuple[float, float]:
    """Return an ε and a δ for the validation of a release: its own, or any."""
    if entry.epsilon is not None:
        return entry.epsilon, entry.delta
    pure = entry.share is not None and file.whole.delta == 0
    return _ANY[0], 0.0 if pure else _ANY[1]


def _completed(file: File, entry: ReleaseEntry) -> ReleaseEntry | None:
    """Return a release with replacements for missing or unknown columns."""
    schema = file.tables[entry.table].schema
    if entry.is_complete(schema):
        return entry
    for column in schema:
        tried = entry.completed(schema, column)
        try:
            _ = file.query(tried, *_spend(file, entry)).plan
        except SchemaError:
            continue
        except DpgrainError:
            pass
        return tried
    return None


def _planned(file: File, errors: ValidationErrors) -> PlannedReleases:
    """Return the plan with the ε, δ and guarantee of each release."""
    stated = {
        entry.name: _release(file, entry, entry.epsilon, entry.delta)
        for entry in file.entries
        if entry.epsilon is not None
    }
    try:
        made = _within(file, stated)
        planned = PlannedReleases(file, tuple(made[entry.name] for entry in file.entries))
        _ = planned.guarantee
    except ParameterError as error:
        errors.add_error("[budget]", error)
        return PlannedReleases(file, ())
    return planned


def _within(file: File, stated: dict[str, PlannedRelease]) -> dict[str, PlannedRelease]:
    """Return all releases; those with shares divide the rest of the budget."""
    if file.whole.epsilon is None:
        return stated
    budget = _Budgeted(file, [each.guarantee for each in stated.values()])
    sharing = [entry for entry in file.entries if entry.share is not None]
    return stated | (budget.shared(sharing) if sharing else {})


@dataclass(frozen=True)
class _Budgeted:
    """The budget of a file, with the guarantees of releases that have their own ε and δ."""

    file: File
    stated: Sequence[Guarantee]

    def __post_init__(self) -> None:
        # Raises if these releases do not fit.
        self.opened(self.epsilon)

    @property
    def epsilon(self) -> float:
        """The ε of the budget."""
        return self.file.whole.epsilon or 0.0

    @property
    def delta(self) -> float:
        """The δ of the budget."""
        return self.file.whole.delta

    def opened(self, epsilon: float) -> Budget:
        """Return the budget for shares at another ε."""
        return Budget(epsilon, self.delta, leak=self.file.whole.leak, plan=self.stated)

    def shared(self, entries: Sequence[ReleaseEntry]) -> dict[str, PlannedRelease]:
        """Return the releases with shares, scaled by a common factor within the promise."""
        result: dict[str, PlannedRelease] = {}
        most, epsilon = -1.0, self.epsilon
        for _ in range(_MOST_TRIALS):
            budget = self.opened(epsilon)
            made = {entry.name: self._with_share(entry, budget) for entry in entries}
            spent = self._loss(made.values(), budget).epsilon(self.delta)
            if most < spent <= self.epsilon:
                result, most = made, spent
            if self.delta == 0 or _ENOUGH_OF_EPSILON * self.epsilon <= spent <= self.epsilon:
                break
            epsilon = self._larger(epsilon, spent)
        if not result:
            raise ParameterError(
                "epsilon of the budget is too small for these shares; set smaller ones, or a "
                "larger leak."
            )
        return result

    def _with_share(self, entry: ReleaseEntry, budget: Budget) -> PlannedRelease:
        """Return a release with the ε and δ for its share of a budget."""
        query = partial(self.file.query, entry)
        assert entry.share is not None  # noqa: S101 - these entries have shares
        epsilon, delta = epsilon_for_share(BudgetShare(entry.share, budget), query)
        return _release(self.file, entry, epsilon, delta)

    def _loss(self, made: Collection[PlannedRelease], budget: Budget) -> Loss:
        """Return the loss of all releases, and of the unused part of the budget."""
        guarantees = [*self.stated, *(each.guarantee for each in made)]
        together: Guarantee = reduce(add, guarantees)
        unit = PLAIN_UNITS[together.level]
        part = max(0.0, 1.0 - sum(each.entry.share or 0.0 for each in made))
        rest = budget.caps.price.part(part)
        taken = together.event.loss(1, together.relation, unit)
        return taken + Loss(mu=rest.mu, pure=rest.pure, leak=rest.leak)

    def _larger(self, epsilon: float, spent: float) -> float:
        """Return the ε of a budget whose shares spend roughly the available ε."""
        wanted = gaussian_mu(self.epsilon, self.delta) * _BELOW
        factor = wanted / gaussian_mu(spent, self.delta)
        return gaussian_epsilon(self.delta, gaussian_mu(epsilon, self.delta) * factor)


def _release(file: File, entry: ReleaseEntry, epsilon: float, delta: float) -> PlannedRelease:
    """Return a release with the guarantee of its plan."""
    plan = file.query(entry, epsilon, delta).plan
    return PlannedRelease(
        entry, epsilon, delta, plan.guarantee, plan.expected, plan.care, plan.groups
    )
