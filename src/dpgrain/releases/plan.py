"""``dg.plan_releases``: what the releases of a file promise and err, before anything is read."""

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
from dpgrain.publishing.expected import Expected
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.share import Share, stated_of
from dpgrain.releases.file import Entry, File, read_file
from dpgrain.releases.kinds import Asked
from dpgrain.releases.mistakes import Mistakes
from dpgrain.tables.table import UserTable
from dpgrain.units import PLAIN_UNITS

if TYPE_CHECKING:
    from dpgrain.releases import run as running
    from dpgrain.releases.run import Releases
else:
    running = lazy_import("dpgrain.releases.run")

# Shares are enlarged at most this many times, until the releases together keep the promise and …
_MOST_TRIALS = 5
# … spend at least this part of ε.
_ENOUGH_OF_EPSILON = 0.9995
# A trial stays this much below the μ that fills the budget, so that it fits.
_BELOW = 1 - 1e-5
# ε and δ with which a release is checked where the file does not state them.
_ANY = (1.0, 1e-6)


@dataclass(frozen=True)
class PlannedRelease:
    """One release of a file, before it is made.

    Args:
        entry: what the file states.
        epsilon: the ε that it is made with.
        delta: the δ that it is made with.
        guarantee: the guarantee that it will have.
        expected: the error to expect; None where public numbers do not tell it.
        care: what will probably not come as it is asked for, in sentences.
    """

    entry: Entry
    epsilon: float
    delta: float
    guarantee: Guarantee
    expected: Expected | None
    care: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedReleases:
    """The releases of a file, fixed before anything is read; made by :func:`plan_releases`.

    Args:
        file: the file.
        releases: its releases, in their order.

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
        """The guarantee of each release, which may stand in the plan of a budget or a ledger."""
        return tuple(each.guarantee for each in self.releases)

    @property
    def mark(self) -> str:
        """The text by which a ledger knows the file and its window again."""
        return f"{self.file.path.name} {self.file.mark}: {self.guarantee.scope}"

    def run(
        self, *, again: bool = False, random_state: Any = None, progress: bool | None = None
    ) -> Releases:
        """Make the releases, and write what the file asks for.

        Args:
            again: publish anew where an output is there already, or a ledger has charged this file for
                the same region; it is charged and replaced.
            random_state: a seed, for tests and research: the releases are then *not private*.
            progress: show progress; by default on a terminal, after two seconds.

        Raises:
            RefusedError: if an output is there already, the open ledger has charged the same before,
                or budget or ledger do not hold all releases; nothing is charged then.
            DataError: if the table cannot be read, or an output cannot be written.
        """
        return running.run(self, again=again, random_state=random_state, progress=progress)

    @property
    def spending(self) -> str:
        """State the guarantee of all releases together, and the budget of the file."""
        whole, guarantee = self.file.whole, self.guarantee
        said = (
            f"All releases together: ε = {rounded_up(guarantee.epsilon())}, "
            f"δ = {powers(guarantee.delta)} per {guarantee.level}"
        )
        if whole.epsilon is None:
            return f"{said}."
        return f"{said}, of a budget of ε = {rounded_up(whole.epsilon)}."

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of text for each release: name, what it is, share, ε, δ, error to expect."""
        return [
            (
                each.entry.name,
                f"{'fit ' if each.entry.kind.word == 'fit' else ''}{each.entry.kind.name}",
                "" if each.entry.share is None else f"{each.entry.share:g}",
                rounded_up(each.guarantee.epsilon()),
                powers(each.guarantee.delta),
                "unknown" if each.expected is None else str(each.expected),
            )
            for each in self.releases
        ]

    def __str__(self) -> str:
        care = [f"Warning: {' '.join(self.care)}"] if self.care else []
        return "\n".join([*align_columns([COLUMNS, *self.rows()], left=True), *care, self.spending])

    @property
    def care(self) -> list[str]:
        """Sentences about what will probably not come as the file asks for it."""
        return [f"{each.entry.name}: {said}" for each in self.releases for said in each.care]


#: The headings of :meth:`PlannedReleases.rows`.
COLUMNS = ("release", "publishes", "share", "ε", "δ", "standard error of noise")


def plan_releases(
    path: str | Path,
    table: UserTable | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> PlannedReleases:
    """Check a file of releases as a whole, and fix all that will be published; nothing is read.

    Args:
        path: the file, in TOML; docs/releases.md describes it.
        table: the table, in place of the one that the file names.
        where: the public region that all releases read, as :meth:`~dpgrain.UserTable.where` takes it,
            such as ``{"day": "2026-01"}``; all of the table without it.
        folder: the folder of outputs, which a run makes where there is none; that of the file without
            it.

    Returns:
        The plan: printed, it is a table with the error to expect of each release. ``plan.run()`` makes
        the releases, and ``plan.guarantee`` may stand in the ``plan`` of a budget.

    Raises:
        ParameterError: with all mistakes in the file, one a line; a SchemaError if all of them are
            columns that the table has not.
        DataError: if the file, or one that it names, cannot be read.

    Shares are of the budget as in :func:`dpgrain.budget`, and are then enlarged alike until all
    releases together, composed exactly, spend it.

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
    release  publishes  share  ε      δ     standard error of noise
    visits   count      1      1.115  10⁻⁷  ±21.1
    All releases together: ε = 1, δ = 10⁻⁶ per user, of a budget of ε = 1.
    """
    path = _validate.path(path=path)
    folder = None if folder is None else _validate.path(folder=folder)
    with exclusive_files(), composed():
        return _plan(path, table, where, folder)


def _plan(
    path: Path, table: UserTable | None, where: Mapping[str, Any] | None, folder: Path | None
) -> PlannedReleases:
    """Read a file of releases and all that it names, and plan it."""
    mistakes = Mistakes(path)
    file = read_file(path, table, mistakes, where=where, folder=folder)
    if file is not None:
        for entry in file.entries:
            _check(file, entry, mistakes)
    mistakes.tell()
    assert file is not None  # noqa: S101 - without mistakes there is a file
    planned = _planned(file, mistakes)
    mistakes.tell()
    return planned


def _check(file: File, entry: Entry, mistakes: Mistakes) -> None:
    """Plan a release, without each key that is refused, so that all of them are found."""
    asked = _askable(file, entry)
    if asked is None:
        return
    # Any ε will do where the budget decides it, since its own mistakes are reported already.
    spend = _spend(file, entry)
    for _ in range(len(asked.own) + len(spend) + 1):
        try:
            _ = entry.kind.query(asked, *spend).plan
        except DpgrainError as error:
            if isinstance(error, SchemaError) and _stands_in(error.name, asked, entry):
                return
            name = mistakes.caught(entry.place, error)
            if name in asked.own and not entry.kind.keys[name].needed:
                asked = asked.without(name)
            elif name in ("epsilon", "delta") and spend != _ANY:
                spend = _ANY
            else:
                return
        else:
            return


def _stands_in(key: str, asked: Asked, entry: Entry) -> bool:
    """Return whether the column of a key is another than the file names."""
    return asked.own.get(key) != entry.own.get(key)


def _spend(file: File, entry: Entry) -> tuple[float, float]:
    """Return an ε and a δ to check a release with: its own, or any."""
    if entry.epsilon is not None:
        return entry.epsilon, entry.delta
    pure = entry.share is not None and file.whole.delta == 0
    return _ANY[0], 0.0 if pure else _ANY[1]


def _askable(file: File, entry: Entry) -> Asked | None:
    """Return what is asked for, with other columns for those that are wrong or missing."""
    asked, kind = file.asked(entry), entry.kind
    if kind.is_complete(entry.own, file.table.schema):
        return asked
    for column in file.table.schema:
        tried = replace(asked, own=kind.completed(entry.own, file.table.schema, column))
        try:
            _ = kind.query(tried, *_spend(file, entry)).plan
        except SchemaError:
            continue
        except DpgrainError:
            pass
        return tried
    return None


def _planned(file: File, mistakes: Mistakes) -> PlannedReleases:
    """Fix the ε and δ of each release, and with them its guarantee."""
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
        mistakes.caught("[budget]", error)
        return PlannedReleases(file, ())
    return planned


def _within(file: File, stated: dict[str, PlannedRelease]) -> dict[str, PlannedRelease]:
    """Return all releases, of which those with shares take what the stated ones leave of the budget."""
    if file.whole.epsilon is None:
        return stated
    budget = _Budgeted(file, [each.guarantee for each in stated.values()])
    sharing = [entry for entry in file.entries if entry.share is not None]
    return stated | (budget.shared(sharing) if sharing else {})


@dataclass(frozen=True)
class _Budgeted:
    """The budget of a file, and what of it is stated and not shared.

    Args:
        file: the file.
        stated: the guarantees of the releases that state their ε and δ.
    """

    file: File
    stated: Sequence[Guarantee]

    def __post_init__(self) -> None:
        # It refuses what is stated and does not fit.
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
        """Return a budget whose parts are shared, with another ε."""
        return Budget(epsilon, self.delta, leak=self.file.whole.leak, plan=self.stated)

    def shared(self, entries: Sequence[Entry]) -> dict[str, PlannedRelease]:
        """Return releases by shares, which are enlarged alike while all of them keep the promise."""
        result: dict[str, PlannedRelease] = {}
        most, epsilon = -1.0, self.epsilon
        for _ in range(_MOST_TRIALS):
            budget = self.opened(epsilon)
            made = {entry.name: self._of_share(entry, budget) for entry in entries}
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

    def _of_share(self, entry: Entry, budget: Budget) -> PlannedRelease:
        """Return a release with the ε and δ at which it takes its share of a budget."""
        query = partial(entry.kind.query, self.file.asked(entry))
        assert entry.share is not None  # noqa: S101 - these entries have shares
        epsilon, delta = stated_of(Share(entry.share, budget), query)
        return _release(self.file, entry, epsilon, delta)

    def _loss(self, made: Collection[PlannedRelease], budget: Budget) -> Loss:
        """Return the loss of all releases, and of the part of a budget that nobody takes."""
        guarantees = [*self.stated, *(each.guarantee for each in made)]
        together: Guarantee = reduce(add, guarantees)
        unit = PLAIN_UNITS[together.level]
        part = max(0.0, 1.0 - sum(each.entry.share or 0.0 for each in made))
        rest = budget.caps.price.part(part)
        taken = together.event.loss(1, together.relation, unit)
        return taken + Loss(mu=rest.mu, pure=rest.pure, leak=rest.leak)

    def _larger(self, epsilon: float, spent: float) -> float:
        """Return the ε of a budget of which the same shares spend what there is, about."""
        wanted = gaussian_mu(self.epsilon, self.delta) * _BELOW
        factor = wanted / gaussian_mu(spent, self.delta)
        return gaussian_epsilon(self.delta, gaussian_mu(epsilon, self.delta) * factor)


def _release(file: File, entry: Entry, epsilon: float, delta: float) -> PlannedRelease:
    """Return a release with the guarantee of its plan."""
    plan = entry.kind.query(file.asked(entry), epsilon, delta).plan
    return PlannedRelease(entry, epsilon, delta, plan.guarantee, plan.expected, plan.care)
