"""Hashes that identify a release, and how to compute them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from dpgrain._types import FloatArray
    from dpgrain.learn import LinearModel
    from dpgrain.means.of_users import MeanOfUsers
    from dpgrain.statistics.release import Release

#: Name, SHA-256 hash, and an expression that computes it.
Check: TypeAlias = tuple[str, str, str]


def check_of_release(name: str, release: Release) -> Check:
    """Return the hash of a release of a table."""
    return (name, release.hash, "dpgrain.Release.load(path).hash")


def check_of_model(name: str, model: LinearModel) -> Check:
    """Return the hash of the coefficients of a fitted model."""
    how = "hashlib.sha256(numpy.append(model.coef_, model.intercept_).astype('<f8')).hexdigest()"
    return (name, _hash(np.append(model.coef_, model.intercept_)), how)


def check_of_mean(name: str, mean: MeanOfUsers) -> Check:
    """Return the hash of a per-user mean."""
    return (name, _hash(mean.value), "hashlib.sha256(mean.value.astype('<f8')).hexdigest()")


def _hash(numbers: FloatArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).hexdigest()
