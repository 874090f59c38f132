"""Checkpoints of private runs, for resuming in another process.

The file of a private run contains public numbers and published results, but neither data nor noise.
The journal of the run, in the same folder, counts the steps after the checkpoint.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from dpgrain import _validate
from dpgrain._files import atomic_write, flush_to_disk
from dpgrain.errors import DataError, ParameterError
from dpgrain.means import ClippedMean
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.library import torch
from dpgrain.units import Level

# Version of the file format.
_FORMAT = 2


@dataclass(frozen=True)
class RunPlan:
    """Public numbers of a run, with the key of the hash of its labels (hexadecimal)."""

    run: str
    level: Level
    max_elements: int | None
    mean: ClippedMean
    rule: AdaptiveNorm | None
    loss_reduction: Literal["mean", "sum"]
    guarantee: Guarantee
    users: str | None  # names of labels: empty if unnamed, None without labels
    elements: str | None
    key: str

    def __post_init__(self) -> None:
        _validate.check_fields(self)

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"mean": asdict(self.mean), "guarantee": self.guarantee.to_dict()}
        if self.rule is not None:
            values["rule"] = asdict(self.rule)
        return json.dumps(values, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> RunPlan:
        """Read a plan written by :meth:`to_json`."""
        return _validate.read_fields(
            RunPlan, _validate.parse_json(text, "a checkpoint"), "a checkpoint"
        )


@dataclass(frozen=True)
class Checkpoint:
    """State of a run between two steps; ``seeded`` is None for a private run."""

    plan: RunPlan
    done: int
    begun: int
    steps: Mapping[str, Any]
    module: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    seeded: Mapping[str, Any] | None
    extra: Mapping[str, Any]

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"plan": self.plan.to_json(), "format": _FORMAT}
        with atomic_write(path) as part:
            torch.save(values, part)
            _check_plain(part)
            flush_to_disk(part)
        flush_to_disk(path.parent)

    @staticmethod
    def read(path: Path) -> Checkpoint:
        """Read a file written by :func:`write`, without running code in it."""
        # torch.save writes a zip file, which has its directory at the end unless it is truncated.
        try:
            if not zipfile.is_zipfile(path):
                raise _unreadable(path)
            values = torch.load(path, map_location="cpu", weights_only=True)
        except (
            OSError,
            RuntimeError,
            EOFError,
            pickle.UnpicklingError,
            *_validate.MISFIT_ERRORS,
        ) as error:
            # Corrupted bytes can raise an error anywhere in the reader.
            raise _unreadable(path) from error
        names = {part.name for part in fields(Checkpoint)}
        if not isinstance(values, dict) or values.keys() != {*names, "format"}:
            raise _unreadable(path)
        if values.pop("format") != _FORMAT:
            raise DataError(
                f"{str(path)!r} was written by another version of dpgrain; resume it with that "
                "version."
            )
        return Checkpoint(**{**values, "plan": RunPlan.from_json(values["plan"])})


def _check_plain(part: Path) -> None:
    """Reject values that could not be read again without running code of the file."""
    try:
        torch.load(part, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ParameterError(
            "extra and the states of module and optimizer must contain only tensors, numbers, "
            "text, lists and dicts, because a file with other objects could run code when it is "
            "read.",
            name="extra",
        ) from error


def _unreadable(path: Path) -> DataError:
    return DataError(
        f"{str(path)!r} is not a readable checkpoint of a private run; pass a path written by "
        "PrivacyEngine.save."
    )
