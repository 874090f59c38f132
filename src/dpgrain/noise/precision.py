"""Arithmetic in many digits, safe from changes by other threads.

mpmath stores its working precision in one object per process, so any thread or library that sets it
changes it for all. Exact computations therefore use a context with a fixed precision that belongs
to one thread.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from dpgrain._lazy_import import lazy_import

mpmath = lazy_import("mpmath")

# Bits of the stored constants ln 2 and π, far more than any computation requests.
_CONSTANT_BITS = 1 << 12

_preparing = threading.Lock()


class _Contexts(threading.local):
    """The contexts of one thread, by precision in bits."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = {}


_contexts = _Contexts()


def arithmetic(bits: int) -> Any:
    """Return the calling thread's mpmath context with a fixed precision in bits."""
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
    """Compute ln 2 and π once to the given number of bits."""
    # mpmath stores a constant and its number of bits in two steps, and a thread that reads between
    # them gets a wrong pair. A constant stored with more bits than any request is only read.
    mpmath.libmp.ln2_fixed(bits)
    mpmath.libmp.pi_fixed(bits)
