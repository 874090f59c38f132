"""Files are written whole or not at all, and never over what a command reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgrain import _files
from dpgrain.errors import DataError, ParameterError


def test_a_file_is_replaced_only_if_all_went_well(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text("old")

    def fail_halfway() -> None:
        with _files.whole_file(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with _files.whole_file(path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_outputs_are_no_inputs_and_differ(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    _files.check_outputs([one, None, two], [tmp_path / "rows.csv", None])
    for outputs, inputs in ([one, one], []), ([tmp_path / "folder" / ".." / "one"], [one]):
        with pytest.raises(ParameterError, match="already used"):
            _files.check_outputs(outputs, inputs)
    with pytest.raises(DataError, match="cannot be written"):
        _files.check_outputs([tmp_path / "missing" / "one"], [])
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_tables_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPGRAIN_DATA", raising=False)
    with pytest.raises(DataError, match=r"folder that holds words\.csv"):
        _files.data_folder("words.csv")
    monkeypatch.setenv("DPGRAIN_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"lacks words\.csv"):
        _files.data_folder("words.csv")
    (tmp_path / "words.csv").touch()
    assert _files.data_folder("words.csv") == tmp_path
