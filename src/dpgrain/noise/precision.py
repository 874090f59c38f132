"""Arithmetic in many digits, safe from changes by other threads.

mpmath keeps its working precision in one object for the whole process: any thread and any library
that sets it sets it for all. Exact computations therefore run in a context that belongs to one thread
and has one precision.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from dpgrain._later import later

mpmath = later("mpmath")

# Bits to which the constants behind the functions are kept, far more than anything asks for.
_CONSTANT_BITS = 1 << 12

_preparing = threading.Lock()


class _Contexts(threading.local):
    """The contexts of one thread, by their precision in bits."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = {}


_contexts = _Contexts()


def arithmetic(bits: int) -> Any:
    """Return mpmath's numbers and functions at a precision, for the calling thread alone.

    Args:
        bits: the working precision in bits; callers must not change that of the returned context.

    >>> str(arithmetic(200).exp(1))[:12]
    '2.7182818284'
    >>> arithmetic(200) is arithmetic(200), arithmetic(200).prec, arithmetic(64).prec
    (True, 200, 64)
    """
    context = _contexts.of.get(bits)
    if context is None:
        with _preparing:
            _prepared_constants(max(_CONSTANT_BITS, 2 * bits))
        context = mpmath.MPContext()
        context.prec = bits
        _contexts.of[bits] = context
    return context


@cache
def _prepared_constants(bits: int) -> None:
    """Compute ln 2 and π once to the given number of bits.

    mpmath stores a constant and its number of bits one after the other, and a thread that reads in
    between gets a constant with the wrong number of bits. Once a constant is stored to more bits than
    are ever asked for, it is only read.
    """
    mpmath.libmp.ln2_fixed(bits)
    mpmath.libmp.pi_fixed(bits)
