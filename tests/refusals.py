"""What a refusal is, whatever its words: an error of one kind, about one name, in a plain sentence.

What refusals say is asked once, in ``tests/test_errors.py``. Other tests ask whom a refusal is about,
and what tells it from others about the same: a value, or a word that a reader needs.
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
    """Ask that a block raises this kind of error, and no heir of it, about the name.

    Args:
        name: the parameter, or whatever else the sentence begins with.
        words: what stands in the sentence besides, such as the value.
        kind: the kind of error.
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
    """Ask that a block is refused by a budget or a ledger that has no room for a release.

    Args:
        words: what stands in the sentence besides, such as who has no room.
    """
    with pytest.raises(RefusedError) as caught:
        yield caught
    assert caught.value.line is None, caught.value
    assert all(word in str(caught.value) for word in words), f"without {words!r}: {caught.value}"
    in_sentences(caught.value)


@contextmanager
def charged_before(line: int) -> Iterator[pytest.ExceptionInfo[RefusedError]]:
    """Ask that a block is refused by a ledger in which a line has charged the same before."""
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
    """Ask that an error is told in one line, to its full stop."""
    said = str(error)
    assert said.endswith("."), said
    assert not re.search(r"\n|Traceback|<.* object at 0x| {2}", said), said
    assert len(said) <= _LONGEST, said


def refused_when_forked(act: Callable[[], object], *words: str) -> None:
    """Ask that a process which is forked now is refused what it does.

    Args:
        act: what it does.
        words: what stands in the sentence.
    """
    with warnings.catch_warnings():
        # Later Pythons warn of a fork beside threads, which is what is asked for.
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
