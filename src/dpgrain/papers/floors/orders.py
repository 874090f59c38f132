"""Lower bounds of the papers: orders, without constants and logarithms."""

from __future__ import annotations

import math

from dpgrain import _validate


def mean_order(epsilon: float, n: int, *, dimension: int = 1, records: int = 1) -> float:
    """Return the order √d/(nε√m) of a private mean's error, in bounds of a record.

    Args:
        epsilon: the promised ε.
        n: the number of users.
        dimension: the number of coordinates.
        records: the number of records of each user.

    Raises:
        ParameterError: if a number is out of range.

    Source: user-level learning paper, Cor. 1 and App. C.4. Its Lemma 3 needs a bound on the largest
    coordinate of the mean, not only on its l2 norm. The prior of Prop. 6, uniform on a box, has
    one, so the order is valid.

    >>> mean_order(1.0, 1000, dimension=100), mean_order(1.0, 1000, dimension=100, records=100)
    (0.01, 0.001)
    """
    epsilon, n, records = _checked(epsilon, n, records)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    return math.sqrt(dimension / records) / (n * epsilon)


def convex_order(
    epsilon: float, n: int, *, dimension: int, records: int = 1, strength: float | None = None
) -> float:
    """Return the order 1/√(nm) + √d/(nε√m) of the least convex excess risk, in G·R.

    Args:
        epsilon: the promised ε.
        n: the number of users.
        dimension: the number of coordinates.
        records: the number of records of each user.
        strength: μ, if losses are μ-strongly convex; the order is then 1/μ·(1/(nm) + d/(n²mε²)), in
            G².

    Raises:
        ParameterError: if a number is out of range.

    Source: user-level learning paper, Thm. 6; user-level SCO paper, Thm. 4.11, for the strongly
    convex rate.

    >>> round(convex_order(1.0, 1000, dimension=100, records=100), 4)
    0.0042
    >>> round(convex_order(1.0, 1000, dimension=100, records=100, strength=0.1), 6)
    0.00011
    """
    epsilon, n, records = _checked(epsilon, n, records)
    private = mean_order(epsilon, n, dimension=dimension, records=records)
    if strength is None:
        return 1 / math.sqrt(n * records) + private
    return (1 / (n * records) + private * private) / _validate.positive(strength=strength)


def choice_order(epsilon: float, n: int, hypotheses: int, *, records: int = 1) -> float:
    """Return the order of a private choice's least excess risk, in bounds of the loss.

    Args:
        epsilon: the promised ε, of a pure promise.
        n: the number of users.
        hypotheses: K, the number of hypotheses.
        records: the number of records of each user.

    Raises:
        ParameterError: if a number is out of range.

    Source: user-level learning paper, Thm. 8: √(ln K/(nm)) + ln K/(nε√m).

    >>> [round(choice_order(1.0, 1000, hypotheses), 3) for hypotheses in (2, 1000)]
    [0.027, 0.09]
    """
    epsilon, n, records = _checked(epsilon, n, records)
    names = math.log(_validate.integer(minimum=1, hypotheses=hypotheses))
    return math.sqrt(names / (n * records)) + names / (n * epsilon * math.sqrt(records))


def _checked(epsilon: float, n: int, records: int) -> tuple[float, int, int]:
    """Validate the numbers that all orders use."""
    n = _validate.integer(minimum=1, n=n)
    records = _validate.integer(minimum=1, records=records)
    return _validate.positive(epsilon=epsilon), n, records
