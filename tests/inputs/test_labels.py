"""Labels: the rule for equality of users, elements, classes, domains and mappings."""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.inputs import cases
from typer.testing import CliRunner

import dpgrain as dg
from dpgrain.cli.app import app
from dpgrain.errors import ParameterError
from dpgrain.inputs import labels
from dpgrain.inputs.labels import (
    BITS,
    as_integer,
    canonical_text,
    cell_text,
    key,
    label_from_key,
    match_stated,
    rank,
)
from dpgrain.learn.features import CategoryColumn, FeatureEncoding, load_rows
from dpgrain.publishing.charge import Curator

# --- the rule, implemented a second time ---


def same(a: Any, b: Any) -> bool:
    """Whether two labels are equal, by Python's equality and without a canonical form."""
    a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))
    texts = [isinstance(x, str | bytes) for x in (a, b)]
    if any(texts):
        a, b = (x.decode("utf-8", "surrogateescape") if isinstance(x, bytes) else x for x in (a, b))
        return all(texts) and bool(a == b)
    kinds = [isinstance(x, int | float | Fraction | Decimal) for x in (a, b)]
    if all(kinds):
        # Python compares decimals with all but fractions.
        if isinstance(a, Decimal) and isinstance(b, Fraction):
            a, b = b, a
        if isinstance(a, Fraction) and isinstance(b, Decimal):
            return b.is_finite() and b * 1 == b and Decimal(a.denominator) * b == a.numerator
        return bool(a == b)
    return type(a) is type(b) and bool(a == b)


@given(cases.LABELS, cases.LABELS)
@example("007", "7")
@example(1, "1")
@example(True, 1.0)
@example(-0.0, 0)
@example(Decimal("0.1"), 0.1)
@example(np.float32(0.1), 0.1)
@example(2**53 + 1, float(2**53))
def test_keys_are_equal_by_the_rule(a: Any, b: Any) -> None:
    for x in (a, b):
        nothing = not isinstance(x, str | bytes) and x != x
        assert (key(x) is None) == nothing
    if key(a) is not None and key(b) is not None:
        assert (key(a) == key(b)) == same(a, b)


@given(st.one_of(cases.NUMBERS, cases.WRITTEN), cases.LABELS)
@example(1, "1")
@example(1.0, "1.0")
@example(1e-5, "1e-05")
@example(True, "1")
def test_stated_label_matches_its_text_and_equals(stated: Any, cell: Any) -> None:
    if key(stated) is None or key(cell) is None:
        return
    matched = match_stated("stated", [stated], [key(cell)])[0] == 0  # type: ignore[list-item]
    if isinstance(stated, str) or not isinstance(cell, str | bytes):
        assert matched == same(stated, cell)
        return
    text = cell if isinstance(cell, str) else cell.decode()
    if matched:
        # No other text with this numeric value equals it, and parsing it returns the number.
        assert text == canonical_text(stated)
        if not isinstance(stated, bool | np.bool_):
            again = float(text) if isinstance(stated, float | np.floating) else Fraction(text)
            assert same(again, stated)
            assert not {"e", "E", "+", " ", "_"} & set(text)
            assert text.isascii()
            assert text.strip("0") == text or text == "0" or text[0] == "0" or "." not in text
    else:
        assert text != canonical_text(stated)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        (1, "1"), (1.0, "1"), (2.5, "2.5"), (Decimal("2.50"), "2.5"), (Fraction(5, 2), "2.5"),
        (True, "True"), (np.bool_(False), "False"), (np.int8(-3), "-3"),
        (-0.0, "0"), (1e16, str(10**16)),
        (0.1, "0.1"), (Decimal("0.1"), "0.1"), (1e-7, "0.0000001"), (-0.25, "-0.25"),
        (Fraction(1, 3), None), (math.inf, None), (math.nan, None), (None, None),
        (Decimal("1e99999999"), None), (Decimal("1e-99999999"), None), ("007", "007"), (b"a", "a"),
        (Decimal("12345678901234567890.125"), "12345678901234567890.125"),
    ],
)  # fmt: skip
def test_the_text_of_a_stated_label(stated: Any, text: str | None) -> None:
    assert canonical_text(stated) == text
    if text is not None and isinstance(stated, int) and not isinstance(stated, bool):
        assert as_integer(text) == stated


def test_stated_labels_differ() -> None:
    wrong: list[tuple[list[Any], str]] = [
        ([1, True], "must be distinct"),
        (["1", b"1"], "must be distinct"),
        ([0.1, Decimal("0.1")], "must differ as text, but several are written '0.1'"),
        ([1, None], "without nulls"),
        ([1, math.nan], "without nulls"),
    ]
    for stated, words in wrong:
        with pytest.raises(ParameterError, match=words):
            match_stated("classes", stated, [])
    # An explicit text is itself, and not the number.
    cells: Any = [key(1), key("1"), key("01")]
    assert match_stated("classes", [1, "1"], cells).tolist() == [0, 1, -1]


def test_whole_numbers_of_texts() -> None:
    for text in [
        *cases.SEVEN[1:],
        *cases.HEX,
        "-0",
        "1_000",
        "1\n",
        "",
        "7.",
        "9" * 401,
        "²",
        "1" + "\x00",
    ]:
        assert as_integer(text) is None, text
    assert [as_integer(text) for text in ("0", "-12", "9" * 30)] == [0, -12, int("9" * 30)]
    assert [as_integer(x) for x in (True, 7.0, Decimal(7), 7.5, math.inf, None)] == [
        1,
        7,
        7,
        None,
        None,
        None,
    ]


# --- times ---


BERLIN = ZoneInfo("Europe/Berlin")


def test_times_are_equal_by_moment() -> None:
    day = datetime.date(2024, 5, 1)
    naive = datetime.datetime(2024, 5, 1)
    moment = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    later = datetime.datetime(3024, 5, 1, 12, tzinfo=datetime.UTC)
    kinds: list[list[Any]] = [
        [day, naive, np.datetime64("2024-05-01"), pd.Timestamp("2024-05-01"), np.datetime64("2024-05")],
        [moment, moment.astimezone(BERLIN), pd.Timestamp(moment), pd.Timestamp(moment).as_unit("s")],
        [moment.replace(tzinfo=None), *(np.datetime64("2024-05-01T12", unit) for unit in ("h", "ns"))],
        [later, later.astimezone(BERLIN)],
        [np.datetime64("9999999-01-01", unit) for unit in ("D", "M", "Y")],
        [np.datetime64("-9999-03-01"), np.datetime64("-9999-03", "M")],
        [datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0)],
        [datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)],
        [pd.Timestamp("2024-05-01 00:00:00.000000001")],
        [np.datetime64(1, "as")], [np.datetime64(1, "fs"), np.datetime64(1000, "as")],
        ["2024-05-01"], [20240501], [naive.timestamp()],
        [datetime.timedelta(days=1), np.timedelta64(1, "D"), np.timedelta64(24, "h")],
        [datetime.timedelta(days=2), pd.Timedelta("2D")],
        [np.timedelta64(1, "Y"), np.timedelta64(12, "M")],
        [1, np.int64(1)], [np.timedelta64(1, "ns")],
    ]  # fmt: skip
    names = [{key(label) for label in same_moment} for same_moment in kinds]
    assert all(len(name) == 1 and None not in name for name in names), names
    assert len(set.union(*names)) == len(names)
    nulls: list[Any] = [pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT"), pd.NA, None, [1], {}]
    for nothing in nulls:
        assert key(nothing) is None


@given(
    st.datetimes(timezones=st.none() | st.timezones()),
    st.datetimes(timezones=st.none() | st.timezones()),
)
def test_times_by_their_own_equality(a: datetime.datetime, b: datetime.datetime) -> None:
    def moment(x: datetime.datetime) -> Any:
        if x.tzinfo is None:
            return x, "naive"
        return x.replace(tzinfo=None) - x.utcoffset() if _near(x) else None, "aware"  # type: ignore[operator]

    def _near(x: datetime.datetime) -> bool:
        return 2 < x.year < 9998

    for other in (b, a.replace(fold=1), a + datetime.timedelta(microseconds=a.year < 9000)):
        if _near(a) and _near(other):
            assert (key(a) == key(other)) == (moment(a) == moment(other))


def test_nested_labels() -> None:
    assert key((1, "a")) == key((True, "a")) == key((np.int8(1), b"a"))
    apart = [
        (1,),
        ("1",),
        ("01",),
        ((1,),),
        (1, 1),
        (),
        ("1", "1"),
        ("1', '1",),
        (None,),
        frozenset([1]),
    ]
    assert len({key(label) for label in apart}) == len(apart)
    assert key(frozenset([1, "a"])) == key(frozenset(["a", 1.0]))
    # One object may be repeated many times: such a label reveals nothing through its processing
    # time.
    deep: Any = ()
    for _ in range(60):
        deep = (deep, deep)
    assert key(deep) is None
    chain: Any = ()
    for _ in range(100_000):
        chain = (chain,)
    assert key(chain) is None


# --- time in the length ---


class Counted:
    """The length of the longest integer that became a fraction or a decimal."""

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, *parts: Any) -> Fraction:
        for part in parts:
            if isinstance(part, int):
                self.bits = max(self.bits, part.bit_length())
            elif isinstance(part, str):
                raise AssertionError("text is never read as a number")
        return Fraction(*parts)


LONG: list[Any] = [
    *cases.HEX,
    *(Decimal(text) for text in ("1e99999999", "-1e-99999999", "0e99999999", "7.5e9999999")),
    Decimal("1e-40000"), Decimal("1e9864"), Decimal("1e9865"),
    Decimal(f"1e-{BITS}"), Decimal(f"5e-{BITS + 1}"),
    Decimal("9" * 9999), Decimal("1" + "0" * 50_000), Decimal("0." + "0" * 50_000 + "1"),
    10**9864, 10**9865, 2**BITS, 2**BITS - 1,
    Fraction(1, 3**20_000), Fraction(1, 2**BITS), 1e308, 5e-324, np.finfo(np.longdouble).max,
    np.finfo(np.longdouble).smallest_subnormal, np.datetime64(2**62, "Y"), np.datetime64(2**62, "as"),
    (Decimal("1e99999999"),), complex(1e308, 5e-324),
]  # fmt: skip


@pytest.mark.parametrize("label", LONG, ids=lambda label: type(label).__name__)
def test_label_is_read_in_linear_time(label: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    # The real arithmetic runs with inspected arguments. `isinstance` needs the class itself.
    monkeypatch.setattr(labels, "_fraction", counted)
    for read in (key, canonical_text, as_integer, cell_text):
        read(label)
    # A power of ten next to the longest stored numbers; no label creates longer ones.
    assert counted.bits <= 8 * BITS
    for found in (key(label), canonical_text(label)):
        assert len(str(found)) <= BITS


def test_long_numbers_of_several_types_are_one_or_none() -> None:
    for power in (400, 5000, 9863, 9864):
        assert key(10**power) == key(Decimal(f"1e{power}")) == key(Fraction(10**power)) is not None
    assert key(Decimal("1e400") + 0) == key(Decimal("1000e397")) != key(Decimal("1e401"))
    assert key(10**9865) is key(Decimal("1e9865")) is key(Decimal("1e99999999")) is None
    assert key(2**BITS) is key(Decimal(2**BITS)) is None
    assert key(2**BITS - 1) == key(Decimal(2**BITS - 1)) is not None
    for power in (400, 9000, BITS):
        half = Decimal((0, tuple(map(int, f"{5**power:d}")), -power)) if power == 400 else None
        assert half is None or key(half) == key(Fraction(1, 2**power)) is not None
        assert key(Fraction(5**power, 10**power)) == key(Fraction(1, 2**power))
    assert key(Decimal("0e99999999")) == key(0)


def tables_of(values: list[Any], tmp_path: Path, **more: list[Any]) -> Iterator[tuple[str, Any]]:
    """A table with a column of text in every form that a table may have."""
    table = pa.table({"label": pa.array(values, pa.string()), **more})
    yield "arrow", table
    yield "frame", table.to_pandas()
    yield "objects", table.to_pandas().astype({"label": object})
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(table, path)
    yield "parquet", str(path)
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([table.column_names, *(row.values() for row in table.to_pylist())])
    yield "csv", str(path)


def moved(users: Any, rest: Any, values: list[float]) -> float:
    """How far a clipped sum of one vector for each user moves when a user goes."""

    def total(users: Any, values: list[float]) -> float:
        mean = dg.mean_of_users(
            np.array(values), users=users, bound=1.0, epsilon=1e6, delta=1e-6, n_users=2, method="clip",
            random_state=0,
        )  # fmt: skip
        # The mean covers only users with records.
        return mean.n_users * float(mean.value[0])

    return abs(total(users, values) - total(rest, values[: len(rest)]))


def test_persons_with_equal_spelling_are_distinct() -> None:
    # Each has one record beyond the bound or at the end of it: one removal moves the sum by at most 1.
    assert moved(["007"] * 2 + ["7"] * 3000, ["007"] * 2, [1.0] * 2 + [-1.0] * 3000) < 1.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "spelled", [cases.SEVEN, cases.ONE, cases.HEX], ids=["seven", "one", "hex"]
)
def test_users_elements_and_groups_of_tables(spelled: list[str], tmp_path: Path) -> None:
    n = len(spelled)
    for name, source in tables_of(spelled, tmp_path, who=[f"u{i}" for i in range(n)]):
        table = dg.read(source, user="label")
        assert f"{n}  users with a record" in table.check(), name
        with table.open_engine() as engine:
            assert sorted(engine.distinct(["label"]).columns[0].to_pylist()) == sorted(spelled), (
                name
            )
        # Every spelling is a separate item, and each is a separate element.
        for unit in (dg.User(), dg.Element("label")):
            release = dg.histogram(
                dg.read(source, user="who"), "label", unit=unit, domain=spelled, clip=float(n),
                epsilon=1e6, delta=0.5, random_state=0,
            )  # fmt: skip
            assert release.to_pandas()["estimate"].round().tolist() == [1.0] * n, (
                name,
                unit,
            )
        rows = load_rows(
            dg.read(source, user="label"),
            FeatureEncoding((CategoryColumn("label", tuple(spelled)),)),
            Curator(),
        )
        assert rows.users is not None
        assert len(set(rows.users)) == n, name
        assert np.array_equal(rows.X.to_numpy(), np.eye(n)), name


def test_labels_from_files_and_command_line_are_text(tmp_path: Path) -> None:
    """It equals integers by their canonical text, and text directly."""
    listed = tmp_path / "items.txt"
    rows = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(
        pa.table({"who": [*range(60)], "item": [7] * 60, "text": ["007", "7"] * 30}), rows
    )
    out = tmp_path / "out.csv"

    def published(item: str, items: list[str]) -> Any:
        listed.write_text("\n".join(items))
        return CliRunner().invoke(
            app,
            ["histogram", str(rows), "--user", "who", "--item", item, "--domain", str(listed),
             "--unit", "user", "--epsilon", "1e4", "--delta", "1e-6", "--clip", "1",
             "--output", str(out)],
        )  # fmt: skip

    assert published("item", ["7"]).exit_code == 0
    assert pd.read_csv(out, dtype=str)["estimate"].astype(float).round().tolist() == [60]
    for wrong in [text for text in cases.SEVEN[1:] if text.strip() == text]:
        refused = published("item", [wrong])
        assert "must contain integers" in str(refused.exception)
    assert published("text", ["007", "7", "7.0"]).exit_code == 0
    found = pd.read_csv(out, dtype=str).set_index("text")["estimate"].astype(float).round()
    assert found.to_dict() == {"007": 30, "7": 30, "7.0": 0}


# --- in every form, from the description in a list ---


def test_a_lone_surrogate_and_its_escape_are_two_persons() -> None:
    users = np.array(["'\\ud800'"] + ["\ud800"] * 999)
    assert moved(users, users[:1], [-1.0] + [1.0] * 999) < 1.01


# --- what is published of a label ---


@given(cases.LABELS, cases.LABELS)
@example(Decimal("0.1"), 0.1)
@example(2**53 + 1, float(2**53))
@example(Fraction(1, 3), math.inf)
def test_published_label_depends_only_on_its_key(a: Any, b: Any) -> None:
    for label in (a, b):
        name = key(label)
        if name is not None:
            assert key(label_from_key(name)) == name
    if key(a) == key(b) is not None:
        assert repr(label_from_key(key(a))) == repr(label_from_key(key(b)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "label",
    [
        datetime.date(2024, 5, 1), np.datetime64("2024-05-01T12:00:00.5"), np.datetime64("99999-01-01"),
        np.datetime64(1, "as"), pd.Timestamp("2024-05-01 12:00", tz="Europe/Berlin"),
        datetime.timedelta(3, 1, 1), np.timedelta64(1, "ns"), np.timedelta64(5, "M"), 1 + 2j,
        (1, "a", ("b'", "\ud800", None, 2.5)), frozenset([1, (True, "b")]), Fraction(1, 3), math.inf,
        -math.inf,
    ],
    ids=lambda label: type(label).__name__,
)  # fmt: skip
def test_labels_of_every_kind_come_back_from_their_keys(label: Any) -> None:
    name = key(label)
    assert name is not None
    assert key(label_from_key(name)) == name
    assert sorted([("~", ""), name], key=rank)[0] == name


class _Ends:
    """A label that ends programs when it is looked at."""

    def __hash__(self) -> int:
        raise SystemExit("SECRET")

    def __str__(self) -> str:
        raise SystemExit("SECRET")

    def __float__(self) -> float:
        raise GeneratorExit("SECRET")


def test_label_crashing_programs_is_null() -> None:
    assert key(_Ends()) is None
