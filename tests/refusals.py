"""Errors of the library regardless of their text: one type, one name, one plain sentence.

The texts of errors are checked once, in ``tests/test_errors.py``. Other tests check the subject of
an error,
and its difference from others about the same: a value, or a word for the reader.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpgrain.errors import DpgrainError, ParameterError, RefusedError

# A message is so long at most, in characters.
_LONGEST = 700


@contextmanager
def refuses(
    name: str, *words: str, kind: type[DpgrainError] = ParameterError
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Assert that a block raises exactly this type of error about the name.

    Args:
        name: the parameter, or another beginning of the message.
        words: other parts of the message, such as the value.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind, error
    assert subject(error, name), f"not about {name!r}: {error}"
    assert all(word in str(error) for word in words), f"without {words!r}: {error}"
    in_sentences(error)


@contextmanager
def no_room(*words: str) -> Iterator[pytest.ExceptionInfo[RefusedError]]:
    """Assert that a budget or a ledger rejects a block because a release does not fit.

    Args:
        words: other parts of the message, such as the budget's name.
    """
    with pytest.raises(RefusedError) as caught:
        yield caught
    assert caught.value.line is None, caught.value
    assert all(word in str(caught.value) for word in words), f"without {words!r}: {caught.value}"
    in_sentences(caught.value)


@contextmanager
def charged_before(line: int) -> Iterator[pytest.ExceptionInfo[RefusedError]]:
    with pytest.raises(RefusedError) as caught:
        yield caught
    assert caught.value.line == line, caught.value
    in_sentences(caught.value)


def subject(error: BaseException, name: str) -> bool:
    """Whether an error is about a name: it knows the parameter, or its sentence begins with it."""
    known = getattr(error, "name", "")
    begins = re.match(rf"(the )?['\"]?{re.escape(name)}(?!\w)", str(error), re.IGNORECASE)
    return known == name if known else begins is not None


def in_sentences(error: BaseException) -> None:
    """Assert that an error is one line, up to its full stop."""
    said = str(error)
    assert said.endswith("."), said
    assert not re.search(r"\n|Traceback|<.* object at 0x| {2}", said), said
    assert len(said) <= _LONGEST, said


def refused_when_forked(act: Callable[[], object], *words: str) -> None:
    """Assert that an action of a process forked now is rejected."""
    with warnings.catch_warnings():
        # Later Pythons warn about a fork with threads, which is intended here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        said = "nothing was refused"
        try:
            act()
        except ParameterError as error:
            said = str(error)
        finally:
            os._exit(0 if all(word in said for word in words) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"not refused with {words!r}"
