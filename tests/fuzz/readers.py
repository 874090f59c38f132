"""All readers of the library, each with valid generated files and the function that reads them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.claims.publishers import People, publishers
from tests.fuzz.mutations import BYTES, JSON, Damage, input_of
from tests.fuzz.watch import CANARY, OwnError, quotes
from tests.ledger import cases as ledgers
from tests.releases import cases as releases

import dpgrain as dg
from dpgrain import accounting, learn, papers, shuffle
from dpgrain.accounting import Event
from dpgrain.errors import SchemaError
from dpgrain.noise import SeededSource
from dpgrain.optimize import Ball, Constant, Last, Sgd
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.tables.public_lists import read_public_list

_ROWS = 40
# The field of a saved release's metadata that describes it.
_ABOUT = b"dpgrain"
_PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "random_state": 1}


@dataclass(frozen=True, eq=False)
class Reader:
    """A reader.

    Args:
        share: relative number of inputs; faster readers have more.
        always: True if every input must be readable, whatever its contents.
    """

    name: str
    make: Callable[[Path], Iterator[bytes]]
    read: Callable[[Path], Any]
    ending: str = ""
    damages: Sequence[Damage] = BYTES
    share: float = 1.0
    always: bool = False
    finish: Callable[[bytes], bytes] = bytes

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def seeds(self) -> tuple[bytes, ...]:
        with TemporaryDirectory() as folder:
            return tuple(self.make(Path(folder)))

    def input(self, number: int) -> bytes:
        """The input of a number; the first numbers are the valid files themselves."""
        if number < len(self.seeds):
            return self.finish(self.seeds[number])
        return self.finish(input_of(self.name, number, self.seeds, self.damages))

    def act(self, number: int, folder: Path) -> Callable[[], Any]:
        """Write input number n into a folder, and return its reader."""
        path = folder / f"input{self.ending}"
        path.write_bytes(self.input(number))
        return lambda: self.read(path)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------- tables


def _rows() -> pa.Table:
    number = range(_ROWS)
    return pa.table(
        {
            "who": [f"{CANARY}-{i % 7}" for i in number],
            "item": [f'{CANARY} "{i % 3}", or so' for i in number],
            "x": [i / 7 - 1 for i in number],
            "day": pa.array([20_000 + i for i in number], pa.int32()).cast(pa.date32()),
        }
    )


def _published(table: Any) -> Any:
    if table.schema.get("x") != "DOUBLE":
        return dg.histogram(table, "item", clip=1.0, **_PROMISE)
    more: dict[str, Any] = {"bounds": (-1.0, 1.0), "clip": 1.0, **_PROMISE}
    return dg.sum(table, "x", by="item", **more)


def _csv(folder: Path) -> Iterator[bytes]:
    held = io.BytesIO()
    pyarrow.csv.write_csv(_rows(), held)
    text = held.getvalue()
    yield text
    yield text.replace(b'""', b"").replace(b'"', b"").replace(b"\n", b"\r\n")
    yield b"\xef\xbb\xbf" + text.replace(b'""', b"'")


def _read_csv(path: Path) -> Any:
    try:
        return _published(
            dg.read(path, user="who", types={"x": "DOUBLE", "day": "DATE"}, threads=1)
        )
    except SchemaError:
        # The first line of a file contains public column names, even if damage turned a row into
        # it.
        if quotes(" ".join(_header(path))):
            raise OwnError from None
        raise


def _header(path: Path) -> list[str]:
    held = path.read_bytes()
    if path.suffix == ".gz":
        held = gzip.decompress(held)
    return next(csv.reader(io.StringIO(held.decode(errors="replace"), newline="")), [])


def _bodies(folder: Path) -> Iterator[bytes]:
    return (text.partition(b"\n")[2] for text in _csv(folder))


def _parquet(folder: Path) -> Iterator[bytes]:
    rows = _rows()
    more = {
        "plain": rows,
        "lists": rows.append_column("l", pa.array([[i] for i in range(_ROWS)])),
        "times": rows.append_column("t", pa.array(range(_ROWS), pa.timestamp("ns"))),
    }
    for name, table in more.items():
        for compression in ("none", "zstd"):
            path = folder / f"{name}-{compression}.parquet"
            pq.write_table(table, path, compression=compression, row_group_size=15)
            yield path.read_bytes()


def _read_parquet(path: Path) -> Any:
    return _published(dg.read(path, user="who", threads=1))


# ---------------------------------------------------------------------------- promises and releases


@cache
def _guarantees() -> list[dg.Guarantee]:
    """The guarantee of each function that publishes."""
    found = []
    for publisher in publishers(People.of(0)).values():
        asked = {name: values[0] for name, values in publisher.options.items()}
        if len(publisher.units) > 1:
            asked["unit"] = publisher.units[-1]
        for delta in ({"delta": 1e-6}, {}):
            with suppress(dg.ParameterError):
                query = publisher.query(epsilon=1.0, **delta, **asked)
                found.append(query.settled().plan.guarantee)
                break
    scoped = ledgers.of_days(3.0, ledgers.on("2025-01-01", "2025-02-01", "fr"))
    return [*found, ledgers.of_users(), scoped]


def _read_event(path: Path) -> Any:
    event = Event.from_json(_text(path))
    assert Event.from_json(event.to_json()) == event
    return accounting.Neighbours(1, "zero_out", dg.User(), None)


def _read_guarantee(path: Path) -> Any:
    guarantee = dg.Guarantee.from_json(_text(path))
    assert dg.Guarantee.from_json(guarantee.to_json()) == guarantee
    return str(guarantee), guarantee.hash


def _saved(folder: Path) -> Iterator[bytes]:
    table = dg.read(releases.ROWS, user="who", n_users=600, threads=1)
    path = folder / "saved.parquet"
    promise = {**_PROMISE, "clip": 9.0}
    made = [
        dg.histogram(table, "page", **promise),
        dg.mean(table, "age", by="topic", domain=["t0", "t1"], bounds=(0, 100), **promise),
        dg.quantiles(table, "seconds", bounds=(0, 100), **promise),
        dg.top(table, "page", k=3, **{k: v for k, v in promise.items() if k != "clip"}),
    ]
    for release in made:
        yield release.save(path).read_bytes()


def _load_release(path: Path) -> Any:
    release = dg.Release.load(path)
    return str(release), repr(release), release.hash


def _metadata(data: bytes) -> dict[bytes, bytes]:
    return dict(pq.read_schema(io.BytesIO(data)).metadata)


def _about(folder: Path) -> Iterator[bytes]:
    for data in _saved(folder):
        yield _metadata(data)[_ABOUT]


@cache
def _whole() -> tuple[bytes, ...]:
    with TemporaryDirectory() as folder:
        return tuple(_saved(Path(folder)))


def _with_about(about: bytes) -> bytes:
    """A saved release with another release's description, the most similar one."""
    own = [_metadata(data)[_ABOUT] for data in _whole()]
    nearest = min(range(len(own)), key=lambda i: abs(len(own[i]) - len(about)))
    table = pq.read_table(io.BytesIO(_whole()[nearest]))
    held = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, _ABOUT: about}), held)
    return held.getvalue()


# ------------------------------------------------------------------------------------------ models


def _models(folder: Path) -> Iterator[bytes]:
    rng = np.random.default_rng(0)
    X, users = rng.normal(size=(60, 2)), np.arange(60) // 3
    y = (X[:, 0] > 0).astype(float)
    solver = Sgd(Constant(0.1), Ball(2.0), Last())
    few: dict[str, Any] = {"rounds": 2, "epsilon": 4.0, "random_state": 0, "n_users": 20}
    three = np.array(["a", "b", "c"], dtype=object)[rng.integers(0, 3, 60)]
    made = [
        learn.LogisticRegression(classes=["a", "b", "c"], **few).fit(X, three, users=users),
        learn.LinearRegression(algorithm=solver, unit=dg.User(), **few).fit(X, y, users=users),
        learn.LinearRegression(clip="auto", intervals=0.3, **few).fit(X, y, users=users),
    ]
    for model in made:
        yield model.save(folder / "model.json").read_bytes()
    # A model of columns has their encoding.
    releases.parquet(folder)
    text = releases.TABLE + releases.BUDGET + releases.releases("share = 1.0", ["fit"])
    dg.releases(releases.written(folder, text + 'output = "columns.json"\n'), random_state=0)
    yield (folder / "columns.json").read_bytes()


def _read_model(path: Path) -> Any:
    model = learn.load(path)
    names = model.feature_names_in_ if hasattr(model, "feature_names_in_") else None
    X = pd.DataFrame(np.zeros((3, np.atleast_2d(model.coef_).shape[-1])), columns=names)
    return repr(model), str(model.guarantee_), model.predict(X if names is not None else X.values)


# ----------------------------------------------------------------------------------------- ledgers


def _ledger(folder: Path) -> Iterator[bytes]:
    path = folder / "held.ledger"
    with ledgers.made(path, ledgers.OF_DAYS, ledgers.USERS) as ledger:
        ledger.charge(ledgers.of_users(), mark="first")
        ledger.charge(ledgers.of_days(90.0, ledgers.on("2025-03-01", "2025-03-04")))
    yield path.read_bytes()


def _read_ledger(path: Path) -> Any:
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    with dg.Ledger(path) as ledger:
        for entry in ledger.entries:
            str(entry)
        for number in ledger.promises:
            ledger.left(number)
        ledger.charge(ledgers.of_users(1e4))
        return ledger.verify()


@cache
def _held() -> bytes:
    with TemporaryDirectory() as folder:
        return next(_ledger(Path(folder)))


def _lines(folder: Path) -> Iterator[bytes]:
    path = folder / "held.ledger"
    path.write_bytes(_held())
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT body FROM lines ORDER BY number").fetchall()
    return (body.encode() for (body,) in found)


def _read_line(path: Path) -> Any:
    """Read a ledger with one line replaced by another, in a consistent chain."""
    forged = path.read_bytes().decode("utf-8", "replace")
    place = path.with_name("forged.ledger")
    place.write_bytes(_held())
    with closing(sqlite3.connect(place)) as connection, connection:
        bodies = [row[0] for row in connection.execute("SELECT body FROM lines ORDER BY number")]
        stated = re.match(r'{"number": ?(\d)', forged)
        bodies[(int(stated[1]) if stated else len(forged)) % len(bodies)] = forged
        before = ""
        for number, body in enumerate(bodies):
            rest = body.partition('"at"')[2]
            chained = f'{{"number":{number},"before":"{before}","at"{rest}'
            before = hashlib.sha256(chained.encode()).hexdigest()
            connection.execute(
                "UPDATE lines SET hash = ?, body = ? WHERE number = ?", (before, chained, number)
            )
    return _read_ledger(place)


# ------------------------------------------------------------------------ files of releases, domains


def _toml(folder: Path) -> Iterator[bytes]:
    each = f"share = {1 / len(releases.KINDS)!r}"
    table = (
        releases.TABLE
        + '[table.columns]\nhalf = "age / 2"\n'
        + '[table.where]\npage = ["p1", "p2"]\n'
    )
    yield (releases.TABLE + releases.BUDGET + releases.releases(each)).encode()
    yield (table + releases.BUDGET + releases.releases(each, ["count", "sum", "fit"])).encode()
    for name in releases.KINDS:
        text = releases.STATED + releases.releases("epsilon = 1.0\ndelta = 1e-6", [name])
        yield (releases.TABLE + text).encode()


@cache
def _visits() -> bytes:
    with TemporaryDirectory() as folder:
        return releases.parquet(Path(folder)).read_bytes()


def _read_toml(path: Path) -> Any:
    visits = path.with_name("visits.parquet")
    if not visits.exists():
        visits.write_bytes(_visits())
    return str(dg.plan_releases(path))


def _domain(folder: Path) -> Iterator[bytes]:
    yield b"item\na\nb\n"
    yield 'name,item\n"é, ü",a\n1,2\n'.encode()
    yield b"\xef\xbb\xbf" + b"1\n2\n3\n"


_TABLE = dg.read(releases.ROWS, user="who", n_users=600, threads=1)


def _read_domain(path: Path) -> Any:
    with suppress(dg.ParameterError):
        read_public_list(path, ["who"], _TABLE)
    return read_public_list(path, ["page"], _TABLE)


def _domain_parquet(folder: Path) -> Iterator[bytes]:
    path = folder / "domain.parquet"
    pq.write_table(pa.table({"page": ["a", "b", None], "who": [1, 2, 3]}), path)
    yield path.read_bytes()


def _partition(folder: Path) -> Iterator[bytes]:
    yield b"page,cell\np1,first\np2,second\n"
    yield b'"page","cell"\n"p1","a,b"\n'


def _read_partition(path: Path) -> Any:
    unit = dg.Element(path)
    promise: dict[str, Any] = {"unit": unit, "epsilon": 1.0, "delta": 1e-6, "clip": 1.0}
    query = dg.histogram.query(_TABLE, "page", **promise)
    return query.plan.guarantee


def _expressions(folder: Path) -> Iterator[bytes]:
    for text in (
        "(age - 3) / 2 + seconds * 1e3 > 0",
        "if(page == 'p1' and age > 2 or not bought == 1, 1, 0) = 1",
        "lower(page) = 'a'",
        "coalesce(prefix(page, 2), 'none') != trim(topic)",
        "`page` in ('a', 'b')",
        "length(page) < 15",
    ):
        yield text.encode()


def _read_expression(path: Path) -> Any:
    text = _text(path)
    return _TABLE.derive({"made": text}).schema, _TABLE.filter(text)


# --------------------------------------------------------------------------------------- devices


def _protocols() -> list[Any]:
    numbers: dict[str, Any] = {"n_users": 40, "epsilon": 2.0, "delta": 1e-5}
    return [
        shuffle.VectorSum(dim=2, **numbers),
        shuffle.PoissonSum(dim=2, **numbers),
        shuffle.ScalarSum(rounds=2, honest_fraction=0.9, **numbers),
    ]


_PROTOCOLS = cache(_protocols)


def _protocol_texts(folder: Path) -> Iterator[bytes]:
    return (protocol.to_json().encode() for protocol in _PROTOCOLS())


def _read_protocol(path: Path) -> Any:
    protocol = ShuffledSum.from_json(_text(path))
    return repr(protocol), protocol.guarantee.epsilon()


def _reports(folder: Path) -> Iterator[bytes]:
    for protocol in _PROTOCOLS()[:2]:
        device: Any = protocol.randomizer()
        for vector in (None, [0.5, 0.5], [np.nan, 1e300]):
            yield device.report(vector, random_state=3)
        yield device.report(None, random_state=4, device="a")


def _receive(path: Path) -> Any:
    for number, protocol in enumerate(_PROTOCOLS()[:2]):
        shuffler: Any = _shufflers()[number]
        shuffler.receive(path.read_bytes())
        protocol.shuffler().receive(path.read_bytes(), device="a")
    return True


@cache
def _shufflers() -> list[Any]:
    return [protocol.shuffler() for protocol in _PROTOCOLS()]


def _bags(folder: Path) -> Iterator[bytes]:
    for protocol in _PROTOCOLS()[:2]:
        shuffler: Any = protocol.shuffler()
        for number in range(protocol.n_users):
            shuffler.receive(protocol.randomizer().report([0.1, 0.2], random_state=number))
        yield shuffler.release().to_bytes()


def _estimate(path: Path) -> Any:
    for protocol in _PROTOCOLS()[:2]:
        with suppress(dg.ParameterError):
            return protocol.analyzer().estimate(path.read_bytes())
    return _PROTOCOLS()[0].analyzer().estimate(path.read_bytes())


def _streams(folder: Path) -> Iterator[bytes]:
    stream = papers.PanPrivateStream(papers.PanPrivate(1.0, 5.0, n_users=10, rounds=1), dimension=2)
    yield stream.to_json().encode()
    stream.receive([1.0, 0.0])
    yield stream.to_json().encode()


def _read_stream(path: Path) -> Any:
    stream = papers.PanPrivateStream.from_json(_text(path), SeededSource(1))
    stream.receive([0.5] * len(json.loads(stream.to_json())["state"]))
    return repr(stream)


def _states(folder: Path) -> Iterator[bytes]:
    yield SeededSource(4).state().encode()
    yield SeededSource(np.random.Generator(np.random.MT19937(3))).state().encode()


def _read_state(path: Path) -> Any:
    return SeededSource.from_state(_text(path)).words(3)


def _checkpoints(folder: Path) -> Iterator[bytes]:
    from tests.torch.test_checkpoint import saved

    path = folder / "last.pt"
    saved(path)
    yield path.read_bytes()


def _read_checkpoint(path: Path) -> Any:
    from dpgrain.torch.checkpoint import Checkpoint

    return Checkpoint.read(path)


def _of(texts: Callable[[], Sequence[str]]) -> Callable[[Path], Iterator[bytes]]:
    return lambda folder: (text.encode() for text in texts())


# Readers that need PyTorch.
_OF_TORCH = (Reader("checkpoints", _checkpoints, _read_checkpoint, ".pt", share=0.5),)
READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("csv", _csv, _read_csv, ".csv", share=0.2),
        Reader(
            "rows of csv",
            _bodies,
            _read_csv,
            ".csv",
            share=0.2,
            always=True,
            finish=lambda body: b"who,item,x,day\n" + body,
        ),
        Reader("packed csv", _csv, _read_csv, ".csv.gz", share=0.1, finish=gzip.compress),
        Reader("parquet", _parquet, _read_parquet, ".parquet", share=0.5),
        Reader(
            "events",
            _of(lambda: [g.event.to_json() for g in _guarantees()]),
            _read_event,
            ".json",
            JSON,
            5.0,
        ),
        Reader(
            "guarantees",
            _of(lambda: [g.to_json() for g in _guarantees()]),
            _read_guarantee,
            ".json",
            JSON,
            3.0,
        ),
        Reader("releases", _saved, _load_release, ".parquet", share=0.5),
        Reader("words of releases", _about, _load_release, ".parquet", JSON, finish=_with_about),
        Reader("models", _models, _read_model, ".json", JSON, 1.5),
        Reader("ledgers", _ledger, _read_ledger, ".ledger", share=0.3),
        Reader("lines of ledgers", _lines, _read_line, ".json", JSON, 0.3),
        Reader("files of releases", _toml, _read_toml, ".toml", share=0.4),
        Reader("domains as text", _domain, _read_domain, ".txt", share=2.0),
        Reader("domains as csv", _domain, _read_domain, ".csv", share=1.0),
        Reader("domains as parquet", _domain_parquet, _read_domain, ".parquet"),
        Reader("partitions", _partition, _read_partition, ".csv", share=0.5),
        Reader("expressions", _expressions, _read_expression, share=2.0),
        Reader("protocols", _protocol_texts, _read_protocol, ".json", JSON, 0.5),
        Reader("reports of devices", _reports, _receive, share=4.0),
        Reader("bags", _bags, _estimate, share=3.0),
        Reader("streams", _streams, _read_stream, ".json", JSON, 3.0),
        Reader("states of generators", _states, _read_state, ".json", JSON, 2.0),
        *(_OF_TORCH if find_spec("torch") else ()),
    )
}
