"""A synthetic table for tutorials: the loans of a city library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
else:
    np, pa = lazy_import("numpy"), lazy_import("pyarrow")

__all__ = ["catalogue", "loans"]

# Loans of a subject, relative to those of a novel, and a few of its titles, the most popular first.
SUBJECTS: dict[str, tuple[float, tuple[str, ...]]] = {
    "Novels": (
        1.0,
        ("Pride and Prejudice", "Middlemarch", "Moby-Dick", "Jane Eyre", "Dracula", "Emma"),
    ),
    "Crime": (
        0.8,
        ("The Moonstone", "A Study in Scarlet", "The Woman in White", "The Leavenworth Case"),
    ),
    "Children": (
        0.7,
        ("The Secret Garden", "Treasure Island", "The Wind in the Willows", "Black Beauty"),
    ),
    "Cooking": (0.35, ("Bread at Home", "One Pot, Four People", "Vegetables First", "Preserves")),
    "History": (0.3, ("A History of Bridges", "The Spice Trade", "Cities and Plagues", "Salt")),
    "Travel": (0.3, ("Walking in Norway", "Lisbon by Tram", "The Night Trains", "Islands")),
    "Science": (0.25, ("The Origin of Species", "Opticks", "Flatland", "The Sea Floor")),
    "Gardening": (0.2, ("Small Gardens", "Roses", "Bees in Town", "The Compost Book")),
    "Poetry": (0.12, ("Leaves of Grass", "Sonnets", "The Waste Land", "Goblin Market")),
    "Health": (0.15, ("Living with Diabetes", "Sleep", "Back Pain", "After a Stroke")),
    "Law": (0.06, ("Your Rights as a Tenant", "Divorce: What to Know", "Debt Advice", "Wills")),
    "Faith": (0.06, ("World Religions", "The Confessions", "A Short Introduction to Islam")),
}
BRANCHES = ("Central", "Harbour", "Hillside", "Riverside", "Station", "University")
_BRANCH_SHARES = (0.34, 0.2, 0.14, 0.14, 0.1, 0.08)
# Standard deviation of the logarithm of loans per reader: most borrow little, few much.
_SPREAD = 1.1
# Dirichlet parameter of readers' tastes: smaller values concentrate each reader on fewer subjects.
_TASTE = 0.35
_FIRST_DAY, _DAYS = "2025-01-01", 365
_USUAL_DAYS = 14
# Approximate maximum number of loans.
_MOST_LOANS = 10**9


def loans(readers: int = 3000, *, typical: int = 9, seed: int = 0) -> pa.Table:
    """Generate the loans of a city library in 2025, of synthetic readers.

    Args:
        readers: the number of readers.
        typical: the median number of loans per reader.
        seed: the table is the same for the same seed.

    Returns:
        A table with a row for each loan: ``reader`` (a number), ``age`` of the reader, ``title``,
        ``subject``, ``branch``, ``day`` (a date), ``days_kept``, and ``late`` (0 or 1: kept for more
        than three weeks).

    Raises:
        ParameterError: if a number is not an integer, or below 1 (``seed``: below 0), or if there
            would be more than about 10⁹ loans.

    The table is for tutorials and tests. It contains no real data.

    >>> table = loans(readers=100)
    >>> table.column_names
    ['reader', 'age', 'title', 'subject', 'branch', 'day', 'days_kept', 'late']
    """
    readers = _validate.integer(minimum=1, readers=readers)
    typical = _validate.integer(minimum=1, typical=typical)
    if readers * typical > _MOST_LOANS:
        raise ParameterError(
            f"readers times typical must be at most {_MOST_LOANS:,}, not "
            f"{readers * typical:,}: the table is built in memory."
        )
    generator = np.random.default_rng(_validate.integer(minimum=0, seed=seed))
    counts = np.ceil(generator.lognormal(np.log(typical), _SPREAD, readers)).astype(np.int64)
    reader = np.repeat(np.arange(readers), counts)
    age = generator.integers(7, 86, readers)[reader]
    home = generator.choice(len(BRANCHES), readers, p=_BRANCH_SHARES)
    elsewhere = generator.choice(len(BRANCHES), reader.size, p=_BRANCH_SHARES)
    branch = np.where(generator.random(reader.size) < 0.85, home[reader], elsewhere)
    subject = _subjects(generator, readers, reader)
    days = np.ceil(generator.gamma(2.0, (_USUAL_DAYS - age / 12) / 2)).astype(np.int64)
    day = np.datetime64(_FIRST_DAY) + np.sort(generator.integers(0, _DAYS, reader.size))
    # Shuffle readers; rows remain sorted by day.
    order = generator.permutation(reader.size)
    return pa.table(
        {
            "reader": reader[order] + 1,
            "age": age[order],
            "title": pa.array(_titles(generator, subject)[order]),
            "subject": pa.array(np.array([*SUBJECTS], dtype=object)[subject][order]),
            "branch": pa.array(np.array(BRANCHES, dtype=object)[branch][order]),
            "day": pa.array(day),
            "days_kept": days[order],
            "late": (days[order] > 1.5 * _USUAL_DAYS).astype(np.int64),
        }
    )


def catalogue() -> dict[str, str]:
    """Return the library's catalogue: the public subject of each title.

    >>> catalogue()["Moby-Dick"]
    'Novels'
    """
    return {title: subject for subject, (_, titles) in SUBJECTS.items() for title in titles}


def _subjects(
    generator: np.random.Generator, readers: int, reader: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the subject of each loan, drawn from the taste of its reader."""
    shares = np.array([share for share, _ in SUBJECTS.values()])
    taste = (generator.gamma(_TASTE, size=(readers, len(shares))) + 0.02) * shares
    upto = np.cumsum(taste / taste.sum(axis=1, keepdims=True), axis=1)
    drawn = generator.random((reader.size, 1))
    chosen: NDArray[np.int64] = (drawn > upto[reader]).sum(axis=1)
    return chosen.clip(max=len(shares) - 1)


def _titles(generator: np.random.Generator, subject: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return the title of each loan, the first of a subject twice as often as the second."""
    result = np.empty(subject.size, dtype=object)
    for code, (_, titles) in enumerate(SUBJECTS.values()):
        chosen = subject == code
        popular = 0.5 ** np.arange(len(titles))
        result[chosen] = generator.choice(
            np.array(titles, dtype=object), chosen.sum(), p=popular / popular.sum()
        )
    return result
