"""The JSON document that a command prints with ``--json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._files import json_values
from dpgrain._formatting import sentence
from dpgrain._lazy_import import lazy_import
from dpgrain.cli.printing import as_json, say, written
from dpgrain.cli.spelling import spelled_inside

if TYPE_CHECKING:
    from dpgrain.learn import LinearModel
    from dpgrain.means.user_mean import MeanOfUsers
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics.release import Release
    from dpgrain.words import fit_text
    from dpgrain.words import release_text as formatting
else:
    formatting = lazy_import("dpgrain.words.release_text")
    fit_text = lazy_import("dpgrain.words.fit_text")

#: Version of the format: within one version, fields keep their names and column_meanings.
FORMAT = 2
#: Words of the running command, such as "ledger show".
running: ContextVar[str] = ContextVar("running", default="")


def finish(
    fields: Callable[[], Mapping[str, Any]], *paths: Path | None, list_files: bool = True
) -> None:
    """Print the written files of the running command, or its document with ``--json``."""
    if as_json.get():
        print_json(fields(), *paths)
    elif list_files:
        written(*paths)


def print_json(fields: Mapping[str, Any], *paths: Path | None) -> None:
    """Print the document of the running command: common fields, its own, and written files."""
    document = {
        "command": running.get(),
        "format": FORMAT,
        **fields,
        "written": [str(path) for path in paths if path is not None],
    }
    values = json_values(document)
    text = json.dumps(values, ensure_ascii=False, indent=1, default=str, allow_nan=False)
    say(text, document=True)


def release_as_json(release: Release) -> dict[str, Any]:
    """Return all estimates of a release, an explanation and the guarantee as JSON values."""
    column_meanings = formatting.column_meanings(release)
    notes = formatting.notes(release)[:1] if len(release) else []
    return {
        "statistic": release.statistic.name,
        "estimates_of": release.estimand,
        "covers": release.covers,
        "estimates": release.to_arrow().to_pylist(),
        "meaning": {name: spelled_inside(sentence(text)) for name, text in column_meanings.items()},
        "notes": [spelled_inside(note) for note in notes],
        "take_care": spelled_inside(formatting.all_warnings(release)),
        **guarantee_as_json(release.guarantee),
    }


def mean_as_json(mean: MeanOfUsers, names: Sequence[str]) -> dict[str, Any]:
    """Return a per-user mean with the names of its columns as JSON values."""
    fields = {name: value for name, value in mean.to_dict().items() if name != "guarantee"}
    return {"columns": list(names), **fields, **guarantee_as_json(mean.guarantee)}


def model_as_json(model: LinearModel) -> dict[str, Any]:
    """Return the coefficients of a model, their meaning and the guarantee as JSON values."""
    result = fit_text.coefficients(model)
    return {
        "coefficients": [asdict(row) for row in result.rows],
        "meaning": {name: spelled_inside(text) for name, text in result.explanations.items()},
        "notes": [spelled_inside(note) for note in result.notes[:1]],
        "take_care": " ".join(result.cautions),
        **guarantee_as_json(model.guarantee_),
    }


def guarantee_as_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as JSON values and as a sentence."""
    return {"guarantee": guarantee.to_dict(), "sentence": str(guarantee)}
