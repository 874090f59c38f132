"""The one JSON document that a command prints where ``--json`` asks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import json_values
from dpgrain._formatting import sentence
from dpgrain._lazy_import import lazy_import
from dpgrain.cli.printing import say
from dpgrain.cli.spelling import spelled_inside

if TYPE_CHECKING:
    from dpgrain.learn import LinearModel, summary
    from dpgrain.means.of_users import MeanOfUsers
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics import printed
    from dpgrain.statistics.release import Release
else:
    printed = lazy_import("dpgrain.statistics.printed")
    summary = lazy_import("dpgrain.learn.summary")

#: The number of the form of these documents: a field that is there keeps its name and its meaning.
FORMAT = 2
#: The words of the command that runs, such as "ledger show".
running: ContextVar[str] = ContextVar("running", default="")


def tell_json(told: Mapping[str, Any], *paths: Path | None) -> None:
    """Print the one JSON document of the command that runs; docs/command-line.md describes it.

    Args:
        told: the fields of its own.
        paths: the files that were written, of which some may be None.
    """
    document = {
        "command": running.get(),
        "format": FORMAT,
        **told,
        "written": [str(path) for path in paths if path is not None],
    }
    say(
        json.dumps(
            json_values(document), ensure_ascii=False, indent=1, default=str, allow_nan=False
        )
    )


def release_as_json(release: Release) -> dict[str, Any]:
    """Return all estimates of a release, an explanation and the guarantee, as JSON's values."""
    meanings = printed.meanings(release)
    del meanings["Privacy"]
    notes = printed.notes(release)[:1] if len(release) else []
    return {
        "statistic": release.statistic.name,
        "estimates_of": release.estimand,
        "covers": release.covers,
        "estimates": release.to_arrow().to_pylist(),
        "meaning": {name: spelled_inside(sentence(text)) for name, text in meanings.items()},
        "notes": [spelled_inside(note) for note in notes],
        "take_care": spelled_inside(release.asked.take_care),
        **promise_as_json(release.guarantee),
    }


def mean_as_json(found: MeanOfUsers, names: Sequence[str]) -> dict[str, Any]:
    """Return a mean of users' vectors with the names of its columns, as JSON's values."""
    told = {name: value for name, value in found.to_dict().items() if name != "guarantee"}
    return {"columns": list(names), **told, **promise_as_json(found.guarantee)}


def model_as_json(model: LinearModel) -> dict[str, Any]:
    """Return the coefficients of a model, what they mean and the promise, as JSON's values."""
    result = summary.coefficients(model)
    return {
        "coefficients": [asdict(row) for row in result.rows],
        "meaning": {name: spelled_inside(said) for name, said in result.meaning.items()},
        "notes": [spelled_inside(note) for note in result.notes[:1]],
        "take_care": " ".join(result.cautions),
        **promise_as_json(model.guarantee_),
    }


def promise_as_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a promise as JSON's values: its facts, and the sentence that people read."""
    return {"guarantee": guarantee.to_dict(), "sentence": str(guarantee)}
