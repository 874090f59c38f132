"""Checkpoints: everything for a private run to go on after its process has ended.

The file of a private run is made of public numbers and of what steps have published; nothing of the
data is in it, and nothing of the noise. Beside it lies the journal of the run, which counts the steps
that were made after the file was written.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from dpgrain import _fields
from dpgrain._files import on_disk, whole_file
from dpgrain.errors import DataError, ParameterError
from dpgrain.means import ClippedMean
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.adaptive import AdaptiveNorm
from dpgrain.torch.library import torch
from dpgrain.units import Level

# Version of the format of files.
_FORMAT = 2


@dataclass(frozen=True)
class Plan:
    """The public numbers of a run.

    Args:
        run: the id of the run.
        level: the unit that is protected.
        max_elements: the number of elements that are kept of each user; None for all.
        mean: rounds, rate, clipping bound, noise and divisor.
        rule: how the clipping bound is found; None where it is stated.
        loss_reduction: how the loop's loss adds up the losses of records.
        guarantee: the promise, with the lines of ledgers in which the run was charged.
        users: the name of the users' labels; empty without a name, None for one user per record.
        elements: the name of the elements' labels; empty without a name, None where there are none.
        key: the key of the hash of all labels, in hexadecimals; the hash itself is in the journal.
    """

    run: str
    level: Level
    max_elements: int | None
    mean: ClippedMean
    rule: AdaptiveNorm | None
    loss_reduction: Literal["mean", "sum"]
    guarantee: Guarantee
    users: str | None
    elements: str | None
    key: str

    def __post_init__(self) -> None:
        _fields.check(self)

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"mean": asdict(self.mean), "guarantee": self.guarantee.to_dict()}
        if self.rule is not None:
            values["rule"] = asdict(self.rule)
        return json.dumps(values, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan from :meth:`to_json`.

        Raises:
            ParameterError: if the text does not describe a plan.
        """
        return _fields.read(Plan, _fields.loads(text, "a checkpoint"), "a checkpoint")


@dataclass(frozen=True)
class Checkpoint:
    """A run between two steps.

    Args:
        plan: what is public about the run.
        done: how many steps the parameters have made.
        begun: how many steps were begun when the file was written.
        steps: what steps keep from one to the next: of a private run what they have published.
        module: the state of the network.
        optimizer: the state of the optimizer.
        seeded: where the sources of a seeded run stand, which is not private; None for a private run.
        extra: what the caller has added.
    """

    plan: Plan
    done: int
    begun: int
    steps: Mapping[str, Any]
    module: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    seeded: Mapping[str, Any] | None
    extra: Mapping[str, Any]

    def write(self, path: Path) -> None:
        """Write the file whole, or leave the old one.

        Raises:
            DataError: if it cannot be written.
            ParameterError: if ``extra`` holds more than tensors, plain values, lists and dicts.
        """
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"plan": self.plan.to_json(), "format": _FORMAT}
        with whole_file(path) as part:
            torch.save(values, part)
            _check_plain(part)
            on_disk(part)
        on_disk(path.parent)

    @staticmethod
    def read(path: Path) -> Checkpoint:
        """Read a file of :func:`write`; no code in it is run.

        Raises:
            DataError: if the file cannot be read, is no checkpoint, or another version has written it.
        """
        # What torch.save writes is a zip file, which has its end where nothing was cut off.
        try:
            if not zipfile.is_zipfile(path):
                raise _unreadable(path)
            values = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, *_fields.MISFITS) as error:
            # Bytes that were changed are met at any place of the reader.
            raise _unreadable(path) from error
        names = {part.name for part in fields(Checkpoint)}
        if not isinstance(values, dict) or values.keys() != {*names, "format"}:
            raise _unreadable(path)
        if values.pop("format") != _FORMAT:
            raise DataError(
                f"{str(path)!r} was written by another version of dpgrain; resume it with that "
                "version."
            )
        return Checkpoint(**{**values, "plan": Plan.from_json(values["plan"])})


def _check_plain(part: Path) -> None:
    """Refuse what could be written, but not be read again without running code of the file."""
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
