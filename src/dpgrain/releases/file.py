"""Reading and validation of release files; of the table only the schema is read."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._files import check_folder, check_outputs, check_page, guarantee_path, record_input
from dpgrain.errors import AccessError, DpgrainError, ParameterError, SchemaError
from dpgrain.publishing import Query
from dpgrain.publishing.parameters import COLUMNS, Parameter, parameters_of
from dpgrain.releases.functions import (
    FUNCTIONS,
    check_arguments,
    endings,
    keys_of_function,
    query_of,
)
from dpgrain.releases.keys import check_keys, keys_of, wrong
from dpgrain.releases.table_options import OPTIONS, TableOption, Tables, keys, read_keys
from dpgrain.releases.validation_errors import ValidationErrors
from dpgrain.tables.expression import is_expression
from dpgrain.tables.table import UserTable
from dpgrain.units import Element, Level, Record, Relation, Unit, User


@dataclass(frozen=True)
class BudgetSection:
    """The table ``[budget]``: the promise of all releases of a file together."""

    unit: Level | None = None
    element: str | None = None
    max_elements: int | None = None
    relation: Relation = "zero_out"
    epsilon: float | None = None
    delta: float = 0.0
    leak: float | None = None


@dataclass(frozen=True)
class ReleaseEntry:
    """One table ``[release.NAME]``."""

    name: str
    # The key for the function, "statistic" or "fit", and its value.
    word: str
    function: str
    # The other keys of the function with their values.
    own: Mapping[str, Any] = field(hash=False)
    share: float | None = None
    epsilon: float | None = None
    delta: float = 0.0
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    output: Path | None = None
    # Name of its table; empty for [table].
    table: str = ""

    @property
    def place(self) -> str:
        """The name of the table in the file."""
        return f"[release.{self.name}]"

    @property
    def keys(self) -> Mapping[str, Parameter]:
        """The keys of the function."""
        return keys_of_function(self.word, self.function)

    @property
    def column_names(self) -> list[tuple[str, str]]:
        """The columns in the values, each as a pair of key and column."""
        values = [(key, self.own.get(key, ())) for key in COLUMNS]
        return [
            (key, name)
            for key, value in values
            for name in ([value] if isinstance(value, str) else value)
        ]

    def without(self, key: str) -> ReleaseEntry:
        """Return the release without a key."""
        return replace(self, own={name: v for name, v in self.own.items() if name != key})

    def is_complete(self, known: Container[str]) -> bool:
        """Return True if no required key is missing, and all columns are in the table."""
        complete = all(key.name in self.own for key in self.keys.values() if key.required)
        return complete and all(name in known for _, name in self.column_names)

    def completed(self, known: Container[str], column: str) -> ReleaseEntry:
        """Return a release for further checks: unknown columns removed, missing ones filled in."""
        made = dict(self.own)
        for name in set(COLUMNS) & set(made):
            made[name] = _among(made[name], known)
            if not made[name]:
                del made[name]
        if any(made.get(key) != self.own.get(key) for key in ("by", "item")):
            # The domain is for other columns.
            made.pop("domain", None)
        for key in self.keys.values():
            if key.required and key.name not in made:
                choices: tuple[Any, ...] = (column, [column], 1.0)
                made[key.name] = next(each for each in choices if not wrong(key.hint, each))
        if self.word == "fit" and not {"features", "categories"} & set(made):
            # Ranges are of features, which may be misspelled.
            made["features"] = list(made.get("range", ())) or [column]
        return replace(self, own=made)


def _among(value: Any, known: Container[str]) -> Any:
    """Return the known columns of a value."""
    if isinstance(value, str):
        return value if value in known else ""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if name in known}
    return [name for name in value if name in known]


@dataclass(frozen=True)
class File:
    """A valid release file."""

    path: Path
    folder: Path
    # The first digits of the hash of its text, which identify it in a ledger.
    mark: str
    # The tables and privacy units by the names of the tables.
    tables: Mapping[str, UserTable] = field(hash=False)
    units: Mapping[str, Unit] = field(hash=False)
    whole: BudgetSection
    entries: tuple[ReleaseEntry, ...]
    report: Path | None = None

    @property
    def outputs(self) -> list[Path]:
        """The files that a run writes."""
        outputs = [entry.output for entry in self.entries]
        guarantees = [None if path is None else guarantee_path(path) for path in outputs]
        return [path for path in (*outputs, *guarantees, self.report) if path is not None]

    def rows(self, entry: ReleaseEntry) -> UserTable:
        """Return the rows that a release reads, with the columns of its expressions."""
        rows, unit = self.tables[entry.table], self.units[entry.table]
        rows = rows.where(entry.where) if entry.where else rows
        for name in (*(name for _, name in entry.column_names), unit):
            # Errors are reported later, with the release.
            with suppress(DpgrainError):
                rows = rows.with_expressions(getattr(name, "by", name))
        return rows

    def check_counts(self, entry: ReleaseEntry) -> dict[str, int]:
        """Count invalid values that a release would read exactly, for internal use only."""
        rows, unit = self.rows(entry), self.units[entry.table]
        return rows.check_counts(
            **check_arguments(entry.word, rows, entry.own, self.path.parent, unit)
        )

    def query(
        self, entry: ReleaseEntry, epsilon: float, delta: float, random_state: Any = None
    ) -> Query[Any]:
        """Return the query of a release."""
        return query_of(
            entry.word,
            entry.function,
            self.rows(entry),
            entry.own,
            self.path.parent,
            unit=self.units[entry.table],
            relation=self.whole.relation,
            epsilon=epsilon,
            delta=delta,
            random_state=random_state,
        )


# Tolerance for sums of shares such as 0.1 in floating point.
_ROUNDING_OF_SHARES = 1e-9
# Quoted text, and the largest number of dots outside of it per line.
_QUOTED, _MOST_DOTS = re.compile(r"\"[^\"]*\"|'[^']*'"), 1000
_TOP = ("report", "table", "tables", "budget", "release")


_COMMON = keys(share=float, epsilon=float, delta=float, output=str, where=Mapping[str, Any])
# A key of releases in a file with [tables.NAME].
_OF_SEVERAL = keys(table=str)
_BUDGET = keys_of(parameters_of(__name__, "BudgetSection").values())
_RANGES: dict[str, Callable[..., float]] = {
    "epsilon": _validate.positive,
    "delta": partial(_validate.delta, allow_zero=True),
    "leak": _validate.non_negative,
}
# Keys of [budget] that apply to all releases, because a budget protects one unit.
_OF_ALL = ("unit", "element", "max_elements", "relation")
_PER_USER = keys(per_user=Mapping[str, str], per_user_by=str | Sequence[str], per_user_filter=str)
_TABLE = {
    **read_keys(),
    **keys(source=str | Sequence[str], **{option.key: option.hint for option in OPTIONS}),
    **_PER_USER,
}


def read_file(
    path: Path,
    table: UserTable | None,
    errors: ValidationErrors,
    *,
    where: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    report: Path | None = None,
) -> File | None:
    """Read a release file, and collect its errors."""
    text = _text(path)
    stated = _stated(path, text)
    for name in stated:
        section = "budget" if name in _BUDGET else "table" if name in _TABLE else ""
        if section and name not in _TOP:
            errors.add("the file:", f"{name!r} is a key of [{section}]; move it there.")
        elif name not in _TOP:
            errors.add_unknown("the file:", name, _TOP, "a table of a release file")
    sections = _table_sections(stated, table, errors)
    errors_of = {name: errors.of_table(name) for name in sections}
    opened = {
        name: _table(section, path.parent, table, errors_of[name])
        for name, section in sections.items()
    }
    budget = _section(stated, "budget", errors)
    rows = {
        name: _inside(each, where or {}, name, path.parent, errors)
        for name, each in opened.items()
        if each is not None
    }
    outputs = path.parent if folder is None else folder
    whole = BudgetSection(**check_keys("[budget]", budget, _BUDGET, errors))
    units = {name: _unit(whole, rows.get(name), path.parent, errors_of[name]) for name in sections}
    entries = _entries(_section(stated, "release", errors), outputs, whole, list(sections), errors)
    page = stated.get("report")
    if page is not None and not isinstance(page, str):
        errors.add("the file:", f"report must be text, not {_validate.describe(page)}.")
    elif report is None and page is not None:
        report = outputs / page
    _check_shares(entries, whole, errors)
    if len(rows) < len(sections):
        return None
    checked = {name: _checked_unit(units[name], rows[name], errors_of[name]) for name in sections}
    users = list(dict.fromkeys(repr(each.user) for each in rows.values()))
    if len(users) > 1:
        errors.add(
            "[tables]",
            "user must be the same column in all tables, because it identifies the same people, "
            f"not {' and '.join(users)}.",
        )
    entries = [_checked(entry, rows[entry.table], errors) for entry in entries]
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    result = File(path, outputs, mark, rows, checked, whole, tuple(entries), report)
    _check_outputs(result, errors)
    return result


def _inside(
    rows: UserTable, where: Mapping[str, Any], name: str, folder: Path, errors: ValidationErrors
) -> UserTable:
    """Return the rows of the region of a run; errors name the table if there are several."""
    place = f"[tables.{name}]" if name else ""
    missing = [column for column in where if name and column not in rows.schema]
    for column in missing:
        errors.add(
            place,
            f"lacks the column {column!r} of --where, which restricts every table; add it to this "
            "table, or use where in [tables.NAME] of the tables that have it.",
            SchemaError,
        )
    sides = {column: side for column, side in where.items() if column not in missing}
    return Tables(folder, errors).inside(place, rows, sides)


def _table_sections(
    stated: Mapping[str, Any], passed: UserTable | None, errors: ValidationErrors
) -> dict[str, dict[str, Any]]:
    """Return the tables ``[tables.NAME]`` by name, or ``[table]`` with an empty name."""
    named = _section(stated, "tables", errors)
    if named and passed is not None:
        errors.add("[tables]", "must be omitted if a table is passed.")
    elif named and "table" in stated:
        errors.add("the file:", "must have [table] or tables such as [tables.visits], not both.")
    if not named or passed is not None:
        return {"": _section(stated, "table", errors)}
    return {name: _section(named, name, errors) for name in named}


def _checked_unit(unit: Unit | None, rows: UserTable, errors: ValidationErrors) -> Unit:
    """Return the privacy unit of a table, or one that it has, to find the other errors."""
    if rows.user is None and unit is not None and unit.level != "record":
        if not errors.any_in("[table]"):
            errors.add(
                "[table]",
                f"user is required for unit = {unit.level!r}: set it to the user id column.",
            )
        unit = None
    if unit is None:
        return Record() if rows.user is None else User()
    return unit


def _stated(path: Path, text: str) -> dict[str, Any]:
    """Parse a file, or raise ParameterError for invalid TOML and absurdly long names."""
    try:
        if any(_QUOTED.sub("", line).count(".") > _MOST_DOTS for line in text.splitlines()):
            # The TOML parser would need hours.
            raise ValueError(f"a line has a name with more than {_MOST_DOTS} parts")
        return tomllib.loads(text)
    except ValueError as error:
        raise ParameterError(
            f"{str(path)!r} is not valid TOML: {error}; correct that place."
        ) from error
    except RecursionError as error:
        raise ParameterError(
            f"{str(path)!r} is not valid TOML: its values are nested too deeply; correct that "
            "place."
        ) from error


def _text(path: Path) -> str:
    record_input(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise AccessError(
            f"{str(path)!r} {problem}; pass a release file: TOML in UTF-8, with a table "
            "[release.NAME] per release."
        ) from error


def _section(stated: Mapping[str, Any], name: str, errors: ValidationErrors) -> dict[str, Any]:
    """Return a table of the file, empty if it is missing."""
    found = stated.get(name, {})
    if isinstance(found, dict):
        return found
    errors.add(
        "the file:", f"{name} must be a table, as in [{name}], not {_validate.describe(found)}."
    )
    return {}


def _table(
    stated: Mapping[str, Any], folder: Path, passed: UserTable | None, errors: ValidationErrors
) -> UserTable | None:
    """Open the table of ``[table]``, or return the passed one."""
    if passed is not None:
        if stated:
            errors.add("[table]", "must be omitted if a table is passed.")
        return passed
    known = check_keys("[table]", stated, _TABLE, errors)
    changes = {option: known.pop(option.key, {}) for option in OPTIONS}
    people = {key: known.pop(key, None) for key in _PER_USER}
    source = known.pop("source", None)
    if source is None and "source_env" not in known:
        errors.add("[table]", "source is required: text or a list of texts; or source_env.")
        return None
    tables = Tables(folder, errors)
    rows = tables.open("[table]", source, known)
    for option, value in changes.items():
        named = value if isinstance(value, Mapping) else {option.key: value}
        checked = _parts(option, named, errors) if option.parts is not dict else named
        rows = None if rows is None else option.applied(rows, checked, tables)
    if rows is None:
        return None
    if people["per_user"] or people["per_user_by"]:
        with errors.collecting("[table.per_user]"):
            rows = rows.per_user(by=people["per_user_by"], **(people["per_user"] or {}))
    if people["per_user_filter"] is not None:
        with errors.collecting("[table] per_user_filter:"):
            rows = rows.filter(people["per_user_filter"])
    return rows


def _parts(
    option: TableOption, value: Mapping[str, Any], errors: ValidationErrors
) -> dict[str, dict[str, Any]]:
    """Return the tables in the value of an option that have all required keys."""
    parts, known = {}, option.parts()
    for name, part in value.items():
        place = option.place.format(name)
        if not isinstance(part, Mapping):
            errors.add(place, f"must be a table of keys, not {_validate.describe(part)}.")
            continue
        right = check_keys(place, part, known, errors)
        if all(key.name in right for key in known.values() if key.required):
            parts[name] = right
    return parts


def _unit(
    whole: BudgetSection, rows: UserTable | None, folder: Path, errors: ValidationErrors
) -> Unit | None:
    """Return the privacy unit of ``[budget]``."""
    level, by = whole.unit, whole.element
    if level is None and by is None:
        errors.add(
            "[budget]", "unit is required: unit = 'user', unit = 'record' or element = 'COLUMN'."
        )
        return None
    level = level or "element"
    if whole.max_elements is not None and level != "user":
        errors.add(
            "[budget]", f"max_elements requires unit = 'user', not {_validate.describe(level)}."
        )
    if rows is not None and by is not None and is_expression(by):
        with errors.collecting("[budget] element:"):
            rows = rows.with_expressions(by)
    if rows is not None and by is not None and by not in rows.schema and not Path(by).suffix:
        errors.add_missing_column(
            "[budget] element:",
            by,
            rows.schema,
            f"a column of {'[table]' if errors.table else 'the table'} or a file",
        )
        return None
    partition: Any = by
    if by is not None and rows is not None and by not in rows.schema:
        partition = folder / by
    try:
        units: dict[Level, Unit] = {
            "record": Record(),
            "element": Element(partition),
            "user": User(whole.max_elements if level == "user" else None, partition),
        }
    except ParameterError as error:
        errors.add_error("[budget]", error)
        return None
    return units[level]


def _entries(
    stated: Mapping[str, Any],
    folder: Path,
    whole: BudgetSection,
    tables: Sequence[str],
    errors: ValidationErrors,
) -> list[ReleaseEntry]:
    """Return the releases whose statistic or fit is known."""
    if not stated and not errors:
        errors.add("the file:", "must have releases, each a table such as [release.visits].")
    entries = (
        _entry(name, values, folder, whole, tables, errors) for name, values in stated.items()
    )
    return [entry for entry in entries if entry is not None]


def _entry(
    name: str,
    stated: Any,
    folder: Path,
    whole: BudgetSection,
    tables: Sequence[str],
    errors: ValidationErrors,
) -> ReleaseEntry | None:
    """Return one release; None if its statistic, fit or table is unknown."""
    place = f"[release.{name}]"
    if not isinstance(stated, dict):
        errors.add("[release]", f"{name} must be a table, as in {place}.")
        return None
    word, function = _function(place, stated, errors)
    if not function:
        return None
    given = {key: value for key, value in stated.items() if key != word}
    keys = keys_of_function(word, function)
    for key in _OF_ALL:
        if key in given and key not in keys:
            errors.add(place, f"{key} applies to all releases; set it in [budget].")
            del given[key]
    several = _OF_SEVERAL if any(tables) else {}
    known = {**keys, **_COMMON, **several}
    own = check_keys(place, given, known, errors, f"a {word} {function!r}")
    table = own.pop("table", tables[0] if len(tables) == 1 else "") if several else ""
    if table not in tables:
        if table:
            errors.add_unknown(f"{place} table:", table, tables, "a table of the file")
        elif "table" not in given:
            errors.add(place, f"table is required: one of {', '.join(tables)}.")
    common = {key: own.pop(key) for key in _COMMON if key in own}
    output = common.pop("output", None)
    suited = endings(word, function)
    if output is not None and Path(output).suffix.lower() not in suited:
        errors.add(
            place, f"output must end in {', '.join(suited)}, not {_validate.describe(output)}."
        )
        output = None
    _check_spending(place, common, whole, errors)
    path = None if output is None else folder / output
    entry = ReleaseEntry(name, word, function, own, **common, output=path, table=table)
    return entry if table in tables else None


def _function(place: str, stated: Mapping[str, Any], errors: ValidationErrors) -> tuple[str, str]:
    """Return the statistic or fit of a release, or the most similar one; empty if unknown."""
    words = [word for word in FUNCTIONS if word in stated]
    if len(words) != 1:
        errors.add(
            place,
            "must have one statistic, such as statistic = 'count', or one fit, such as fit "
            "= 'logistic'.",
        )
        return "", ""
    (word,) = words
    name, known = stated[word], FUNCTIONS[word]
    if not isinstance(name, str) or name not in known:
        # Continue with the most similar name, to find other errors.
        name = errors.add_unknown(f"{place} {word}:", name, known, f"a {word}")
    return word, name


def _check_spending(
    place: str, common: Mapping[str, Any], whole: BudgetSection, errors: ValidationErrors
) -> None:
    """Collect errors in the share, ε and δ of a release."""
    share, epsilon = common.get("share"), common.get("epsilon")
    if share is None and epsilon is None:
        such = "share, such as 0.5" if whole.epsilon is not None else "epsilon, such as 1.0"
        errors.add(place, f"must have a budget; set {such}.")
    if share is None:
        return
    if not 0 < share <= 1:
        errors.add(place, f"share must be above 0 and at most 1, not {_validate.describe(share)}.")
    if epsilon is not None or "delta" in common:
        errors.add(place, "share replaces epsilon and delta; omit them.")
    if whole.epsilon is None:
        errors.add(
            place, f"share = {share!r} requires a budget; set epsilon and delta in [budget]."
        )


def _check_shares(
    entries: Sequence[ReleaseEntry], whole: BudgetSection, errors: ValidationErrors
) -> None:
    """Collect errors in the budget and in the total of shares."""
    for name, check in _RANGES.items():
        value = getattr(whole, name)
        if value is None:
            continue
        try:
            check(**{name: value})
        except ParameterError as error:
            errors.add_error("[budget]", error)
    total = sum(entry.share or 0.0 for entry in entries)
    if total > 1 + _ROUNDING_OF_SHARES:
        errors.add(
            "[release]", f"share must add up to at most 1 over all releases, not to {total:.6g}."
        )


def _checked(entry: ReleaseEntry, rows: UserTable, errors: ValidationErrors) -> ReleaseEntry:
    """Collect missing columns; return the release without an invalid region."""
    for key, name in entry.column_names:
        if is_expression(name):
            with errors.collecting(f"{entry.place} {key}:"):
                rows.with_expressions(name)
        elif name not in rows.schema:
            errors.add_missing_column(f"{entry.place} {key}:", name, rows.schema)
    before = len(errors.lines)
    Tables(Path(), errors).inside(entry.place, rows, entry.where)
    return entry if len(errors.lines) == before else replace(entry, where={})


def _check_outputs(file: File, errors: ValidationErrors) -> None:
    """Collect outputs that cannot be written, or would overwrite each other or an input."""
    taken: list[Path | str] = [
        path for table in file.tables.values() for path in getattr(table.source, "paths", ())
    ]
    try:
        check_folder(file.folder)
    except DpgrainError as error:
        errors.add_error("the folder:", error)
        return
    outputs = [(entry.place, entry.output) for entry in file.entries]
    for place, path in (*outputs, ("the file:", file.report)):
        if path is None:
            continue
        guarantees = [] if path == file.report else [guarantee_path(path)]
        try:
            check_outputs([path, *guarantees], taken, new=file.folder)
            check_page(path if path == file.report else None, name="report")
        except DpgrainError as error:
            errors.add_error(place, error)
        taken += [path, *guarantees]
