"""The experiment on the last layer: features learned without labels, elements, cells, a tiny run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch

ll: Any = experiment("last_layer")


def pixels(rows: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(0, 100, (rows, 3, 32, 32), generator=generator, dtype=torch.uint8)
    found[::2, :, ::4] = 255
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Features of 300 public and 400 other records, in three clusters that are classes."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))

    def some(rows: int) -> tuple[Any, Any]:
        y = np.arange(rows) % 3
        return (5 + centres[y] + 0.3 * rng.normal(size=(rows, 8))).astype(np.float32), y

    arrays = dict(zip(("public", "public_y"), some(300), strict=True))
    arrays |= dict(zip(("x", "y"), some(300), strict=True))
    arrays |= dict(zip(("test_x", "test_y"), some(100), strict=True))
    np.savez(tmp_path / "own.npz", **arrays)
    return tmp_path / "own.npz"


def test_patches_are_distinguished_without_labels() -> None:
    encoder = ll.Encoder.learned(pixels(200), centres=8)
    x = encoder.features(pixels(60, 1))
    assert x.shape == (60, 4 * 8)
    assert x.min() >= 0
    assert np.array_equal(x, ll.Encoder.learned(pixels(200), centres=8).features(pixels(60, 1)))
    # A picture's quarters do not depend on neighbouring pictures.
    np.testing.assert_allclose(encoder.features(pixels(60, 1)[:7]), x[:7], atol=1e-4)
    striped, plain = x[::2].mean(axis=0), x[1::2].mean(axis=0)
    assert np.linalg.norm(striped - plain) > 3 * np.linalg.norm(x[::4].mean(axis=0) - striped)


def test_patches_are_white() -> None:
    found = pixels(300)
    encoder = ll.Encoder.learned(found, centres=4)
    white = (ll._patches(found).flatten(0, 1) - encoder.mean) @ encoder.whitening
    values = torch.linalg.eigvalsh(torch.cov(white.T))
    # Directions of little variance are damped, and no other has a norm above 1.
    assert 0.9 < values.max() < 1.1
    # A brighter picture of more contrast has the same patches.
    darker = (found / 2).to(torch.uint8)
    np.testing.assert_allclose(ll._patches(darker), ll._patches(found), atol=0.15)


def test_features_are_scaled_only_by_public_ones(file: Path) -> None:
    found = ll.Features.read(file)
    for part in (found.public, found.x.numpy(), found.test_x.numpy()):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=1e-5)
    assert (found.classes, found.weights) == (3, 24)
    with np.load(file) as arrays:
        others = dict(arrays) | {"x": 9 * arrays["x"][:50] - 4, "y": arrays["y"][:50]}
    np.savez(file, **others)
    again = ll.Features.read(file)
    assert np.array_equal(again.public, found.public)
    assert np.array_equal(again.test_x, found.test_x)
    assert again.learning_rate() == found.learning_rate()
    assert len(again.elements(5)) == 50


def test_the_learning_rate_is_one_over_the_curvature(file: Path) -> None:
    """Near weights of 0 no change of them changes the gradient by more."""
    found = ll.Features.read(file)
    x, y = torch.from_numpy(found.public).double(), torch.from_numpy(found.public_y)

    def gradient(weights: Any) -> Any:
        weights = weights.clone().requires_grad_()
        torch.nn.functional.cross_entropy(x @ weights.T, y).backward()
        return weights.grad

    zero, moved = torch.zeros(3, 8, dtype=torch.float64), torch.zeros(3, 8, dtype=torch.float64)
    first = torch.linalg.eigh(x.T @ x).eigenvectors[:, -1]
    moved[0], moved[1] = 1e-4 * first, -1e-4 * first
    curved = (gradient(moved) - gradient(zero)).norm() / moved.norm()
    assert curved * found.learning_rate() == pytest.approx(1, rel=0.01)


def test_cells() -> None:
    cells = list(ll.grid(8000, 1000, 2))
    assert len(cells) == len({cell.name for cell in cells}) == 2 * (2 * (5 + 1) + 1) + 4
    assert {cell.pictures for cell in cells} == {1000, 4000}
    assert {(c.k, c.elements) for c in cells if c.level == "element"} == set(ll.KINDS)


def test_the_command_takes_features_of_ones_own(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ((2, 5), (30, 500))
    monkeypatch.setattr(ll, "KINDS", kinds)
    monkeypatch.setattr(ll, "grid", lambda n, pictures, _: [
        ll.Cell(n, 2, 5, level, 3.0, times * pictures)
        for level in ("element", "user") for times in (1, 4)
    ])  # fmt: skip
    # Noise that may barely move weights leaves few steps.
    monkeypatch.setattr(ll, "_DRIFT", 0.3)
    monkeypatch.setattr(ll, "_COLOURS", dict.fromkeys(kinds, "C0"))
    ll.main(["--features", str(file), "--quick", "--out", str(tmp_path)])
    told = capsys.readouterr().out
    assert float(told.split("not private: ")[1].split("%")[0]) > 90
    assert (tmp_path / "last_layer.png").is_file()
    assert len((tmp_path / "last_layer.csv").read_text().splitlines()) == 1 + 4
