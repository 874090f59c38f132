"""Tests on public tables, skipped if the tables are missing."""

from __future__ import annotations

import pytest

from dpgrain._files import data_folder
from dpgrain.errors import DataError


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test, with the reason, unless DPGRAIN_DATA is a folder with these files."""
    try:
        data_folder(*names)
    except DataError as error:
        return pytest.mark.skipif(True, reason=str(error))
    return pytest.mark.skipif(False, reason="")
