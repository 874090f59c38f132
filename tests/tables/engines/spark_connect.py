"""A server of Spark Connect on this machine, to which the contract of engines is put.

Run as a program: it prints each test of the contract that is kept, or how one fails. The first
argument is a folder, others name tests, where not all are meant.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.tables.engines.spark_cluster import free_port, process

import dpgrain as dg
from dpgrain.testing import EngineContract
from dpgrain.testing.engine import RELEASES, SCHEMA, some_rows

# Tables of these tests have a million rows, or are read in one place because they have an order.
_LEFT_OUT = {"test_long_columns_keep_their_order"}


def _server(port: int, folder: Path) -> list[str]:
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
    }
    words = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    return [*words, "--class", server, "spark-internal"]


def main(folder: Path, *names: str) -> None:
    """Put the contract to a server, with tables and with files."""
    # Tasks run where the server is, by the interpreter that it is told of.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    port = free_port()
    with process(*_server(port, folder)):
        contract = EngineContract()
        contract.engine, contract.users, contract.one_in = f"sc://127.0.0.1:{port}", 12, 40
        tests = {name for name in dir(EngineContract) if name.startswith("test_")} - _LEFT_OUT
        for name in names or sorted(tests):
            getattr(contract, name)()
            print(f"KEPT {name}", flush=True)
        path = folder / "rows.parquet"
        columns = list(zip(*some_rows(40), strict=True))
        pq.write_table(pa.table(columns, schema=SCHEMA), path)
        found = [
            RELEASES["numbers"](dg.read(path, user="who", engine=engine)).to_arrow()
            for engine in (contract.engine, "duckdb")
        ]
        print("SAME FILE" if found[0].equals(found[1]) else f"OTHER {found}", flush=True)
        _stop()


def _stop() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
