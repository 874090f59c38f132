"""``dg.releases``: publish the releases of a file, charged together before any reads data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._files import (
    SPACE,
    TOGETHER,
    atomic_write,
    check_outputs,
    exclusive_files,
    exists,
    folders_of,
    make_folder,
    replaced_together,
    reserved_space,
)
from dpgrain._progress import Progress
from dpgrain._report_mixins import ReleasesReportMixin
from dpgrain.errors import RefusedError
from dpgrain.publishing.budget import composed, open_budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.fitting_epsilon import with_fitting_epsilon
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.process import open_ledger
from dpgrain.publishing.publish import Reservation, reserve
from dpgrain.releases.outputs import write
from dpgrain.releases.plan import PlannedRelease, PlannedReleases, plan_releases
from dpgrain.tables.table import UserTable
from dpgrain.words.ledger_text import TOO_FULL

_WITH_EACH = Fact("with-each")
# Space for the row of a public group in an output, in bytes.
_ROW = 2048


@dataclass(frozen=True, repr=False)
class Releases(ReleasesReportMixin, Mapping[str, Any]):
    """The releases of a file by name; created by :func:`releases`.

    Args:
        plan: the plan.
        made: the releases by name: :class:`~dpgrain.Release`, :class:`~dpgrain.MeanOfUsers`, or fitted
            models.
        guarantee: the guarantee of all of them together.

    >>> import pyarrow as pa
    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import read
    >>> rows = pa.table({"who": list(range(600)), "paid": [1.0, 3.0] * 300})
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "releases.toml"
    ...     _ = path.write_text('''
    ...         [budget]
    ...         unit = "user"
    ...         epsilon = 1.0
    ...         delta = 1e-6
    ...         [release.visits]
    ...         statistic = "count"
    ...         share = 0.5
    ...         [release.spent]
    ...         statistic = "sum"
    ...         value = "paid"
    ...         bounds = [0, 4]
    ...         share = 0.5
    ...     ''')
    ...     made = releases(path, read(rows, user="who"), random_state=1)
    >>> {name: round(release.value, -2) for name, release in made.items()}
    {'visits': 600.0, 'spent': 1200.0}
    >>> made.guarantee.epsilon() <= 1.0
    True
    """

    plan: PlannedReleases
    made: Mapping[str, Any] = field(hash=False)
    guarantee: Guarantee

    def __getitem__(self, name: str) -> Any:
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)

    @property
    def promise(self) -> Guarantee:
        """The guarantee of all releases, with their common public facts."""
        facts = [guarantee_of(release).public for release in self.made.values()]
        shared = [fact for fact in facts[0] if all(fact in each for each in facts)]
        return replace(self.guarantee, public=(*shared, _WITH_EACH))

    def __repr__(self) -> str:
        return f"Releases({', '.join(self.made)})\n{self.promise}"


def releases(
    path: str | Path,
    table: UserTable | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    report: str | Path | None = None,
    again: bool = False,
    random_state: Any = None,
    progress: bool | None = None,
) -> Releases:
    """Publish the releases of a file under one promise.

    Args:
        path: the file, in TOML; docs/releases.md describes it.
        table: the table, instead of the table of the file.
        where: the public region that all releases read, such as ``{"day": "2026-01"}``.
        folder: the folder of outputs, created if it is missing; by default the folder of the file.
        report: the HTML page for all releases; by default the page that the file states, if any.
        again: publish again if an output exists, or a ledger has charged this file for the same
            region; this is charged again and replaces the outputs.
        random_state: a seed, for tests and research: the releases are then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        The releases by name, with the guarantee of all of them together.

    Raises:
        ParameterError: with all errors in the file, one per line; a SchemaError if all of them are
            missing columns, and a DataError if all are files that cannot be used. Nothing is read or
            charged.
        RefusedError: if the releases do not fit into the open budget or ledger, were made before, or
            another process is publishing them. Nothing is read or charged.
        DataError: if an output cannot be written, and nothing is charged; or if the table cannot be
            read, or an output fails after the charge, which remains.

    Formal guarantee: :attr:`Releases.guarantee`, for every table: all numbers that determine the noise
    are fixed before data are read. An open budget is charged for all releases as one, before the first.
    Source: docs/theory, "Budgets".

    >>> import pyarrow as pa
    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import read
    >>> visits = read(pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"]}), user="who")
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
    ...     made = releases(path, visits)
    >>> list(made), round(made.guarantee.epsilon(), 3)
    (['visits'], 1.0)
    """
    plan = plan_releases(path, table, where=where, folder=folder, report=report)
    return plan.run(again=again, random_state=random_state, progress=progress)


def run(
    plan: PlannedReleases, *, again: bool, random_state: Any, progress: bool | None
) -> Releases:
    """Charge all releases of a plan, then publish and write them; see :meth:`PlannedReleases.run`."""
    again = _validate.boolean(again=again)
    make_folder(plan.file.folder)
    with exclusive_files(), _held_outputs(plan) as free:
        if not again:
            _require_no_outputs(plan)
        check_outputs(plan.file.outputs)
        return _charged(plan, free, again=again, random_state=random_state, progress=progress)


@contextmanager
def _held_outputs(plan: PlannedReleases) -> Iterator[Callable[[int], None]]:
    """Hold the outputs of a plan with their space, and yield a function that frees some of it."""
    file = plan.file
    if not file.outputs:
        yield lambda _: None
        return
    size = sum(map(_space, plan.releases)) + (0 if file.report is None else SPACE)
    with reserved_space(file.folder, file.path.name, size) as free:
        yield free


def _space(each: PlannedRelease) -> int:
    """Return the space of the output of a release, from public numbers."""
    return 0 if each.entry.output is None else SPACE + each.groups * _ROW


def _charged(
    plan: PlannedReleases,
    free: Callable[[int], None],
    *,
    again: bool,
    random_state: Any,
    progress: bool | None,
) -> Releases:
    """Charge all releases of a plan, then publish and write them; ``free`` frees held space."""
    file, made = plan.file, dict[str, Any]()
    with (
        note_missing_outputs(plan, again=again),
        Progress(len(plan.releases) + 1, progress) as shown,
        replaced_together(),
    ):
        sizes = [table.n_users for table in file.tables.values() if table.n_users is not None]
        reservation = reserve(
            plan.guarantee,
            plan.guarantees,
            n_users=max(sizes, default=None),
            mark=plan.mark,
            again=again,
        )
        for each in plan.releases:
            shown.stage(f"{each.entry.name}: {each.entry.function}")
            made[each.entry.name] = _published(plan, each, reservation, free, random_state)
        together = _together(plan, reservation.charged, made)
        if file.report is not None:
            shown.stage("Writing the report")
            free(SPACE)
            together.report(file.report)
    return together


def _require_no_outputs(plan: PlannedReleases) -> None:
    """Raise RefusedError if outputs of an earlier run exist."""
    existing = [path for path in plan.file.outputs if exists(path)]
    if not existing:
        return
    if (ledger := open_ledger()) is not None:
        # Names the line that charged them.
        with note_missing_outputs(plan, again=False):
            ledger.rehearse(*plan.guarantees, mark=plan.mark, again=False)
    raise _refusal(
        f"{str(existing[0])!r} exists already, so an earlier run was probably charged (only the "
        "file shows it); pass again=True (--again) to replace it at the same cost, or choose other "
        "outputs.",
        plan,
    )


@contextmanager
def note_missing_outputs(plan: PlannedReleases, *, again: bool) -> Iterator[None]:
    """Add a remedy to the error of a run that the ledger refuses, or outputs missing since then."""
    try:
        yield
    except RefusedError as error:
        if error.line is None:
            raise _with_remedy(error, plan, again=again) from None
        if error.folders and set(error.folders).isdisjoint(folders_of(plan.file.outputs)):
            # The outputs of that run are elsewhere, so none are missing here.
            raise
        raise _refusal(str(error), plan, error.line) from None


def _with_remedy(error: RefusedError, plan: PlannedReleases, *, again: bool) -> RefusedError:
    """Return a refusal with the largest ε of the file's budget that fits, if the file has one."""
    if again and open_ledger() is not None and open_budget() is None:
        return RefusedError(f"{error} To publish at the same cost, {TOO_FULL}.", spent=error.spent)
    epsilon = plan.file.whole.epsilon
    if epsilon is None:
        return error

    def planned(trial: float) -> Sequence[Guarantee]:
        with composed():
            return plan.with_epsilon(trial).guarantees

    return with_fitting_epsilon(error, epsilon, planned, where=" in [budget]")


def _refusal(message: str, plan: PlannedReleases, line: int | None = None) -> RefusedError:
    """Return an error about an earlier run, with the outputs that it did not write."""
    missing = tuple(str(path) for path in plan.file.outputs if not exists(path))
    if missing:
        message += f" Its missing outputs: {', '.join(map(repr, missing))}."
    return RefusedError(message, line=line, missing=missing)


def _published(
    plan: PlannedReleases,
    each: PlannedRelease,
    reservation: Reservation,
    free: Callable[[int], None],
    random_state: Any,
) -> Any:
    """Publish a release, and write it with its guarantee."""
    entry = each.entry
    with composed():
        query = plan.file.query(entry, each.epsilon, each.delta, random_state)
        release = reservation.publish(query)
    if entry.output is not None:
        free(_space(each))
        guarantee = guarantee_of(release)
        together = replace(reservation.charged, private=guarantee.private)
        about = {**guarantee.to_dict(), TOGETHER: together.to_dict()}
        with atomic_write(entry.output, promise=about) as part:
            write(release, entry.own, part)
    return release


def _together(plan: PlannedReleases, charged: Guarantee, made: Mapping[str, Any]) -> Releases:
    """Return the releases with their common guarantee, private only if each release is."""
    private = all(guarantee_of(release).private for release in made.values())
    return Releases(plan, made, replace(charged, private=private))


def guarantee_of(release: Any) -> Guarantee:
    """Return the guarantee of a release, a mean or a fitted model."""
    guarantee: Guarantee = (
        release.guarantee_ if hasattr(release, "guarantee_") else release.guarantee
    )
    return guarantee
