"""Public lists of items, read from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._files import exists, record_input
from dpgrain.errors import AccessError, DataError, ParameterError
from dpgrain.inputs import labels
from dpgrain.tables.elements import read_file
from dpgrain.tables.table import UserTable


def read_domain(stated: Any, keys: Sequence[str], rows: UserTable, folder: Path = Path()) -> Any:
    """Return the public items of the keys: a list, a file, or one of these for each key."""
    if isinstance(stated, str):
        return read_public_list(folder / stated, keys, rows)
    if isinstance(stated, dict):
        return {
            key: read_public_list(folder / values, [key], rows)
            if isinstance(values, str)
            else values
            for key, values in stated.items()
        }
    if isinstance(stated, list):
        return [tuple(item) if isinstance(item, list) else item for item in stated]
    raise ParameterError(
        "domain must be a file, a list, or a table of them by column, not "
        f"{_validate.describe(stated)}."
    )


def read_public_list(path: Path, keys: Sequence[str], rows: UserTable) -> list[Any]:
    """Return the public items of a Parquet, CSV or text file, in the types of the keys."""
    if len(keys) == 1:
        return _first_column(path, keys[0] in rows.schema and rows.is_integer(keys[0]))
    return _tuples(path, keys, rows)


def _tuples(path: Path, keys: Sequence[str], rows: UserTable) -> list[tuple[Any, ...]]:
    """Return the rows of a file with all key columns."""
    result = read_file(path)
    missing = [key for key in keys if key not in result.column_names]
    if missing:
        raise ParameterError(
            f"The domain {str(path)!r} has no column {missing[0]!r}; pass a file with "
            f"{', '.join(keys)}, or COLUMN=FILE."
        )
    columns = [_typed(result.column(key).to_pylist(), rows.is_integer(key), path) for key in keys]
    return list(zip(*columns, strict=True))


def _first_column(path: Path, integers: bool) -> list[Any]:
    """Return the first column of a Parquet or CSV file, or the lines of a text file."""
    if not exists(path):
        raise AccessError(
            f"The domain {str(path)!r} is not a file; write its items to a text file, one per "
            "line, and pass its path."
        )
    if path.suffix.lower() in (".parquet", ".csv"):
        return _typed(read_file(path).column(0).to_pylist(), integers, path)
    record_input(path)
    try:
        # Some editors write an encoding mark before the first item.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The domain {str(path)!r} cannot be read as UTF-8 text; save it as UTF-8."
        ) from error
    return _typed([line for line in lines if line], integers, path)


def _typed(values: list[Any], integers: bool, path: Path) -> list[Any]:
    if not integers:
        return values
    result = [labels.as_integer(value) for value in values]
    if None in result:
        wrong = values[result.index(None)]
        raise ParameterError(
            f"The domain {str(path)!r} must contain integers, like the item column, not "
            f"{_validate.describe(wrong)}."
        )
    return result
