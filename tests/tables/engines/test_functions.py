"""The functions of expressions: against plain Python on malformed values, and errors."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.effort import Effort
from tests.refusals import refuses

from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.derived_columns import CompiledExpression, compile_condition
from dpgrain.tables.engines.functions import FUNCTIONS, Translator
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode, Node, parsed

ZONE = "Europe/Paris"
UTC = dt.UTC
INTEGERS = [0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63), 10**18, None]
REALS = [0.0, -0.0, 1.5, -2.5, 0.5, 1e308, -1e308, 1e-320, math.nan, math.inf, -math.inf, None]
TEXTS = ["", "er", "ER", "Äö", "a b ", "  x", "75011", "2025-01-01", "{0}", None]
# Texts that mean something in SQL, or in a template of it, as expressions write them.
ODD = [
    "'{0}'",
    "'{1}'",
    "'{}'",
    "'{'",
    "'{{0}}'",
    '"it\'s"',
    "'%s'",
    "'$1'",
    "'?'",
    "'--'",
    "'/*'",
    "'\\'",
    "';'",
]
DAYS: list[Any] = [
    dt.date(2025, 1, 1),
    dt.date(2024, 12, 30),
    dt.date(2024, 2, 29),
    dt.date(1, 1, 1),
]
DAYS += [dt.date(9999, 12, 31), dt.date(2026, 3, 29), None]
TIMES: list[Any] = [dt.datetime(2025, 1, 1), dt.datetime(2024, 12, 31, 23, 59, 59, 999999)]
TIMES += [dt.datetime(1900, 1, 1, 5), dt.datetime(2026, 3, 29, 1, 30), None]
TRUTHS = [True, False, None]
CELLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), INTEGERS),
    "j": (pa.int64(), INTEGERS),
    "x": (pa.float64(), REALS),
    "y": (pa.float64(), REALS),
    "s": (pa.string(), TEXTS),
    "d": (pa.date32(), DAYS),
    "t": (pa.timestamp("us"), TIMES),
    "m": (pa.timestamp("us", tz="UTC"), [t and t.replace(tzinfo=UTC) for t in TIMES]),
    "b": (pa.bool_(), TRUTHS),
}
KINDS = {
    "i": "BIGINT", "j": "BIGINT", "x": "DOUBLE", "y": "DOUBLE", "s": "VARCHAR", "d": "DATE",
    "t": "TIMESTAMP", "m": "TIMESTAMP WITH TIME ZONE", "b": "BOOLEAN",
}  # fmt: skip


def rows(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    picked = {
        name: [cells[k] for k in rng.integers(len(cells), size=count)]
        for name, (_, cells) in CELLS.items()
    }
    return [{name: values[k] for name, values in picked.items()} for k in range(count)]


def table_of(some: list[dict[str, Any]]) -> pa.Table:
    columns = {
        name: pa.array([row[name] for row in some], kind) for name, (kind, _) in CELLS.items()
    }
    return pa.table(columns)


def by_duckdb(text: str, table: pa.Table) -> list[Any]:
    made = CompiledExpression.parse(text, KINDS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.register("rows_of", table)
        query = f"SELECT made FROM {made.with_column('rows_of', 'made')}"
        return [row[0] for row in connection.execute(query).fetchall()]


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def whole(value: Any) -> Any:
    """An integer, or missing beyond 64 bits."""
    return value if value is not None and -(2**63) <= value < 2**63 else None


def plus(sign: str, a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int) and sign != "/":
        return whole({"+": a + b, "-": a - b, "*": a * b}[sign])
    with np.errstate(all="ignore"):
        one, other = np.float64(a), np.float64(b)
        made = {"+": one + other, "-": one - other, "*": one * other, "/": one / other}[sign]
    return float(made)


def compared(sign: str, a: Any, b: Any) -> Any:
    a, b = finite(a), finite(b)
    if a is None or b is None:
        return None
    if {type(a), type(b)} == {dt.date, str}:
        a, b = (dt.date.fromisoformat(v) if isinstance(v, str) else v for v in (a, b))
    if isinstance(a, float) != isinstance(b, float):
        a, b = float(a), float(b)
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return {
        "=": a == b,
        "!=": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
    }[sign]


def joined(word: str, a: Any, b: Any) -> Any:
    ends = word == "or"
    if a is ends or b is ends:
        return ends
    return None if a is None or b is None else not ends


def local(time: Any, zone: str | None = None) -> Any:
    return time if zone is None or time is None else time.astimezone(ZoneInfo(zone))


def day(time: Any, zone: str | None = None) -> Any:
    time = local(time, zone)
    return time.date() if isinstance(time, dt.datetime) else time


def on_day(function: Callable[[dt.date], Any]) -> Callable[..., Any]:
    def made(time: Any, zone: str | None = None) -> Any:
        of = day(time, zone)
        return None if of is None else function(of)

    return made


def rounded(value: Any) -> Any:
    value = finite(value)
    if value is None or isinstance(value, int):
        return value
    return (
        whole(int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)))
        if abs(value) < 1e20
        else None
    )


def floored(value: Any) -> Any:
    value = finite(value)
    return None if value is None else whole(math.floor(value))


def binned(value: Any, *edges: float) -> Any:
    value = finite(value)
    if value is None:
        return None
    if value < edges[0]:
        return f"below {edges[0]:,}"
    for one, other in pairwise(edges):
        if float(value) < other:
            return f"{one:,} to {other:,}"
    return f"{edges[-1]:,} and above"


def extreme(of: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def made(a: Any, b: Any) -> Any:
        a, b = finite(a), finite(b)
        if a is None or b is None:
            return None
        return of(float(a), float(b)) if isinstance(a, float) != isinstance(b, float) else of(a, b)

    return made


def on_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda text: None if text is None else function(text)


PLAIN: Mapping[str, Callable[..., Any]] = {
    "year": on_day(lambda d: d.year),
    "quarter": on_day(lambda d: dt.date(d.year, 3 * ((d.month - 1) // 3) + 1, 1)),
    "month": on_day(lambda d: d.replace(day=1)),
    "week": on_day(lambda d: d - dt.timedelta(days=d.weekday())),
    "day": on_day(lambda d: d),
    "weekday": on_day(lambda d: d.isoweekday()),
    "hour": lambda t, zone=None: None if t is None else local(t, zone).hour,
    "bins": binned,
    "abs": lambda v: None if v is None else whole(abs(v)) if isinstance(v, int) else abs(v),
    "floor": floored,
    "round": rounded,
    "least": extreme(min),
    "greatest": extreme(max),
    "lower": on_text(str.lower),
    "upper": on_text(str.upper),
    "trim": on_text(lambda s: s.strip(" ")),
    "prefix": lambda s, n: None if s is None else s[:n],
    "length": on_text(len),
    "if": lambda c, a, b: finite(a) if c else finite(b),
    "known": lambda v: finite(v) is not None,
    "coalesce": lambda v, other: other if finite(v) is None else v,
    **{sign: lambda a, b=None, sign=sign: plus(sign, a, b) for sign in "+-*/"},
    **{
        sign: lambda a, b, sign=sign: compared(sign, a, b)
        for sign in ("=", "!=", "<", "<=", ">", ">=")
    },
    "and": lambda a, b: joined("and", a, b),
    "or": lambda a, b: joined("or", a, b),
    "not": lambda a: None if a is None else not a,
    "in": lambda a, *others: (
        None if finite(a) is None else any(compared("=", a, other) for other in others)
    ),
}


def by_python(node: Node, row: Mapping[str, Any]) -> Any:
    """The value of an expression, by a plain implementation of its functions."""
    if isinstance(node, ConstantNode):
        return node.value
    if isinstance(node, ColumnNode):
        return row[node.name]
    parts = [by_python(part, row) for part in node.parts]
    if node.function == "-" and len(parts) == 1:
        return plus("-", 0, parts[0])
    return PLAIN[node.function](*parts)


def real(rng: np.random.Generator, depth: int) -> str:
    leaves = ["i", "j", "x", "y", "3", "0", "2.5", "year(d)", "hour(t)", f"hour(m, '{ZONE}')"]
    if depth == 0:
        return str(rng.choice(leaves))
    a, b = real(rng, depth - 1), real(rng, depth - 1)
    return str(
        rng.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"{a} / {b}", f"-({a})", f"abs({a})",
                f"floor({a})", f"round({a})", f"least({a}, {b})", f"greatest({a}, {b})",
                "length(s)", f"weekday(m, '{ZONE}')",
                f"if({truth(rng, depth - 1)}, {a} * 1.0, {b} * 1.0)",
                f"coalesce({a} * 1.0, 1.0)",
            ]
        )
    )  # fmt: skip


def truth(rng: np.random.Generator, depth: int) -> str:
    if depth == 0:
        plain = ["b", "known(x)", "known(s)", "s = 'er'", "d >= '2025-01-01'"]
        return str(
            rng.choice([*plain, f"s != {rng.choice(ODD)}", f"s in ('er', {rng.choice(ODD)})"])
        )
    sign = rng.choice(["=", "!=", "<", "<=", ">", ">="])
    return str(
        rng.choice(
            [
                f"{real(rng, depth - 1)} {sign} {real(rng, depth - 1)}",
                f"not ({truth(rng, depth - 1)})",
                f"({truth(rng, depth - 1)}) and ({truth(rng, depth - 1)})",
                f"({truth(rng, depth - 1)}) or ({truth(rng, depth - 1)})",
                f"{label(rng, depth - 1)} in ('er', 'Ä', '75')",
                f"i in (0, 7, {2**63 - 1})",
                f"{label(rng, depth - 1)} < 'b'",
                f"month(m, '{ZONE}') = '2025-01-01'",
            ]
        )
    )


def label(rng: np.random.Generator, depth: int) -> str:
    if depth == 0:
        return str(
            rng.choice(["s", "'er'", "lower(s)", "prefix(s, 2)", "trim(s)", rng.choice(ODD)])
        )
    return str(
        rng.choice(
            [
                f"lower({label(rng, depth - 1)})",
                f"prefix({label(rng, depth - 1)}, 3)",
                f"bins({real(rng, depth - 1)}, 0, 1.5, 1000)",
                f"if({truth(rng, depth - 1)}, {label(rng, depth - 1)}, {rng.choice(ODD)})",
                f"coalesce({label(rng, depth - 1)}, {rng.choice(ODD)})",
            ]
        )
    )


def calendar(rng: np.random.Generator, depth: int) -> str:
    of = str(rng.choice(["d", "t", f"m, '{ZONE}'"]))
    made = f"{rng.choice(['day', 'week', 'month', 'quarter'])}({of})"
    return made if depth == 0 else f"if({truth(rng, depth - 1)}, {made}, day({of}))"


def same(one: Any, other: Any) -> bool:
    other = finite(other)
    if one is None or other is None:
        return one is other
    return type(one) is type(other) and one == other


def test_programs_agree_with_plain_python(effort: Effort) -> None:
    """Years before 1 and outside Python's range are left to the tests of days."""
    rng = np.random.default_rng(9)
    told = 0
    for make in effort.some([real, truth, label, calendar] * 50):
        text = make(rng, int(rng.integers(0, 4)))
        some = rows(rng, 60)
        # The week of the first day of all begins in a year that Python lacks.
        some = [row for row in some if "week(d)" not in text or row["d"] != dt.date(1, 1, 1)]
        table = pa.table(
            {name: pa.array([row[name] for row in some], kind) for name, (kind, _) in CELLS.items()}
        )
        node = parsed(text)
        for row, found in zip(some, by_duckdb(text, table), strict=True):
            expected = by_python(node, row)
            assert same(found, expected), (text, row, found, expected)
            told += found is not None
    assert told > 100


def test_each_function_is_in_the_comparison() -> None:
    assert PLAIN.keys() == FUNCTIONS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["x + 1", "i * 2", "prefix(s, 2)", "month(d)", "hour(t)", "x > 1"])
def test_other_rows_move_no_value(text: str) -> None:
    """A value depends only on its row, with any malformed values nearby, and in any order."""
    rng = np.random.default_rng(0)
    some = rows(rng, 50)
    table = pa.table(
        {name: pa.array([row[name] for row in some], kind) for name, (kind, _) in CELLS.items()}
    )
    whole_of = by_duckdb(text, table)
    order = rng.permutation(50)
    assert [whole_of[k] for k in order] == by_duckdb(text, table.take(order))
    assert [by_duckdb(text, table.slice(k, 1))[0] for k in range(50)] == whole_of


@pytest.mark.parametrize(
    "text", ["month(d)", "week(d)", "quarter(d)", "year(d)", "day(d)", "weekday(d)"]
)
def test_days_outside_python_range_are_handled(text: str) -> None:
    days = pa.array([-(2**31) + 2, 2**31 - 2, -(10**7), 10**8, 20_000], pa.int32()).cast(
        pa.date32()
    )
    found = by_duckdb(f"known({text})", pa.table({"d": days}))
    assert found[-1] is True
    infinite = pa.array([2**31 - 1, -(2**31) + 1], pa.int32()).cast(pa.date32())
    assert by_duckdb(f"known({text})", pa.table({"d": infinite})) == [False, False]


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ("nothing(x)", ParameterError, "unknown function"),
        ("total(x)", ParameterError, "use it in per_user"),
        ("sum(x)", ParameterError, "in per_user one of count, any, all, total"),
        ("q + 1", SchemaError, "uses 'q', which is not a column"),
        ("month(s)", SchemaError, "declare its type, such as"),
        ("m > '2025-01-01'", SchemaError, "use day(…, 'Europe/Paris')"),
        ("month(m, '')", ParameterError, "a zone must be text"),
        ("s + 1", SchemaError, "to text, but it requires"),
        ("x = s", SchemaError, "declare the type of a text column"),
        ("t > '2025-01-01'", SchemaError, "use day"),
        ("month(m)", ParameterError, "requires a zone"),
        ("month(t, 'Europe/Paris')", ParameterError, "takes no zone"),
        ("month(m, 'Mars')", ParameterError, "zone must be"),
        ("month(x)", SchemaError, "it requires dates or timestamps"),
        ("hour(d)", SchemaError, "it requires timestamps"),
        ("bins(x)", ParameterError, "edges"),
        ("bins(x, 3, 3)", ParameterError, "must be increasing"),
        ("bins(x, y)", ParameterError, "edges"),
        ("prefix(s, i)", ParameterError, "characters from 1 to 1,000"),
        ("prefix(s, 0)", ParameterError, "characters from 1 to 1,000"),
        ("s in (x)", ParameterError, "requires constants"),
        ("if(x, 1, 2)", SchemaError, "it requires booleans"),
        ("if(b, 1)", ParameterError, "two values"),
        ("if(b, 1, 's')", SchemaError, "cannot be compared"),
        ("coalesce(x, y)", ParameterError, "a constant"),
        ("d = 'today'", ParameterError, "text such as '2025-12-31'"),
        (f"i + {2**63}", ParameterError, "64-bit"),
        ("t", SchemaError, "is a timestamp; use day(t)"),
        ("abs(x, y)", ParameterError, "must be 1, not 2"),
        ("least(" * 9 + "x" + ", y)" * 9, ParameterError, "too deep"),
        ("known(x, y)", ParameterError, "takes one value"),
    ],
)
def test_invalid_expressions_are_rejected(text: str, error: type[Exception], word: str) -> None:
    with pytest.raises(error) as refused:
        CompiledExpression.parse(text, KINDS)
    assert word in str(refused.value)


def test_a_condition_is_true_or_false() -> None:
    with pytest.raises(SchemaError, match="true or false"):
        compile_condition("x + 1", KINDS)
    assert compile_condition("x > 1", KINDS).inputs == ("x",)


def test_column_of_another_type_is_rejected() -> None:
    with pytest.raises(SchemaError, match="of type DOUBLE\\[\\]; convert it"):
        CompiledExpression.parse("known(a)", {"a": "DOUBLE[]"})
    with pytest.raises(SchemaError, match="convert it"):
        CompiledExpression.parse("a + 1", {"a": "BLOB"})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("weekday(d)", tuple(range(1, 8))),
        ("hour(t)", tuple(range(24))),
        # Rows below 0 are a value, and an element, that the default domain does not list.
        ("bins(x, 0, 10)", ("below 0", "0 to 10", "10 and above")),
        ("x > 1", (False, True)),
        ("if(b, 'in', 'out')", ("in", "out")),
        ("coalesce(if(b, 'in', 'out'), 'none')", ("in", "out", "none")),
        ("lower(s)", None),
        ("i + 1", None),
        ("if(b, s, 'out')", None),
    ],
)
def test_few_possible_values_are_listed(text: str, values: Any) -> None:
    assert CompiledExpression.parse(text, KINDS).values == values


@pytest.mark.parametrize(
    "kind", ["TINYINT", "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DECIMAL(9,2)"]
)
def test_other_numbers_are_read_as_these(kind: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 5::{kind} AS a")
        for text, expected in (("a * 2", 10), ("a / 2", 2.5), ("a > 4", True)):
            made = CompiledExpression.parse(text, {"a": kind})
            found = connection.execute(
                f"SELECT made FROM {made.with_column('t', 'made')}"
            ).fetchall()
            assert found == [(expected,)]
        if kind == "UHUGEINT":
            connection.execute("INSERT INTO t VALUES (340282366920938463463374607431768211455)")
            made = CompiledExpression.parse("a + 1", {"a": kind})
            found = connection.execute(
                f"SELECT made FROM {made.with_column('t', 'made')}"
            ).fetchall()
            assert found == [(6,), (None,)]


def test_overflow_is_missing_only_in_its_own_call() -> None:
    table = pa.table({"i": [2**63 - 1]})
    assert by_duckdb("i * i", table) == [None]
    assert by_duckdb("i * i > 0 or i > 0", table) == [True]


def test_a_call_with_a_text_in_braces() -> None:
    made = CompiledExpression.parse("s = '{0}'", KINDS)
    assert by_duckdb("s = '{0}'", pa.table({"s": ["{0}", "x"]})) == [True, False]
    assert made.text == str(CallNode("=", (ColumnNode("s"), ConstantNode("{0}"))))


@pytest.mark.parametrize("odd", ODD)
def test_a_text_is_never_read_as_sql(odd: str) -> None:
    """A condition was once formatted into a template, and its texts could contain placeholders."""
    table = pa.table({"s": ["{0}", "x", "'"]})
    for text in (
        f"if(s = {odd} or s = '{{0}}', {odd}, ' || (SELECT max(s) FROM rows_of) || ')",
        f"if(s != {odd}, ' || (SELECT max(s) FROM rows_of) || ', {odd})",
        # This one revealed the number of rows.
        f"if(s = '{{0}}', ') THEN s END) || (SELECT count(*)::VARCHAR FROM rows_of) || "
        f"TRY(CASE WHEN (1 = 1 or s = ', {odd})",
        f"coalesce(if(s = {odd}, s, {odd}), ' = s or s = ')",
        f"prefix(lower(if(s in ('{{1}}', {odd}), s, ' || s || ')), 40)",
    ):
        node = parsed(text)
        expected = [by_python(node, row) for row in table.to_pylist()]
        assert by_duckdb(text, table) == expected, text


def test_a_column_like_an_unknown_function_needs_backquotes() -> None:
    with pytest.raises(ParameterError, match=r"write the column 'Paid \(EUR\)' in backquotes"):
        Translator({"EUR": "DOUBLE", "Paid (EUR)": "DOUBLE"}, "paid(EUR)").translate(
            parsed("Paid (EUR)")
        )


@pytest.mark.parametrize("text", ["year(s)", "month(s)", "year(s) + 1"])
def test_text_in_time_function_names_the_type_to_declare(text: str) -> None:
    with refuses(
        "the expression", "types={'s': 'DATE'}", "--type s=date", kind=SchemaError
    ) as caught:
        CompiledExpression.parse(text, {"s": "VARCHAR"})
    years = "if it contains years such as 2025, use 's' without the function"
    assert (years in str(caught.value)) == text.startswith("year")
