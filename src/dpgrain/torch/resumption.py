"""Saving of runs in checkpoints, and their resumption.

A resumed run draws new noise, and includes all steps in its journal: steps after the checkpoint are
lost, because their results may have been seen. The published results therefore never exceed the
charged number of steps, and nothing is charged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpgrain.errors import DataError, ParameterError
from dpgrain.inputs.codes import label_name
from dpgrain.noise import RandomSource, SeededSource, SystemSource
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.checkpoint import Checkpoint, RunPlan
from dpgrain.torch.journal import Journal, records_changed
from dpgrain.torch.library import torch
from dpgrain.torch.local_data import LocalData
from dpgrain.torch.processes import Processes
from dpgrain.torch.randomness import device_rng_states, restore_device_rng
from dpgrain.torch.training_run import Run


def labels_name(labels: Any) -> str | None:
    """Return the name of labels: empty for unnamed labels, None without labels."""
    return None if labels is None else label_name(labels) or ""


def save(
    run: Run,
    plan: RunPlan | None,
    data: LocalData,
    source: CountedSource,
    draws: Any,
    path: Path,
    extra: Mapping[str, Any],
) -> None:
    """Write a checkpoint, and create the journal of the run at the first one."""
    # The state of a private run contains no secrets.
    steps = run.steps.state(secret=not source.private)
    assert plan is not None  # noqa: S101 - a run without a plan has refused to give its state
    place = Journal.path_for(path, plan.run)
    if run.journal is None and source.private:
        run.journal = Journal.create(place, plan.run, run.steps_started, _records_hash(data, plan))
    if run.journal is not None and run.journal.path != place:
        raise ParameterError(
            f"path must be in the folder {str(run.journal.path.parent)!r}, next to the journal of "
            "the run, because all of its checkpoints need the journal.",
            name="path",
        )
    Checkpoint(
        plan=plan,
        done=run.done,
        begun=run.steps_started,
        steps=steps,
        module=run.module.state_dict(),
        optimizer=run.optimizer.state_dict(),
        seeded=None
        if source.seeded is None
        else _generator_states(source.seeded, draws, _records_hash(data, plan)),
        extra=dict(extra),
    ).write(path)


def _records_hash(data: LocalData, plan: RunPlan) -> str:
    """Return the journal's hash of labels and blocks; checkpoints contain the key.

    Each file separately reveals nothing about the data.
    """
    return data.hash(bytes.fromhex(plan.key))


def _generator_states(source: SeededSource, draws: Any, people: str) -> dict[str, Any]:
    """Return the state of a seeded run's generators, which determines all later draws.

    A seeded run has no journal and is not private, so the file also contains the hash of its
    labels.
    """
    # Layers such as dropout use PyTorch's global generators, one per device.
    return {
        "source": source.state(),
        "draws": draws.state(),
        "torch": torch.get_rng_state(),
        "devices": device_rng_states(),
        "people": people,
    }


def noise_source(checkpoint: Checkpoint) -> RandomSource:
    """Return the source of future noise, which a private run never reads from a file."""
    seeded = checkpoint.seeded
    return SystemSource() if seeded is None else SeededSource.from_state(seeded["source"])


def rounds_left(checkpoint: Checkpoint) -> int:
    """Return the charged rounds left; a seeded run repeats incomplete steps."""
    begun = checkpoint.begun if checkpoint.seeded is None else checkpoint.done
    return max(checkpoint.plan.mean.rounds - begun, 0)


def load_states(checkpoint: Checkpoint, module: Any, optimizer: Any) -> None:
    """Load the states of a checkpoint into a network and an optimizer."""
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


def check_labels(plan: RunPlan, guarantee: Guarantee, users: Any, elements: Any) -> None:
    """Reject a resumption if names show other users or another partition."""
    for name, labels, before in (
        ("users", users, plan.users),
        ("elements", elements, plan.elements),
    ):
        if labels_name(labels) != before:
            raise ParameterError(
                f"{name} must be {_label_text(before)}, as when the run began, not "
                f"{_label_text(labels_name(labels))}.",
                name=name,
            )
    saved = plan.guarantee
    if (saved.scope, saved.partition) != (guarantee.scope, guarantee.partition):
        raise ParameterError(
            "dataset must have the same region and partition as when the run began.",
            name="dataset",
        )


def check_journal(processes: Processes, checkpoint: Checkpoint, path: Path) -> None:
    """Require the journal of a private run before anything is charged."""
    if checkpoint.seeded is None:
        run = checkpoint.plan.run
        processes.from_first(lambda: Journal.check(Journal.path_for(path, run), run))


def resume_run(run: Run, data: LocalData, draws: Any, checkpoint: Checkpoint, path: Path) -> None:
    """Restore a run from a checkpoint, including later steps in its journal.

    A private run starts a new noise cycle, which is independent of earlier noise.
    """
    run.steps.load_state(dict(checkpoint.steps))
    seeded, people = checkpoint.seeded, _records_hash(data, checkpoint.plan)
    if seeded is None:
        run.restore_counts(
            checkpoint.done,
            run.processes.from_first(lambda: _counted(run, checkpoint, path, people)),
        )
        return
    if seeded["people"] != people:
        raise records_changed()
    run.restore_counts(checkpoint.done, checkpoint.done)
    draws.load_state(seeded["draws"])
    if run.processes.is_first:
        torch.set_rng_state(seeded["torch"])
        restore_device_rng(seeded.get("devices", ()))


def _counted(run: Run, checkpoint: Checkpoint, path: Path, people: str) -> int:
    """Open the journal, and return the number of begun steps."""
    plan = checkpoint.plan
    journal = Journal(Journal.path_for(path, plan.run), plan.run, people)
    if journal.steps_started < checkpoint.begun:
        raise DataError(
            f"the journal {str(journal.path)!r} lacks steps of the checkpoint, so it is an older "
            "copy and the number of steps is unknown; train again."
        )
    run.journal = journal
    return journal.steps_started


def _label_text(name: str | None) -> str:
    if name is None:
        return "left out"
    return f"a series named {name!r}" if name else "without a name"
