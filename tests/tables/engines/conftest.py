"""One session of Spark for all tests of a process, where there are PySpark and Java."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest


def _absent() -> str:
    """Why there is no Spark here; empty where there is."""
    if find_spec("pyspark") is None:
        return "PySpark is absent: pip install 'dpgrain[spark]'"
    return "" if shutil.which("java") else "Java is absent: install a headless Java 17"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if _absent():
        pytest.skip(_absent())
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    # Tasks may fail twice.
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
