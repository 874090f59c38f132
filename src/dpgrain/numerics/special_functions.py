"""SciPy's special functions, loaded without unused parts of NumPy.

Loading `scipy.special` copies all public names of NumPy. This makes NumPy load its tools for tests,
Fortran and polynomials, which takes half of the time. Lazy modules replace these tools during the
import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dpgrain._lazy_import import lazy_import

_TOOLS = ("ctypeslib", "f2py", "ma", "polynomial", "testing")


@contextmanager
def _tools_lazy() -> Iterator[None]:
    absent = [name for name in _TOOLS if f"numpy.{name}" not in sys.modules]
    for name in absent:
        setattr(np, name, lazy_import(f"numpy.{name}"))
    try:
        yield
    finally:
        for name in absent:
            # A module loaded in the meantime is NumPy's own again.
            if f"numpy.{name}" not in sys.modules:
                delattr(np, name)


with _tools_lazy():
    from scipy.special import (
        bdtr,
        bdtrc,
        erfcx,
        gammaln,
        log_ndtr,
        ndtr,
        ndtri,
        ndtri_exp,
    )

__all__ = ["bdtr", "bdtrc", "erfcx", "gammaln", "log_ndtr", "ndtr", "ndtri", "ndtri_exp"]
