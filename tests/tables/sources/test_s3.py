"""Parquet files of S3, on a separate server on this machine."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.engines.duckdb import DuckDB

moto = pytest.importorskip("moto.server", reason="needs moto[s3,server], a server of S3 for tests")
boto3 = pytest.importorskip("boto3", reason="needs boto3, which comes with moto")

NOTHING = "__HIVE_DEFAULT_PARTITION__"
KEY, SECRET = "AKIACANARY7", "canary-secret-44"


class Bucket:
    def __init__(self, port: int) -> None:
        self.options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self._client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1"
        )
        self._client.create_bucket(Bucket="visits")

    def at(self, path: str) -> str:
        return f"s3://visits/{path}{self.options}"

    def put(self, path: str, rows: pa.Table | bytes) -> None:
        if isinstance(rows, pa.Table):
            file = io.BytesIO()
            pq.write_table(rows, file)
            rows = file.getvalue()
        self._client.put_object(Bucket="visits", Key=path, Body=rows)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield running.get_host_and_port()[1]
    running.stop()


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    made = Bucket(server)
    yield made
    for each in made._client.list_objects_v2(Bucket="visits").get("Contents", ()):
        made._client.delete_object(Bucket="visits", Key=each["Key"])


def rows_of(who: int, **columns: Any) -> pa.Table:
    return pa.table({"who": [who, who], **columns})


def held(source: Any, column: str = "month") -> dict[int, Any]:
    with DuckDB(dg.read(source, user="who")) as engine:
        found = engine.query(f'SELECT DISTINCT who, "{column}" AS x FROM source', [column])
    return {row["who"]: row["x"] for row in found.to_pylist()}


@pytest.mark.slow
def test_a_folder_with_partitions_is_a_table(bucket: Bucket) -> None:
    names = ["1", "02", NOTHING, "a%2Fb", "%FF"]
    for who, name in enumerate(names):
        bucket.put(f"lake/month={name}/part-0.parquet", rows_of(who))
    bucket.put("lake/_SUCCESS", b"")
    table = dg.read(bucket.at("lake"), user="who")
    assert table.schema == {"who": "BIGINT", "month": "VARCHAR"}
    assert table.provenance == "table"
    assert held(bucket.at("lake")) == {0: "1", 1: "02", 2: None, 3: "a/b", 4: None}
    release = dg.count(
        table, by="month", domain=["1", "02", "9"], unit=dg.User(), epsilon=50.0, delta=1e-6,
        random_state=1,
    )  # fmt: skip
    assert release.estimate.round().tolist() == [2, 2, 0]
    assert release.guarantee.provenance == "table"


def test_files_are_a_table(bucket: Bucket) -> None:
    for who in range(3):
        bucket.put(f"month=9/{who}.parquet", rows_of(who, x=["a", "b"]))
    listed = [bucket.at(f"month=9/{who}.parquet") for who in (0, 1, 0)]
    table = dg.read(listed, user="who")
    assert table.schema == {"who": "BIGINT", "x": "VARCHAR"}
    with DuckDB(table) as engine:
        assert engine.query("SELECT count(*) AS n FROM source").column("n")[0].as_py() == 4


def test_a_column_of_the_files_is_read_from_them(bucket: Bucket) -> None:
    bucket.put("lake/month=1/a.parquet", rows_of(0, month=[7, 7]))
    assert held(bucket.at("lake")) == {0: 7}


def test_malformed_values_end_nothing(bucket: Bucket) -> None:
    label = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers())
    at = pa.array([0, 2**62], pa.timestamp("ms"))
    bucket.put("lake/a.parquet", pa.table({"who": [1, 2], "label": label, "at": at}))
    assert held(bucket.at("lake"), "label") == {1: "a", 2: None}
    assert held(bucket.at("lake"), "at")[2] is None


PLACES: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "nothing": ("lake", {}, DataError, "S3 has no file or folder 'lake'; check the address"),
    "a pattern": ("lake/*", {}, ParameterError, "must be a folder or files in S3, not a pattern"),
    "CSV": ("lake", {"lake/a.csv": b"who\n1\n"}, ParameterError, "'a.csv' must end in .parquet"),
    "no Parquet": ("lake", {"lake/a.parquet": b"x"}, DataError, "cannot be reached; check the"),
    "hidden files": (
        "lake",
        {"lake/_a.parquet": b"x"},
        DataError,
        "S3 folder 'lake' contains no files",
    ),
    "another column": (
        "lake",
        {"lake/a.parquet": rows_of(1), "lake/b.parquet": rows_of(1, x=[1, 2])},
        SchemaError,
        "The file 'b.parquet' must have the same columns and types as 'a.parquet'",
    ),
    "another type": (
        "lake",
        {"lake/a.parquet": rows_of(1, x=[1, 2]), "lake/b.parquet": rows_of(1, x=["a", "b"])},
        SchemaError,
        "The file 'b.parquet' must have the same columns and types as",
    ),
    "other levels": (
        "lake",
        {"lake/month=1/a.parquet": rows_of(1), "lake/b.parquet": rows_of(1)},
        SchemaError,
        "same levels of name=value",
    ),
    "Delta": (
        "lake",
        {"lake/a.parquet": rows_of(1), "lake/_delta_log/0.json": b"{}"},
        ParameterError,
        "'lake' must not be a table of Delta",
    ),
}


@pytest.mark.parametrize("kind", PLACES)
def test_unreadable_object_error_is_one_sentence(kind: str, bucket: Bucket) -> None:
    path, files, error, told = PLACES[kind]
    for name, content in files.items():
        bucket.put(name, content)
    with pytest.raises(error, match=told):
        dg.read(bucket.at(path), user="who")


@pytest.mark.slow
def test_no_key_is_shown(
    bucket: Bucket, server: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket.put("lake/a.parquet", rows_of(1))
    seen = []
    for address in (
        f"s3://{KEY}:{SECRET}@visits/lake{bucket.options}",
        "s3://visits/lake?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1",
    ):
        with pytest.raises((ParameterError, DataError)) as caught:
            dg.read(address, user="who")
        seen += [str(caught.value), repr(caught.value.__context__)]
        assert caught.value.__cause__ is None
    table = dg.read(bucket.at("lake"), user="who")
    seen += [repr(table), table.source.name, table.source.title, table.check()]
    release = dg.count(table, unit=dg.User(), epsilon=1.0)
    seen += [str(release), repr(release), release.guarantee.to_json(), *capfd.readouterr()]
    assert not any(secret in text for secret in (KEY, SECRET, "127.0.0.1") for text in seen)


def test_vanishing_object_error_is_one_sentence(bucket: Bucket) -> None:
    bucket.put("lake/a.parquet", rows_of(1))
    table = dg.read(bucket.at("lake"), user="who")
    bucket._client.delete_object(Bucket="visits", Key="lake/a.parquet")
    with pytest.raises(DataError, match="The S3 files cannot be read") as caught:
        dg.count(table, unit=dg.User(), epsilon=1.0)
    assert "127.0.0.1" not in str(caught.value)


def test_kinds_of_files_are_not_mixed(bucket: Bucket, tmp_path: Any) -> None:
    pq.write_table(rows_of(1), tmp_path / "a.parquet")
    with pytest.raises(ParameterError, match="must not mix S3 and local files"):
        dg.read([bucket.at("lake"), tmp_path / "a.parquet"], user="who")
