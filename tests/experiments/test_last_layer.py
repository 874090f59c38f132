"""The experiment on the last layer: features of a folder, classes, elements, and a tiny run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.experiments.networks import experiment, torch

ll: Any = experiment("last_layer")
FOLDERS = {"cat": 3, "dog": 5, "owl": 2}


def mean_colour(images: list[Any]) -> Any:
    """An encoder: the mean of each colour, and the number of images it was given."""
    return [[*np.asarray(image).mean(axis=(0, 1)), len(images)] for image in images]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place, (name, number) in enumerate(FOLDERS.items()):
        (tmp_path / name).mkdir()
        for i in range(number):
            colour = (10 * place, i, 0)
            ending = "jpg" if i % 2 else "png"
            Image.new("RGB", (8, 8), colour).save(tmp_path / name / f"{i}.{ending}")
    # A picture in grey, and a file that is none.
    Image.new("L", (4, 4), 200).save(tmp_path / "owl" / "grey.png")
    (tmp_path / "owl" / "notes.txt").write_text("none")
    return tmp_path


def test_a_folder_of_images_becomes_features(folder: Path) -> None:
    x, labels = ll.of_folder(folder, mean_colour, batch=4)
    assert x.shape == (11, 4)
    assert labels.tolist() == ["cat"] * 3 + ["dog"] * 5 + ["owl"] * 3
    assert x[:, 3].max() == 4
    np.testing.assert_allclose(x[:3, 1], [0, 1, 2], atol=2)
    np.testing.assert_allclose(x[-1, :3], 200)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no images"):
        ll.of_folder(tmp_path, mean_colour)


def test_an_encoder_is_found_by_its_name() -> None:
    assert ll.named("math:sqrt")(9.0) == 3.0


def test_images_and_encoder_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ll.main(["--images", "somewhere"])
    assert "go together" in capsys.readouterr().err


def test_classes_are_the_labels_that_are_frequent_among_public_images() -> None:
    labels = np.array(["a", "b", "b", "c", "a", "c"])
    # Of the public ones, b comes twice and a once; c has no public image, and comes last.
    assert ll.classes_of(labels, np.array([0, 1, 2])).tolist() == [2, 1, 1, 3, 2, 3]
    many = np.arange(300)
    found = ll.classes_of(many, np.arange(100, 300))
    assert np.bincount(found, minlength=101).tolist() == [200] + [1] * 100
    assert (found[:100] == 0).all()


def test_made_up_features_are_in_clusters() -> None:
    x, labels = ll.made_up(600, seed=0, d=40)
    assert x.min() == 0
    assert 0.05 < (labels >= ll.CLASSES).mean() < 0.17
    again, _ = ll.made_up(600, seed=0, d=40)
    assert np.array_equal(x, again)


def test_parts_share_no_image() -> None:
    angles = 2 * np.pi * np.arange(400, dtype=np.float32) / 400
    x = np.column_stack([np.cos(angles), np.sin(angles)])
    found = ll.Features.split(x, np.arange(400) % 7, 0, "cpu")
    parts = [found.public, found.x.numpy(), found.test_x.numpy()]
    assert [len(part) for part in parts] == [100, 270, 30]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 400
    np.testing.assert_allclose(np.linalg.norm(np.concatenate(parts), axis=1), 1, rtol=1e-5)


def test_cells() -> None:
    cells = list(ll.grid())
    assert len(cells) == len({cell.name for cell in cells}) == 5 * 2 * 3
    asked = ll.Cell(30, 500, "element", 3.0).asked(8000, 10, 4)
    assert (asked.blocks_per_user, asked.rate) == (30, 4 / 8000)


def test_a_tiny_run() -> None:
    torch.set_num_threads(1)
    x, labels = ll.made_up(800, seed=0, d=32)
    features = ll.Features.split(x, labels, 0, "cpu")
    setting = ll.Setting(features, 20, 3, 5.0)
    reference = setting.without_privacy(3)
    # Five of 101 classes are guessed in one case in twenty.
    assert reference.last > 0.2
    cell = ll.Cell(5, 50, "element", 3.0)
    curve = setting.run(cell)
    row = ll.row(cell, cell.asked(20, 3, 5.0), curve)
    assert row.users_drawn > 3
    assert ll.line(row).count("|") == ll.HEADER.splitlines()[0].count("|")
    assert [*ll.panels({cell: curve})] == ["ε = 1", "ε = 3", "ε = ∞"]


def test_the_command_reads_a_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FOLDERS:
        for i in range(40):
            Image.new("RGB", (2, 2), (i, 2 * i, 3 * i)).save(folder / name / f"more_{i}.png")
    monkeypatch.setattr(ll, "KINDS", ((2, 5),))
    out = tmp_path / "out"
    encoder = f"{__name__}:mean_colour"
    ll.main(["--images", str(folder), "--encoder", encoder, "--quick", "--out", str(out)])
    assert (out / "last_layer.png").is_file()
    assert len((out / "last_layer.csv").read_text().splitlines()) == 1 + 6
