"""Tests on public tables, which are skipped where the tables are not."""

from __future__ import annotations

import pytest

from dpgrain._files import data_folder
from dpgrain.errors import DataError


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test, with the reason, unless DPGRAIN_DATA names a folder that holds these files."""
    try:
        data_folder(*names)
    except DataError as error:
        return pytest.mark.skipif(True, reason=str(error))
    return pytest.mark.skipif(False, reason="")
