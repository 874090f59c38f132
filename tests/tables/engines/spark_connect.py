"""A server of Spark Connect on this machine, for the contract of engines, and for fits.

Run as a program: it prints each passing test, or the failure of one. The first argument is
a folder, others name suites: contract, fits, files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from tests.learn import test_distributed as fits_there
from tests.means import test_distributed_mean as means_there
from tests.releases import cases
from tests.tables.engines.spark_cluster import free_port, process

import dpgrain as dg
from dpgrain.tables.engines.spark_session import SparkRunner
from dpgrain.testing import EngineContract
from dpgrain.testing.engine_contract import RELEASES, SCHEMA, some_rows

Tests: TypeAlias = Mapping[str, Callable[[], None]]
# Tables of these tests have a million rows, or are read in one place because they have an order.
_LEFT_OUT = {"test_long_columns_preserve_row_order"}


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


def _contract(address: str) -> Tests:
    contract = EngineContract()
    contract.engine, contract.users, contract.one_in = address, 12, 40
    names = {name for name in dir(EngineContract) if name.startswith("test_")} - _LEFT_OUT
    return {name: getattr(contract, name) for name in sorted(names)}


def _fits(session: Any) -> Tests:
    """Tests of fits and means of frames, run with this session."""
    fits = [fits_there.test_spark_frame_is_fitted_in_place]
    fits += [fits_there.test_truths_elements_and_a_loss_of_ones_own]
    found = {fit.__name__: partial(fit, session) for fit in fits}
    for method in ("clip", "recentred"):
        mean = partial(means_there.test_spark_frame_is_averaged_in_place, session, method)
        found[f"a mean by {method}"] = mean
    return found


def _same_file(address: str, folder: Path) -> None:
    path = folder / "rows.parquet"
    columns = list(zip(*some_rows(40), strict=True))
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    found = [
        RELEASES["numbers"](dg.read(path, user="who", engine=engine)).to_arrow()
        for engine in (address, "duckdb")
    ]
    assert found[0].equals(found[1])


def _same_releases(address: str, folder: Path) -> None:
    """A file of releases names the server, and gives the releases of this machine."""
    cases.parquet(folder)
    fit = 'rounds = 2\nexact = true\nsampling = "full"'
    names = ["count", "mean_of_users", "fit"]
    listed = cases.BUDGET + cases.releases("share = 0.3", names).replace("rounds = 5", fit)
    found = []
    for engine in (address, "duckdb"):
        path = cases.written(folder, f'{cases.TABLE}engine = "{engine}"\n{listed}')
        made = dg.releases(path, random_state=5)
        found.append([*made["count"].estimate, *made["mean_of_users"].value, *made["fit"].coef_[0]])
    assert found[0] == found[1]


def _files(address: str, folder: Path) -> Tests:
    tests = {"one file": _same_file, "a file of releases": _same_releases}
    return {name: partial(test, address, folder) for name, test in tests.items()}


def main(folder: Path, *names: str) -> None:
    """Put tests to a server, of tables, of files and of fits."""
    # Tasks run on the server, with the configured interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    port = free_port()
    with process(*_server(port, folder)):
        address = f"sc://127.0.0.1:{port}"
        suites: dict[str, Callable[[], Tests]] = {
            "contract": lambda: _contract(address),
            "fits": lambda: _fits(SparkRunner.at(address).spark),
            "files": lambda: _files(address, folder),
        }
        try:
            for suite in names:
                for name, test in suites[suite]().items():
                    test()
                    print(f"KEPT {name}", flush=True)
        finally:
            # A client without a server would retry repeatedly at its end.
            _stop()


def _stop() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
