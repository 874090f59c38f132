"""Labels: two are one if the rule says so, of users, elements, classes, domains and mappings."""

from __future__ import annotations

import contextlib
import csv
import datetime
import itertools
import math
import time
import warnings
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.sampling import examples
from typer.testing import CliRunner

import dpgrain as dg
from dpgrain.arrays.blocks import arrange
from dpgrain.cli.app import app
from dpgrain.errors import ParameterError
from dpgrain.inputs import labels
from dpgrain.inputs.codes import codes, ordered
from dpgrain.inputs.codes import column as column_of
from dpgrain.inputs.labels import BITS, cell_text, key, label_of, matching, rank, whole, written
from dpgrain.learn import LinearRegression, LinearSVC, LogisticRegression
from dpgrain.learn import load as load_model
from dpgrain.learn.classes import unselected
from dpgrain.learn.features import Category, Encoding, Number, load_rows
from dpgrain.tables.blocks import Blocks
from dpgrain.tables.domain import public_domain
from dpgrain.units import Element, Record, User

Array: TypeAlias = NDArray[Any]

# Seven texts that are read as one number by whoever reads them as numbers.
SEVEN = ["7", "007", "7.0", " 7", "+7", "7e0", "٧"]
ONE = ["1", "1.0", " 1", "+1", "1e0", "True", "1 "]
HEX = ["12e34567890abcde", "1234567890123e45", "1e999999", "1e-999999", "0x10", "9e9999999999"]


# --- the rule, said a second time ---


def same(a: Any, b: Any) -> bool:
    """Whether two labels are one, by Python's own equality: no canonical form is made."""
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


WHOLE = st.integers(-20, 20) | st.integers(-(10**25), 10**25) | st.sampled_from([2**53, 2**53 + 1])
FLOATS = st.floats() | st.sampled_from(
    [0.0, -0.0, 5e-324, 1e308, 0.1, 2.5, 7.0, math.inf, -math.inf]
)
DECIMALS = st.builds(
    lambda sign, digits, power: Decimal((sign, digits, power)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=9).map(tuple),
    st.integers(-12, 12),
) | st.sampled_from([Decimal(text) for text in ("0.1", "7.00", "70e-1", "-0", "Infinity", "NaN")])
FRACTIONS = st.fractions(min_value=-9, max_value=9, max_denominator=20)
NUMPY = st.one_of(
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    FLOATS.map(np.float64),
    st.booleans().map(np.bool_),
)
NUMBERS = WHOLE | FLOATS | DECIMALS | FRACTIONS | NUMPY | st.booleans()
WRITTEN = st.one_of(
    st.sampled_from(
        [*SEVEN, *ONE, *HEX, "", "nan", "inf", "-0", "0", "true", "1/1", "١٢", "²", "Ⅷ"]
    ),
    NUMBERS.map(str),
    st.text(alphabet="01237eE.+- x", max_size=6),
    st.text(alphabet="0123456789abcdef", min_size=16, max_size=16),
    st.text(max_size=4),
)
TEXTS = WRITTEN | WRITTEN.map(np.str_) | WRITTEN.filter(str.isascii).map(str.encode)
LABELS = NUMBERS | TEXTS


@examples(600)
@given(LABELS, LABELS)
@example("007", "7")
@example(1, "1")
@example(True, 1.0)
@example(-0.0, 0)
@example(Decimal("0.1"), 0.1)
@example(np.float32(0.1), 0.1)
@example(2**53 + 1, float(2**53))
def test_keys_are_equal_where_the_rule_says_so(a: Any, b: Any) -> None:
    for x in (a, b):
        nothing = not isinstance(x, str | bytes) and x != x
        assert (key(x) is None) == nothing
    if key(a) is not None and key(b) is not None:
        assert (key(a) == key(b)) == same(a, b)


@examples(300)
@given(st.lists(LABELS, max_size=6), st.randoms(use_true_random=False))
def test_a_column_tells_labels_apart_each_by_itself(values: list[Any], random: Any) -> None:
    found, keys = codes(values)
    assert [None if code < 0 else keys[code] for code in found] == [key(value) for value in values]
    # Whoever else is there, and in whatever order they come.
    several = [*values, *random.sample(SEVEN, 3), 7, None]
    random.shuffle(several)
    found, keys = codes(several)
    assert [None if code < 0 else keys[code] for code in found] == [key(value) for value in several]


@examples(400)
@given(st.one_of(NUMBERS, WRITTEN), LABELS)
@example(1, "1")
@example(1.0, "1.0")
@example(1e-5, "1e-05")
@example(True, "1")
def test_what_is_stated_matches_its_own_text_and_what_equals_it(stated: Any, cell: Any) -> None:
    if key(stated) is None or key(cell) is None:
        return
    matched = matching("stated", [stated], [key(cell)])[0] == 0  # type: ignore[list-item]
    if isinstance(stated, str) or not isinstance(cell, str | bytes):
        assert matched == same(stated, cell)
        return
    text = cell if isinstance(cell, str) else cell.decode()
    if matched:
        # No other text that is read as this number is it, and reading it gives the number back.
        assert text == written(stated)
        if not isinstance(stated, bool | np.bool_):
            again = float(text) if isinstance(stated, float | np.floating) else Fraction(text)
            assert same(again, stated)
            assert not {"e", "E", "+", " ", "_"} & set(text)
            assert text.isascii()
            assert text.strip("0") == text or text == "0" or text[0] == "0" or "." not in text
    else:
        assert text != written(stated)


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
    assert written(stated) == text
    if text is not None and isinstance(stated, int) and not isinstance(stated, bool):
        assert whole(text) == stated


def test_stated_labels_differ() -> None:
    wrong: list[tuple[list[Any], str]] = [
        ([1, True], "must differ in value"),
        (["1", b"1"], "must differ in value"),
        ([0.1, Decimal("0.1")], "must differ in text, but several are written '0.1'"),
        ([1, None], "none of them null"),
        ([1, math.nan], "none of them null"),
    ]
    for stated, words in wrong:
        with pytest.raises(ParameterError, match=words):
            matching("classes", stated, [])
    # A text that is stated is itself, and not the number.
    cells: Any = [key(1), key("1"), key("01")]
    assert matching("classes", [1, "1"], cells).tolist() == [0, 1, -1]


def test_whole_numbers_of_texts() -> None:
    for text in [*SEVEN[1:], *HEX, "-0", "1_000", "1\n", "", "7.", "9" * 401, "²", "1" + "\x00"]:
        assert whole(text) is None, text
    assert [whole(text) for text in ("0", "-12", "9" * 30)] == [0, -12, int("9" * 30)]
    assert [whole(x) for x in (True, 7.0, Decimal(7), 7.5, math.inf, None)] == [
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


@examples(200)
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


@pytest.mark.parametrize(
    "column",
    [
        np.array([2**53, 2**53 + 1, 2**53], dtype=np.longdouble),
        np.array([1, 2, 1], dtype=">i8"),
        np.array([1, 2, 1], dtype=">f4"),
        np.array([1, 2**40, 1], dtype="M8[Y]"),
        np.array([1, 2**60, 1], dtype="m8[as]"),
        np.array(["7", "007", "7"]),
        np.array([b"7", b"007", b"7"]),
        np.array([1, 1j, 1]),
        np.array([np.inf, -np.inf, np.inf]),
        pd.Series(["7", "007", "7"], dtype="category"),
        pd.Series(["7", "007", "7"], dtype="string"),
        pd.Series([7, 8, 7], dtype="Int64"),
        pd.Series(pd.to_datetime(["2024-05-01", "2024-05-02", "2024-05-01"], utc=True)),
        pa.array([Decimal("0.10"), Decimal("0.20"), Decimal("0.10")]),
    ],
    ids=lambda column: str(getattr(column, "dtype", "arrow")),
)
def test_columns_of_every_type(column: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codes(column)[0].tolist() == [0, 1, 0]
        assert codes(list(column) if not isinstance(column, pa.Array) else column.to_pylist())[
            0
        ].tolist() == [0, 1, 0]


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
    # Parts that are one object may be many: such a label says nothing in the time of its length.
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
    """How long the longest whole number was that a fraction or a decimal was made of."""

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
    *HEX,
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
def test_a_label_is_read_in_the_time_of_its_length(
    label: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    # The real arithmetic runs; what it is given is looked at. `isinstance` needs the class itself.
    monkeypatch.setattr(labels, "_fraction", counted)
    for read in (key, written, whole, cell_text):
        read(label)
    # A power of ten stands beside the longest numbers that are kept; no label makes longer ones.
    assert counted.bits <= 8 * BITS
    for found in (key(label), written(label)):
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


# --- everywhere ---

SPELLINGS = [(spelled, i) for spelled in (SEVEN, ONE, HEX) for i in range(1, len(spelled))]


def columns_of(values: list[str]) -> Iterator[tuple[str, Any]]:
    """A column of text in every form that an array may have."""
    yield "list", values
    yield "array", np.array(values)
    yield "objects", np.array(values, dtype=object)
    yield "series", pd.Series(values)
    yield "category", pd.Series(values, dtype="category")
    yield "string", pd.Series(values, dtype="string")
    yield "arrow", pa.array(values)
    yield "bytes", np.array([value.encode() for value in values])


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
        return 2 * float(mean.value[0])

    return abs(total(users, values) - total(rest, values[: len(rest)]))


def test_persons_who_are_written_alike_are_two() -> None:
    # Each has one record beyond the bound or at the end of it: one removal moves the sum by at most 1.
    assert moved(["007"] * 2 + ["7"] * 3000, ["007"] * 2, [1.0] * 2 + [-1.0] * 3000) < 1.01


@pytest.mark.parametrize("spelled", [SEVEN, ONE, HEX], ids=["seven", "one", "hex"])
def test_users_and_elements_of_arrays(spelled: list[str]) -> None:
    several = [*spelled, *spelled[::-1]]
    order = [*range(len(spelled)), *range(len(spelled))[::-1]]
    for name, column in columns_of(several):
        rows = arrange(len(several), column, None, User())
        assert rows.users == len(spelled), name
        assert rows.owners[rows.blocks].tolist() == order, name
        assert arrange(len(several), column, None, Record()).owners.tolist() == order, name
        rows = arrange(len(several), ["ann"] * len(several), column, Element())
        assert len(rows.owners) == len(spelled), name
        rows = arrange(len(several), ["ann"] * len(several), column, User(max_elements=2))
        assert len(rows.kept) == 4, name
    mixed: list[Any] = [7, *SEVEN, 7.0, np.int8(7), 1, *ONE, True]
    assert len(set(codes(mixed)[0])) == 2 + len(SEVEN) + len(ONE)


@pytest.mark.search(keep=1)
@pytest.mark.parametrize("spelled", [SEVEN, ONE, HEX], ids=["seven", "one", "hex"])
def test_users_elements_and_groups_of_tables(spelled: list[str], tmp_path: Path) -> None:
    n = len(spelled)
    for name, source in tables_of(spelled, tmp_path, who=[f"u{i}" for i in range(n)]):
        table = dg.read(source, user="label")
        assert f"{n}  users with a record" in table.check(), name
        with table.open_engine() as engine:
            assert sorted(engine.distinct(["label"]).columns[0].to_pylist()) == sorted(spelled), (
                name
            )
        # Every spelling is an item of its own, and each is its own element.
        for unit in (dg.User(), dg.Element("label")):
            release = dg.histogram(
                dg.read(source, user="who"), "label", unit=unit, domain=spelled, clip=float(n),
                epsilon=1e6, delta=0.5, random_state=0,
            )  # fmt: skip
            assert release.to_pandas()["estimate"].round().tolist() == [1.0] * n, (name, unit)
        rows = load_rows(
            dg.read(source, user="label"), Encoding((Category("label", tuple(spelled)),))
        )
        assert rows.users is not None
        assert len(set(rows.users)) == n, name
        assert np.array_equal(rows.features.to_numpy(), np.eye(n)), name


def test_a_frame_tells_its_users_apart_as_an_array_does() -> None:
    users: list[Any] = [
        1, "1", "01", 1.0, True, Decimal("1.0"), 2.5, "2.5", None, math.nan, datetime.date(2024, 5, 1),
        pd.Timestamp("2024-05-01"), "2024-05-01", (1, "a"), (True, "a"), "\x1fnumber 1/1",
        "\x1ftext a", "a\ud800", "x\ud800", Decimal("1e99999999"), math.inf, "inf", b"1", [1],
    ]  # fmt: skip
    found = codes(users)[0]
    frame = pd.DataFrame({"who": np.empty(len(users), dtype=object)})
    for i, user in enumerate(users):
        frame.at[i, "who"] = user
    frame["one"] = 1.0
    encoding = Encoding((Number("one"),))
    rows = (
        load_rows(dg.read(frame, user="who"), encoding, keep=["who"]).kept.column("who").to_pylist()
    )
    told = pd.factorize(np.array(rows, dtype=object))[0]
    valid = np.array([row is not None for row in rows])
    # What is no UTF-8 is nobody's in a table; all others are told apart alike.
    assert {users[i] for i in np.flatnonzero((found >= 0) & ~valid)} <= {"a\ud800", "x\ud800"}
    assert not valid[found < 0].any()
    for i, j in itertools.combinations(np.flatnonzero(valid).tolist(), 2):
        assert (found[i] == found[j]) == (told[i] == told[j]), (users[i], users[j])


def test_columns_of_objects_are_text_cell_by_cell() -> None:
    cells: list[Any] = [
        7,
        7.0,
        Decimal("7.00"),
        np.int8(7),
        "7",
        "007",
        True,
        2.50,
        None,
        [7],
        "seven",
    ]
    frame = pd.DataFrame({"item": np.empty(len(cells), dtype=object), "who": range(len(cells))})
    for i, cell in enumerate(cells):
        frame.at[i, "item"] = cell
    release = dg.histogram(
        dg.read(frame, user="who"), "item", unit=dg.User(), domain=[7, "007", True, 2.5, "[7]"],
        epsilon=1e6, delta=0.5, random_state=0,
    )  # fmt: skip
    assert release.to_pandas()["estimate"].round().tolist() == [5, 1, 1, 1, 1]


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("model", [LogisticRegression, LinearSVC])
@pytest.mark.parametrize(
    ("stated", "kept", "other"), [("7", "7", "007"), ("007", "007", "7"), (7, "7", "007")]
)
def test_classes_match_their_own_text(model: Any, stated: Any, kept: str, other: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, kept, "no").astype(object)

    def fitted(y: Any) -> Array:
        made = model(classes=[stated, "no"], rounds=3, random_state=0).fit(X, y)
        found: Array = made.coef_
        return found

    odd = y.copy()
    odd[5] = "neither"
    for spelling in [other, *(text for text in (*SEVEN, *ONE) if text != kept)]:
        strange = y.copy()
        strange[5] = spelling
        for column in (
            strange,
            strange.tolist(),
            pd.Series(strange),
            pd.Series(strange, dtype="category"),
        ):
            assert np.array_equal(fitted(column), fitted(odd)), spelling


def test_numbers_as_classes_of_a_column_of_text() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(int)

    def fitted(y: Any, classes: list[Any]) -> LogisticRegression:
        return LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, y)

    usual = fitted(y, [0, 1])
    for column in (
        y.astype(str),
        y.astype(object),
        y.astype(float),
        y > 0,
        [*map(str, y)],
        [*map(Decimal, y.tolist())],
    ):
        assert np.array_equal(fitted(column, [0, 1]).coef_, usual.coef_)
    assert np.array_equal(fitted((y > 0).astype(str), [False, True]).coef_, usual.coef_)
    assert np.array_equal(fitted(np.where(y, "2.5", "0"), [0, 2.5]).coef_, usual.coef_)
    # One odd cell changes no other, neither in a list nor where it makes text of numbers.
    for cells in (y.tolist(), y.astype(str).tolist()):
        odd, missing = [*cells], [*cells]
        odd[7], missing[7] = "?", None
        assert np.array_equal(fitted(odd, [0, 1]).coef_, fitted(missing, [0, 1]).coef_)
        assert np.array_equal(fitted(np.array(odd), [0, 1]).coef_, fitted(missing, [0, 1]).coef_)
    for odd_cell in (*HEX, *ONE[1:], Decimal("1e99999999"), "1" * 5000):
        odd = [*y.tolist()]
        odd[7] = odd_cell
        missing[:] = y.tolist()
        missing[7] = None
        assert np.array_equal(fitted(odd, [0, 1]).coef_, fitted(missing, [0, 1]).coef_), odd_cell


@pytest.mark.parametrize(
    "classes",
    [["7", "007"], [7, "7"], [0, 1], [0.5, 1], [False, True], [1, 1.5, "1"], [2**63, 2**64 - 1],
     [2**53, 2**53 + 1, 0.5], ["1e999999", "12e34567890abcde"]],
    ids=str,
)  # fmt: skip
def test_a_model_that_is_read_back_has_the_same_labels(classes: list[Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), [classes[i % len(classes)] for i in range(300)]
    model = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, y)
    again = load_model(model.save(tmp_path / "model.json"))
    for fitted in (model, again):
        assert {key(label) for label in fitted.classes_} == {key(label) for label in classes}
    assert list(map(key, again.classes_)) == list(map(key, model.classes_))
    assert list(map(key, again.predict(X))) == list(map(key, model.predict(X)))
    refitted = again.set_params(random_state=0).fit(X, y)
    assert np.array_equal(refitted.coef_, model.coef_)


def test_classes_in_their_order() -> None:
    assert ordered("classes", [3, 1, 2, 1]).tolist() == [1, 2, 3]
    assert ordered("classes", np.array(["b", "a"])).dtype.kind == "U"
    assert ordered("classes", [1, "1"]).tolist() == [1, "1"]
    assert ordered("classes", [2**53 + 1, 0.5]).tolist() == [0.5, 2**53 + 1]
    assert ordered("classes", [True, 1, 0]).tolist() == [0, True]
    for wrong in (["a", None], [math.nan, 1], "ab", [[1], [2]]):
        with pytest.raises(ParameterError, match="classes must"):
            ordered("classes", wrong)


def keys_of(domain: Any, column: Any) -> list[Any]:
    table = dg.read(pa.table({"who": [1], "item": column}), user="who")
    blocks = Blocks.of_unit(dg.User(), table, ["item"])
    found: list[Any] = (
        public_domain(domain, blocks, table, ["item"]).groups().columns[0].to_pylist()
    )
    return found


def test_domains_are_of_the_column_s_own_keys() -> None:
    text, whole_numbers = pa.array(["a"]), pa.array([1])
    assert keys_of(SEVEN, text) == SEVEN
    assert keys_of([7, 2.5, "007", True, 1e-5, np.int8(3)], text) == [
        "7",
        "2.5",
        "007",
        "True",
        "0.00001",
        "3",
    ]
    assert keys_of([7, 8.0, Decimal("9.0"), np.uint8(3), Fraction(4)], whole_numbers) == [
        7,
        8,
        9,
        3,
        4,
    ]
    assert keys_of([False, 1], pa.array([True])) == ["false", "true"]
    money = pa.array([Decimal("1.50")], pa.decimal128(9, 2))
    assert keys_of([1, 1.5, Decimal("-0.25"), "0.75"], money) == ["1.00", "1.50", "-0.25", "0.75"]
    assert keys_of([2**64 - 1, 5.0], pa.array([1], pa.uint64())) == [str(2**64 - 1), "5"]
    assert keys_of([datetime.date(2024, 5, 1), "2024-05-02"], text) == ["2024-05-01", "2024-05-02"]
    for wrong, column, words in [
        (["1"], whole_numbers, "holds '1', but the item column 'item' holds integers"),
        ([1.5], whole_numbers, "holds 1.5, but the item column 'item' holds integers"),
        ([Decimal("1e99999999")], whole_numbers, "but the item column 'item' holds integers"),
        ([Decimal("1e99999999")], text, "but the item column 'item' holds text"),
        ([math.inf], text, "holds inf, but the item column 'item' holds text"),
        ([Fraction(1, 3)], text, "but the item column 'item' holds text"),
        ([0.001], money, "holds 0.001, but the item column 'item' holds text"),
        ([1, "1"], text, "names item '1' twice"),
        ([1, True], whole_numbers, "names item 1 twice"),
        ([0.1, Decimal("0.1")], text, "names item '0.1' twice"),
    ]:
        with pytest.raises(ParameterError, match=words):
            keys_of(wrong, column)


def test_domains_of_decimals_meet_what_sql_writes() -> None:
    cells = [Decimal("1.00"), Decimal("1.50"), Decimal("-0.25"), Decimal("0.00")]
    table = dg.read(
        pa.table({"who": range(4), "item": pa.array(cells, pa.decimal128(9, 2))}), user="who"
    )
    release = dg.histogram(
        table,
        "item",
        unit=dg.User(),
        domain=[1, 1.5, -0.25, 0],
        epsilon=1e6,
        delta=0.5,
        random_state=0,
    )
    assert release.to_pandas()["estimate"].round().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("spelled", [SEVEN, ONE, HEX], ids=["seven", "one", "hex"])
def test_mappings_tell_spellings_apart(spelled: list[str], tmp_path: Path) -> None:
    """Whether the mapping is a dict, a table or a file, and the column text or whole numbers."""
    path = tmp_path / "map.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [("item", "cell"), *((text, f"cell of {i}") for i, text in enumerate(spelled))]
        )
    cells = [f"cell of {i}" for i in range(len(spelled))]
    mapping = dict(zip(spelled, cells, strict=True))
    table = dg.read(pa.table({"who": range(len(spelled)), "item": spelled}), user="who")
    for by in (mapping, pa.table({"i": spelled, "c": cells}), path):
        release = dg.histogram(
            table.with_cells("cell", of="item", by=by), "cell", unit=dg.User(), domain=cells,
            epsilon=1e6, delta=0.5, random_state=0,
        )  # fmt: skip
        assert release.to_pandas()["estimate"].round().tolist() == [1.0] * len(spelled)
    numbers = dg.read(pa.table({"who": [1], "item": [7]}), user="who")
    for text in spelled:
        if whole(text) is None:
            with pytest.raises(ParameterError, match=r"names item .* holds integers"):
                numbers.with_cells("cell", of="item", by={text: "a"})
    assert numbers.with_cells("cell", of="item", by={"7": "a"}).cells["cell"].elements.mapping == {
        7: "a"
    }
    # Stated numbers meet the text that they are written as.
    known = table.with_cells("cell", of="item", by={7: "a", 2.5: "b", True: "c"}).cells["cell"]
    assert known.elements.mapping == {"7": "a", "2.5": "b", "True": "c"}


def test_text_places_of_a_roster_are_those_of_numbers() -> None:
    rows = arrange(6, ["7", 7, "007", "+7", 7.0, None], None, User(), places=True)
    assert rows.owners[rows.blocks].tolist() == [0, 0, 1, 2, 0]
    assert arrange(2, ["7", 7], None, User()).users == 2


@examples(30)
@given(
    st.lists(
        st.text(alphabet="0123456789abcdef", min_size=16, max_size=16) | WRITTEN,
        min_size=1,
        max_size=40,
    )
)
def test_users_of_arrays_and_of_tables_are_the_same(users: list[str]) -> None:
    valid = [user for user in users if user.isprintable() and user.isascii()]
    table = pa.table({"who": pa.array(valid, pa.string())})
    with dg.read(table, user="who").open_engine() as engine:
        assert len(engine.distinct(["who"])) == len(set(valid))
    assert arrange(len(valid), valid, None, User()).users == len(set(valid))


def test_hex_ids_do_not_hold_up_a_fit() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    users = [f"{number:016x}" for number in rng.integers(0, 2**63, 2990)]
    users += [*HEX, "123456789012e345", "1e99999999", "9e+999999", "1E9999999"]
    y = (X[:, 0] > 0).astype(int).tolist()
    model = LogisticRegression(classes=[0, 1], rounds=2, random_state=0)
    kept = model.fit(X, y, users=users, elements=None).coef_
    assert np.isfinite(kept).all()
    elements = LogisticRegression(classes=[0, 1], rounds=2, random_state=0, unit=Element())
    assert np.isfinite(elements.fit(X, y, users=users, elements=users).coef_).all()
    strange = [*y[:-3], "1e999999", Decimal("1e99999999"), "12e34567890abcde"]
    assert np.isfinite(model.fit(X, strange, users=users).coef_).all()
    assert arrange(3, [Decimal("1e99999999"), Decimal("1e-99999999"), 1], None, User()).users == 1


def test_what_files_and_the_command_line_state_is_text(tmp_path: Path) -> None:
    """It meets whole numbers by their canonical text, and text by itself."""
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
    for wrong in [text for text in SEVEN[1:] if text.strip() == text]:
        refused = published("item", [wrong])
        assert "must hold integers" in str(refused.exception)
    assert published("text", ["007", "7", "7.0"]).exit_code == 0
    found = pd.read_csv(out, dtype=str).set_index("text")["estimate"].astype(float).round()
    assert found.to_dict() == {"007": 30, "7": 30, "7.0": 0}


# --- in every form, from what a list says ---

CLASH: list[Any] = ["\ud800", "'\\ud800'", "a", "\udcff", "7", "007", "é", "e\u0301", "A", " "]


@pytest.mark.parametrize("form", [np.array, lambda c: np.array(c, dtype="U9"), tuple])
def test_texts_of_an_array_are_as_many_labels_as_those_of_a_list(form: Any) -> None:
    for pair in itertools.permutations(CLASH, 2):
        assert codes(form(pair))[0].tolist() == [0, 1], pair
        assert codes(form(pair))[1] == [key(label) for label in pair]
        assert codes(pd.Series(pair, dtype=object))[0].tolist() == [0, 1], pair


@pytest.mark.parametrize("kind", ["U1", "S1", object, "i8", "f8", "M8[s]"])
def test_labels_of_two_dimensions_are_refused_whatever_their_type(kind: Any) -> None:
    for shape in ((2, 2), (2, 1), ()):
        with pytest.raises(ParameterError, match="users must have one label for each row"):
            arrange(2, np.ones(shape, dtype=int).astype(kind), None, User())


def test_a_lone_surrogate_and_its_escape_are_two_persons() -> None:
    users = np.array(["'\\ud800'"] + ["\ud800"] * 999)
    assert moved(users, users[:1], [-1.0] + [1.0] * 999) < 1.01


def not_utf8(cells: list[bytes]) -> pa.Array:
    ends = pa.array(np.cumsum([0, *map(len, cells)]), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(
        pa.string(), len(cells), [None, ends, pa.py_buffer(b"".join(cells))]
    )


FAR = 2**62
DAYS = pa.array([1, 2, None, 10**7], pa.int32()).cast(pa.date32())
#: Columns of four cells, of which the third is null and the last one is one that Python may lack.
ARROWS: dict[str, pa.Array] = {
    "int": pa.array([1, 2, None, 1]),
    "large int": pa.array([2**53, 2**53 + 1, None, 2**63], pa.uint64()),
    "float": pa.array([1.5, 2.0, None, math.inf]),
    "truth": pa.array([True, False, None, True]),
    "text": pa.array(["7", "007", None, "\x00"]),
    "large text": pa.array(["7", "007", None, "7"], pa.large_string()),
    "view": pa.array(["7", "007", None, "7"], pa.string_view()),
    "not UTF-8": not_utf8([b"a", b"b", b"", b"\xff"]),
    "dictionary": pa.array(["7", "007", None, "7"]).dictionary_encode(),
    "dictionary of days": DAYS.dictionary_encode(),
    "dictionary, not UTF-8": not_utf8([b"a", b"b", b"", b"\xff"]).dictionary_encode(),
    "binary": pa.array([b"a", b"b", None, b"\xff"]),
    "decimal": pa.array([Decimal("0.10"), Decimal("0.20"), None, Decimal("9" * 20)]),
    "days": DAYS,
    "days in ms": pa.array([86400000, 0, None, FAR], pa.int64()).view(pa.date64()),
    **{
        f"{kind.__name__} {unit}": pa.array([1, 2, None, FAR], pa.int64()).view(kind(unit))
        for kind in (pa.timestamp, pa.duration)
        for unit in ("s", "ms", "us", "ns")
    },
    **{
        f"UTC {unit}": pa.array([1, 2, None, FAR], pa.int64()).view(pa.timestamp(unit, "Europe/Paris"))
        for unit in ("s", "ms", "us", "ns")
    },
    "time": pa.array([1000, 2000, None, FAR], pa.int64()).view(pa.time64("ns")),
    "odd time": pa.array([1000, 2000, None, 1], pa.int64()).view(pa.time64("ns")),
    "list": pa.array([[1], [2], None, [1]]),
    "null": pa.nulls(4),
    "list of days": pa.ListArray.from_arrays([0, 1, 2, 3, 4], DAYS),
}  # fmt: skip


def forms_of(column: pa.Array) -> Iterator[tuple[str, Any]]:
    """An Arrow column in every form that a caller has it in."""
    yield "array", column
    yield "chunks", pa.chunked_array([column[:2], column[2:2], column[2:]])
    yield "column of a table", pa.table({"u": column})["u"]
    own = pd.Series(column, dtype=pd.ArrowDtype(column.type))
    yield "pandas", own
    yield "array of pandas", own.array
    yield "index of pandas", pd.Index(own)
    if pa.types.is_time(column.type) or pa.types.is_dictionary(column.type):
        return
    with contextlib.suppress(pl.exceptions.PolarsError):
        yield "Polars", pl.Series(column)


@pytest.mark.parametrize("name", ARROWS)
def test_columns_of_arrow_are_read_cell_by_cell(name: str) -> None:
    column = ARROWS[name]
    listed: list[Any] = []
    for cell in column:
        try:
            listed.append(cell.as_py())
        except Exception:
            # What Python lacks is a label by what is stored, or none.
            listed.append(...)
    expected = [key(cell) for cell in listed]
    for form, held in forms_of(column):
        if form == "Polars" and name in ("not UTF-8", "null"):
            # Polars reads text when it takes it.
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, keys = codes(held)
            rows = arrange(4, held, None, User())
            arrange(4, [1, 1, 1, 1], held, Element())
            unselected(np.asarray(column_of(held)))
        own = [None if code < 0 else keys[code] for code in found]
        for mine, theirs, cell in zip(own, expected, listed, strict=True):
            assert cell is ... or mine == theirs, (form, own, expected)
        # Nobody is the person that a far cell names.
        assert found[3] < 0 or found[3] not in found[:2] or listed[3] is not ...
        assert rows.users == len(set(found[found >= 0]))
        assert np.array_equal(found, codes(column)[0]), form


def test_targets_of_a_column_of_a_table_are_those_of_a_list() -> None:
    X = np.random.default_rng(0).normal(size=(600, 2))
    y = (X[:, 0] > 0).astype(int)
    for values, classes in ((y, [0, 1]), (np.where(y, "yes", "no"), ["no", "yes"])):
        usual = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, values)
        for _, held in forms_of(pa.array(values.tolist())):
            model = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, held)
            assert np.array_equal(model.coef_, usual.coef_)
    numbers = pa.chunked_array([X[:300, 0], X[300:, 0]])
    usual = LinearRegression(rounds=3, random_state=0).fit(X, X[:, 0])
    found = LinearRegression(rounds=3, random_state=0).fit(X, numbers)
    assert np.array_equal(found.coef_, usual.coef_)


# --- what is published of a label ---


@examples(300)
@given(LABELS, LABELS)
@example(Decimal("0.1"), 0.1)
@example(2**53 + 1, float(2**53))
@example(Fraction(1, 3), math.inf)
def test_a_published_label_is_made_from_its_key_alone(a: Any, b: Any) -> None:
    for label in (a, b):
        name = key(label)
        if name is not None:
            assert key(label_of(name)) == name
    if key(a) == key(b) is not None:
        assert repr(label_of(key(a))) == repr(label_of(key(b)))  # type: ignore[arg-type]


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
    assert key(label_of(name)) == name
    assert sorted([("~", ""), name], key=rank)[0] == name


#: Labels that are equal, of several types; and another one of their kind.
EQUAL: list[tuple[list[Any], Any]] = [
    ([1, 1.0, True, 1 + 0j, Decimal(1), np.complex128(1), np.int8(1)], 2),
    ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), np.datetime64("2020-01-01", "ns"),
      pd.Timestamp("2020-01-01")], datetime.date(2021, 1, 1)),
    ([math.inf, np.float32("inf"), Decimal("Infinity")], 2),
    ([(1, "a"), (True, "a"), (1.0, b"a")], (2, "b")),
    (["a", b"a", np.str_("a")], "b"),
    ([2**53 + 1, Decimal(2**53 + 1)], float(2**53)),
    ([0.1, np.float64(0.1)], Decimal("0.1")),
]  # fmt: skip


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("case", EQUAL, ids=lambda case: repr(case[0][0]))
def test_published_labels_do_not_follow_the_first_row(case: tuple[list[Any], Any]) -> None:
    several, other = case
    X = np.random.default_rng(0).normal(size=(2000, 2))
    X[0, 0] = 1.0
    said = set()
    for first, rest in itertools.permutations(several, 2):
        y = np.empty(len(X), dtype=object)
        for place, x in enumerate(X[:, 0]):
            y[place] = rest if x > 0 else other
        y[0] = first
        model = LogisticRegression(epsilon=5.0, rounds=1, random_state=0).fit(X, y)
        found = model.classes_
        assert {key(label) for label in found} == {key(first), key(other)}
        said.add((str(found.dtype), repr(found.tolist()), repr(model.coef_.tolist())))
    assert len(said) == 1


def test_numbers_of_one_hash_take_no_longer_than_others() -> None:
    def seconds(step: int, start: int) -> float:
        values = [start + step * (10**4 + i) for i in range(6000)]
        before = time.process_time()
        assert len(codes(values)[1]) == len(values)
        return time.process_time() - before

    # Whole numbers that differ by multiples of this have one hash.
    assert len({hash((2**61 - 1) * i) for i in range(1, 9)}) == 1
    assert seconds(2**61 - 1, 0) < 20 * seconds(1, 10**30)
