"""Writing checkpoints of a run, and going on from one.

A run goes on with fresh noise, and counts all steps that its journal knows of: those after the
checkpoint are lost, since they may have been seen. So all that is ever published of a run is of as many
steps as were charged, and nothing is charged again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dpgrain.errors import DataError, ParameterError
from dpgrain.inputs.codes import name_of
from dpgrain.means import ClippedMean
from dpgrain.noise import SeededSource, Source, SystemSource
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.asked import Asked
from dpgrain.torch.checkpoint import Checkpoint, Plan
from dpgrain.torch.held import Held
from dpgrain.torch.journal import Journal, other_people
from dpgrain.torch.library import torch
from dpgrain.torch.processes import Processes
from dpgrain.torch.randomness import go_on_on_devices, on_devices
from dpgrain.torch.run import Run
from dpgrain.units import User


def labels_name(labels: Any) -> str | None:
    """Return the name of labels; empty where they have none, None where there are no labels."""
    return None if labels is None else name_of(labels) or ""


def plan_of(
    asked: Asked,
    guarantee: Guarantee,
    loss_reduction: Literal["mean", "sum"],
    users: Any,
    elements: Any,
) -> Plan | None:
    """Return the public plan of a new run; None of one that cannot go on elsewhere.

    Args:
        asked: what is asked for.
        guarantee: the promise, charged.
        loss_reduction: how the loop's loss adds up the losses of records.
        users: the labels of users, as passed.
        elements: the labels of elements, as passed.
    """
    if not isinstance(asked.mean, ClippedMean):
        return None
    unit = asked.promise.unit
    return Plan(
        secrets.token_hex(8),
        unit.level,
        unit.max_elements if isinstance(unit, User) else None,
        asked.mean,
        asked.rule,
        loss_reduction,
        guarantee,
        labels_name(users),
        labels_name(elements),
        Held.key().hex(),
    )


def save(
    run: Run,
    plan: Plan | None,
    held: Held,
    source: Source,
    draws: Any,
    path: Path,
    extra: Mapping[str, Any],
) -> None:
    """Write a checkpoint, and begin the journal of the run at the first one.

    Args:
        run: the run, between two steps.
        plan: what is public about it.
        held: the records and their labels.
        source: where its draws and noise come from.
        draws: what draws its blocks.
        path: the file.
        extra: what the caller adds.

    Raises:
        ParameterError: if the run has a journal in another folder, or cannot go on elsewhere.
        DataError: if a file cannot be written.
    """
    # Nothing that is secret is asked for where the run is private.
    steps = run.steps.state(secret=not source.private)
    assert plan is not None  # noqa: S101 - a run without a plan has refused to give its state
    place = Journal.beside(path, plan.run)
    if run.journal is None and source.private:
        run.journal = Journal.create(place, plan.run, run.begun, _people(held, plan))
    if run.journal is not None and run.journal.path != place:
        raise ParameterError(
            f"path must be in the folder {str(run.journal.path.parent)!r}, next to the journal of "
            "the run, because all of its checkpoints need the journal.",
            name="path",
        )
    Checkpoint(
        plan=plan,
        done=run.done,
        begun=run.begun,
        steps=steps,
        module=run.module.state_dict(),
        optimizer=run.optimizer.state_dict(),
        seeded=_stand(source, draws, _people(held, plan))
        if isinstance(source, SeededSource)
        else None,
        extra=dict(extra),
    ).write(path)


def _people(held: Held, plan: Plan) -> str:
    """Return the hash of labels and blocks, which is in the journal, while its key is in checkpoints.

    So neither file alone says anything of the data.
    """
    return held.hash(bytes.fromhex(plan.key))


def _stand(source: SeededSource, draws: Any, people: str) -> dict[str, Any]:
    """Return where the sources of a seeded run stand, from which all that follows can be predicted.

    It has no journal, and nothing of it is private: the hash of its labels is in the file.
    """
    # Layers such as dropout draw from PyTorch's own generators, one for each device.
    return {
        "source": source.state(),
        "draws": draws.state(),
        "torch": torch.get_rng_state(),
        "devices": on_devices(),
        "people": people,
    }


def source_of(checkpoint: Checkpoint) -> Source:
    """Return where the noise of the steps to come is drawn from: never from what was in a file.

    A seeded run, which is not private, draws what it would have drawn.
    """
    seeded = checkpoint.seeded
    return SystemSource() if seeded is None else SeededSource.at(seeded["source"])


def load(checkpoint: Checkpoint, module: Any, optimizer: Any) -> None:
    """Put the states of a checkpoint into a network and an optimizer.

    Raises:
        ParameterError: if they are others than those that were saved.
    """
    try:
        module.load_state_dict(checkpoint.module)
    except RuntimeError as error:
        raise ParameterError(
            "module must have the same parameters and buffers as the saved one.", name="module"
        ) from error
    try:
        optimizer.load_state_dict(checkpoint.optimizer)
    except (ValueError, KeyError) as error:
        raise ParameterError(
            "optimizer must have the saved type, with the same groups of parameters.",
            name="optimizer",
        ) from error


def check_alike(plan: Plan, guarantee: Guarantee, users: Any, elements: Any) -> None:
    """Refuse to go on about other people, or by another partition, as far as names show.

    Args:
        plan: what was public about the run.
        guarantee: the guarantee that it would have if it began now.
        users: the labels of users that are passed.
        elements: the labels of elements that are passed.

    Raises:
        ParameterError: if labels have other names, or records of another region are read.
    """
    for name, labels, before in (
        ("users", users, plan.users),
        ("elements", elements, plan.elements),
    ):
        if labels_name(labels) != before:
            raise ParameterError(
                f"{name} must be {_said(before)}, as when the run began, not "
                f"{_said(labels_name(labels))}.",
                name=name,
            )
    saved = plan.guarantee
    if (saved.scope, saved.partition) != (guarantee.scope, guarantee.partition):
        raise ParameterError(
            "dataset must have the same region and partition as when the run began.",
            name="dataset",
        )


def check_there(processes: Processes, checkpoint: Checkpoint, path: Path) -> None:
    """Refuse to go on without the journal of a private run, before anything is charged.

    Args:
        processes: the processes of the run.
        checkpoint: where the run stood.
        path: the file of the checkpoint, beside which the journal lies.

    Raises:
        DataError: if the journal is missing, or another one.
    """
    if checkpoint.seeded is None:
        run = checkpoint.plan.run
        processes.told(lambda: Journal.check(Journal.beside(path, run), run))


def go_on(run: Run, held: Held, draws: Any, checkpoint: Checkpoint, path: Path) -> None:
    """Put a run where a checkpoint left it, and count the steps made since.

    Args:
        run: the run, of which no step was made.
        held: the records and their labels.
        draws: what draws its blocks.
        checkpoint: where it stood.
        path: the file of the checkpoint, beside which the journal lies.

    Raises:
        DataError: if the journal is missing, is another one, or lacks steps that the checkpoint has.
        ParameterError: if users, elements or the number of records are others than when it began.

    A private run begins a cycle of turns anew, with noise that knows of none before.
    """
    run.steps.load_state(dict(checkpoint.steps))
    seeded, people = checkpoint.seeded, _people(held, checkpoint.plan)
    if seeded is None:
        run.stand(
            checkpoint.done, run.processes.told(lambda: _counted(run, checkpoint, path, people))
        )
        return
    if seeded["people"] != people:
        raise other_people()
    run.stand(checkpoint.done, checkpoint.done)
    draws.load_state(seeded["draws"])
    if run.processes.first:
        torch.set_rng_state(seeded["torch"])
        go_on_on_devices(seeded.get("devices", ()))


def _counted(run: Run, checkpoint: Checkpoint, path: Path, people: str) -> int:
    """Open the journal, and return how many steps were begun."""
    plan = checkpoint.plan
    journal = Journal(Journal.beside(path, plan.run), plan.run, people)
    if journal.begun < checkpoint.begun:
        raise DataError(
            f"the journal {str(journal.path)!r} lacks steps of the checkpoint, so it is an older "
            "copy and the number of steps is unknown; train again."
        )
    run.journal = journal
    return journal.begun


def _said(name: str | None) -> str:
    if name is None:
        return "left out"
    return f"a series named {name!r}" if name else "without a name"
