"""Arithmetic in many digits that no other thread can change.

mpmath keeps its working precision in one object for the whole process: whoever sets it, in any thread
and in any library, sets it for all. What has to be exact is therefore computed in a context that
belongs to one thread and one precision, and that nobody else holds.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from dpgrain._later import later

mpmath = later("mpmath")

# The constants behind the functions are kept to so many bits, far more than anything here asks for.
_CONSTANT_BITS = 1 << 12

_preparing = threading.Lock()


class _Contexts(threading.local):
    """The contexts of one thread, by their precision."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = {}


_own = _Contexts()


def arithmetic(bits: int) -> Any:
    """mpmath's numbers and functions with so many bits, for the calling thread alone.

    Args:
        bits: the working precision, which must not be set on what is returned.

    >>> str(arithmetic(200).exp(1))[:12]
    '2.7182818284'
    >>> arithmetic(200) is arithmetic(200), arithmetic(200).prec, arithmetic(64).prec
    (True, 200, 64)
    """
    context = _own.of.get(bits)
    if context is None:
        with _preparing:
            _prepared_constants(max(_CONSTANT_BITS, 2 * bits))
        context = mpmath.MPContext()
        context.prec = bits
        _own.of[bits] = context
    return context


@cache
def _prepared_constants(bits: int) -> None:
    """Compute ln 2 and π once to so many bits.

    mpmath stores a constant and its number of bits one after the other, and a thread that reads
    between the two would take one for the other. Once they are stored to more bits than are asked
    for, they are only read.
    """
    mpmath.libmp.ln2_fixed(bits)
    mpmath.libmp.pi_fixed(bits)
