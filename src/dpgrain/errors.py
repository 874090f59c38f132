"""The exceptions of dpgrain.

::

    DpgrainError
    ├── ParameterError     a parameter is wrong (also a ValueError)
    │   └── RefusedError   a budget or a ledger refuses a release, without a charge
    ├── SchemaError        the table lacks a column, or a column has the wrong type (also a ValueError)
    ├── DataError          a source cannot be read, or the disk is full (also an OSError)
    │   └── AccessError    a file, folder or ledger is missing, or its permissions are
    ├── MissingPackageError  a package of an extra is not installed (also an ImportError)
    └── RunEnded           a run of private means published its early end

Errors come from schema and public parameters only: an error that depends on one person's rows
would itself be a release. Bad values in rows follow the fixed rules of :mod:`dpgrain.tables`.
"""

from __future__ import annotations

from typing import NoReturn


class DpgrainError(Exception):
    """Base of all errors of dpgrain; messages state the problem and the remedy.

    >>> import dpgrain as dg
    >>> try:
    ...     dg.read("visits.parquet", threads=0)
    ... except dg.DpgrainError as error:
    ...     print(error)
    threads must be an integer of at least 1, not 0.
    """


class _RequestError(DpgrainError, ValueError):
    """A wrong request, possibly about one parameter.

    Args:
        message: the sentence, which begins with the name of the parameter, if there is one.
        name: the parameter; empty where the sentence is about several.
    """

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name

    def about(self, other: str) -> str:
        """Return the message with another name of the parameter, such as an option.

        >>> ParameterError("n_users must be at least 1.", name="n_users").about("--n-users")
        '--n-users must be at least 1.'
        """
        return other + str(self).removeprefix(self.name)


class ParameterError(_RequestError):
    """An invalid value of the parameter ``name``.

    >>> import dpgrain as dg
    >>> try:
    ...     dg.budget(epsilon=-1.0)
    ... except dg.ParameterError as error:
    ...     print(error, error.name, isinstance(error, ValueError))
    epsilon must be positive and finite, not -1.0. epsilon True
    """


class RefusedError(ParameterError):
    """A budget's or a ledger's refusal of a well-formed release; nothing is charged.

    The remaining budget is too small, or the same release was published before.

    Args:
        message: the sentence.
        name: the parameter; empty where the sentence is about several.
        line: the ledger line of the same release; None for other reasons.
        missing: the outputs that an earlier, charged run did not write.
        folders: the output folders of that run, if the ledger has them.
        spent: True if the remaining budget is too small.

    >>> import dpgrain as dg
    >>> import pyarrow as pa
    >>> visits = dg.read(pa.table({"who": [1]}), user="who")
    >>> with dg.budget(1.0):
    ...     try:
    ...         dg.count(visits, unit=dg.User(), epsilon=2.0)
    ...     except dg.RefusedError as error:
    ...         print(str(error).partition(":")[0])
    the budget ε = 1, δ = 0 has no room for this release
    """

    def __init__(
        self,
        message: str,
        *,
        name: str = "",
        line: int | None = None,
        missing: tuple[str, ...] = (),
        folders: tuple[str, ...] = (),
        spent: bool = False,
    ) -> None:
        super().__init__(message, name=name)
        self.line, self.missing, self.folders, self.spent = line, missing, folders, spent


class SchemaError(_RequestError):
    """A missing column, or a column of an unsupported type.

    >>> import dpgrain as dg
    >>> import pyarrow as pa
    >>> try:
    ...     dg.read(pa.table({"who": [1], "page": ["a"]}), user="whom")
    ... except dg.SchemaError as error:
    ...     print(error)
    user 'whom' is not a column of the table; it has who, page.
    """


class DataError(DpgrainError, OSError):
    """A source could not be read, or a result could not be written.

    >>> import dpgrain as dg
    >>> try:
    ...     dg.read("no-such-folder/visits.csv", user="who")
    ... except dg.DataError as error:
    ...     print(error, isinstance(error, OSError))
    The file 'no-such-folder/visits.csv' does not exist; check the path. True
    """


class AccessError(DataError):
    """A missing, damaged or forbidden file, folder, database or ledger, or one of another type.

    A person must act: waiting repairs nothing.

    >>> import dpgrain as dg
    >>> try:
    ...     dg.Ledger("no-such-folder/visits.ledger")
    ... except dg.AccessError as error:
    ...     print(str(error).partition(";")[0])
    'no-such-folder/visits.ledger' is not a file
    """


class MissingPackageError(DpgrainError, ImportError):
    """A package is not installed; the message has the command that installs it.

    >>> issubclass(MissingPackageError, ImportError)
    True
    """


class DeltaWarning(UserWarning):
    """A δ so large that a release may publish one person's data outright with substantial probability.

    >>> import warnings
    >>> import dpgrain as dg
    >>> import pyarrow as pa
    >>> visits = dg.read(pa.table({"who": [1, 2]}), user="who", n_users=2)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = dg.count(visits, unit=dg.User(), epsilon=1.0, delta=0.4)
    >>> caught[0].category.__name__, str(caught[0].message).partition(":")[0]
    ('DeltaWarning', 'delta = 0.4 is large for 2 users')
    """


class EpsilonWarning(UserWarning):
    """An ε above 10, a weak guarantee; shown once per process.

    >>> issubclass(EpsilonWarning, UserWarning)
    True
    """


class CareWarning(UserWarning):
    """A result that is probably inaccurate, according to public or published numbers.

    >>> import warnings
    >>> import numpy as np
    >>> from dpgrain.learn import LinearRegression
    >>> model = LinearRegression(intervals=0.2, n_users=100, epsilon=1.0, random_state=0)
    >>> X, users = np.ones((100, 3)), np.arange(100)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(X, X[:, 0], users=users)
    >>> caught[0].category.__name__, str(caught[0].message).partition(":")[0]
    ('CareWarning', 'intervals will probably have no ends')
    """


class EndedWarning(UserWarning):
    """A fit that published its end before the last round.

    >>> import warnings
    >>> import numpy as np
    >>> from dpgrain.learn import LinearRegression
    >>> from dpgrain.papers import Known, UserLevelSgd
    >>> recipe = UserLevelSgd(Known(radius=1e-6), rounds=5)
    >>> model = LinearRegression(algorithm=recipe, n_users=500, random_state=0)
    >>> X, users = np.linspace(-1, 1, 500)[:, None], np.arange(500)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(X, X[:, 0], users=users)
    >>> caught[-1].category.__name__, str(caught[-1].message).partition(",")[0]
    ('EndedWarning', 'the run ended in round 1 of 5 and returned the starting point')
    """


class ScoreWarning(UserWarning):
    """An exact score of a model, which no (ε, δ) covers.

    >>> import warnings
    >>> import numpy as np
    >>> from dpgrain.learn import LinearRegression
    >>> X = np.ones((8, 1))
    >>> model = LinearRegression(rounds=1, clip=1.0, n_users=8).fit(X, X[:, 0], users=range(8))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.score(X, X[:, 0])
    >>> [warning.category.__name__ for warning in caught]
    ['ScoreWarning']
    """


class RunEnded(DpgrainError):  # noqa: N818 - it is no error: a run may end
    """The published early end of a run of private means; earlier results remain valid."""


def reraise_keyboard_interrupt(error: BaseException) -> None:
    """Raise a KeyboardInterrupt again; ignore any other exception."""
    # A user's function may raise any exception on a record, including ``SystemExit`` and panics of
    # libraries, and each would reveal the record.
    if type(error) is KeyboardInterrupt:
        raise error


def raise_without_context(error: DpgrainError) -> NoReturn:
    """Raise an error without the handled one, which may quote a row or an address."""
    # ``from None`` only hides the context: tools that report errors still show it.
    try:
        raise error from None
    finally:
        error.__context__ = None
