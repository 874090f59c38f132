"""The experiment on pictures: its users, its cells, its table, and a tiny run."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch
from tests.real_data import needs

from dpgrain.units import Element, User

im: Any = experiment("images")
networks: Any = experiment("networks")


def pictures(rows: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 100, (rows, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(rows) % 10
    for row, label in enumerate(labels.tolist()):
        pixels[row, :, 3 * label : 3 * label + 3] = 255
    return im.Pictures(pixels, labels)


def test_the_network_is_the_tutorial_s() -> None:
    module = im.tutorial_network(0)
    assert sum(p.numel() for p in module.parameters()) == 62_006
    inputs = pictures(4).inputs(torch.arange(4))
    assert module(inputs).shape == (4, 10)
    assert inputs.min() >= -1
    assert inputs.max() == 1


@pytest.mark.parametrize("k", [1, 5, 30])
def test_users_have_pictures_of_k_elements(k: int) -> None:
    elements = np.random.default_rng(0).integers(0, 40, 2000)
    found = im.pseudo_users(elements, 7, k, seed=1)
    assert np.array_equal(np.bincount(found.users), np.full(7, 100))
    assert np.array_equal(elements[found.places], found.elements)
    sizes = [np.unique(found.elements[found.users == u], return_counts=True)[1] for u in range(7)]
    assert all(len(each) == k and each.max() - each.min() <= 1 for each in sizes)
    assert found.blocks_per_user == k


def test_elements_depend_only_on_public_pictures() -> None:
    """The same public pictures give the same partition, whatever users have."""
    torch.set_num_threads(1)
    held, public = pictures(60, 1), pictures(40, 2)
    found = im.elements_of(held, public, epochs=1, elements=5)
    assert found.shape == (60,)
    assert set(found.tolist()) <= set(range(5))
    fewer = im.Pictures(held.pixels[:30], held.labels[:30])
    assert np.array_equal(im.elements_of(fewer, public, epochs=1, elements=5), found[:30])


def test_cells_match_the_request() -> None:
    cells = im.grid(1000)
    assert len(cells) == len({cell.name for cell in cells}) == 2 * 3 * 2 + 1
    headline = [(c.n, c.k, c.level, c.epsilon, c.seed) for c in cells[:3]]
    assert headline == [(8000, 30, "element", 3.0, seed) for seed in range(3)]
    assert {(c.n, c.k) for c in cells} == {(8000, 30)}
    whole = im.grid(1000, whole=True)
    assert len({cell.name for cell in whole}) == 4 * len(cells)
    assert {*cells} < {*whole}


def test_user_is_a_block_or_has_k() -> None:
    cells = (im.Cell(40, 5, 100, level, 3.0, 8000) for level in ("user", "element"))
    user, element = (cell.asked(1.0, 12.0, 400) for cell in cells)
    assert (user.blocks_per_user, element.blocks_per_user) == (1, 5)
    for asked in (user, element):
        # The number of pictures read does not depend on the number of steps.
        assert asked.rate * asked.steps * 40 * im.PICTURES == pytest.approx(8000)
    # Blocks of more users a step need less noise each, so that whole users have fewer steps.
    assert user.steps <= element.steps


def test_a_tiny_run_and_its_table(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    elements = np.arange(200) % 8
    setting = im.Setting(pictures(200), pictures(50, 5), elements, most=8)
    cells = [
        im.Cell(10, 2, 100, level, e, 200, seed)
        for level, e, seed in product(im.LEVELS, (3.0, math.inf), (0, 1))
    ]
    # Blocks of twice as many pictures have the smaller largest rate.
    rates = {cell.level: setting.asked(cell).learning_rate for cell in cells}
    assert rates["element"] == pytest.approx(math.sqrt(2) * rates["user"])
    found = {cell: setting.run(cell) for cell in cells}
    reference = setting.without_privacy(1)
    table = list(im.rows(setting.asked, found, reference))
    assert [row.seeds for row in table] == [2] * 4
    for row in table:
        assert row.behind == pytest.approx(reference.last - row.accuracy)
        assert row.least <= row.accuracy <= row.most
    element = next(row for row in table if (row.level, row.epsilon) == ("element", 3.0))
    assert element.users_drawn > 3
    assert [math.isnan(row.users_drawn) for row in table].count(True) == 3
    assert {im.line(row).count("|") for row in table} == {im.HEADER.splitlines()[0].count("|")}
    (lines,) = im.panels(found).values()
    assert len(lines) == 4
    assert all(line.points()[0][-1] == pytest.approx(0.2) for line in lines)


@needs(im.PUBLIC, *im.HELD, im.TEST)
def test_command_resumes_an_interrupted_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    im.main(["--quick", "--out", str(tmp_path)])
    first = capsys.readouterr().out
    assert "not private" in first
    assert (tmp_path / "images.png").is_file()
    cells = sorted((tmp_path / "images").glob("quick/*.json"))
    assert len(cells) == 5
    times = [cell.stat().st_mtime_ns for cell in cells[1:]]
    cells[0].unlink()
    im.main(["--quick", "--out", str(tmp_path)])
    assert [cell.stat().st_mtime_ns for cell in cells[1:]] == times
    assert cells[0].is_file()


PAGE = Path(__file__).parents[2] / "docs" / "papers" / "element.md"
Plan = tuple[int, str, str, str]


def recorded_bills() -> dict[Plan, tuple[str, str]]:
    """The ε of an element if users are sampled, and of a whole user, in rows of elements, by plan."""
    text = (Path(__file__).parents[2] / "experiments" / "networks.md").read_text(encoding="utf-8")
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return {
        (int(row[1].partition(" / ")[0]), row[3], row[4], row[5]): (row[11], row[12])
        for row in rows
        if len(row) == 14 and row[2] == "element" and row[3] in ("1", "3")
    }


def proved_bills(plan: Plan) -> tuple[str, str, str]:
    """The noise multiplier of a plan, and both numbers, as printed."""
    k, (epsilon, pictures, steps) = plan[0], (float(cell.replace(",", "")) for cell in plan[1:])
    rate = pictures / (8000 * 100) / steps
    noise = networks.noise_for(Element(), epsilon, int(steps), rate)
    drawn = networks.with_users_drawn(noise, int(steps), rate, k)
    whole = networks.pairs_drawn(noise, int(steps), rate, User(max_elements=k))
    return f"{noise:.3f}", f"{drawn:.1f}", f"{whole:.1f}"


@pytest.mark.parametrize("plan", recorded_bills(), ids=str)
def test_recorded_users_have_the_proved_cost(plan: Plan) -> None:
    assert recorded_bills()[plan] == proved_bills(plan)[1:]


def test_paper_page_has_the_recorded_user_costs() -> None:
    text, bills = PAGE.read_text(encoding="utf-8"), recorded_bills()
    for k, steps in ((5, ("25", "25")), (30, ("100", "100")), (100, ("200", "400"))):
        one, three = (
            bills[k, epsilon, "200,000", some]
            for epsilon, some in zip(("1", "3"), steps, strict=True)
        )
        assert f" {one[1]}, {three[1]} | {one[0]}, {three[0]} |" in text
    for epsilon in ("1", "3"):
        drawn, whole = bills[30, epsilon, "600,000", "400"]
        row = text.partition(f"| ε = {epsilon} for an element |")[2].partition("\n")[0]
        assert row.endswith(f"| {whole} | {drawn} |")


@pytest.mark.parametrize(("epsilon", "steps"), [("1", "3,200"), ("3", "6,400")])
def test_paper_page_has_the_costs_of_long_runs(epsilon: str, steps: str) -> None:
    noise, drawn, whole = proved_bills((30, epsilon, "40,000,000", steps))
    long = PAGE.read_text(encoding="utf-8").partition("--pictures 40000000")[2]
    row = long.partition(f"| ε = {epsilon} for an element |")[2].partition("\n")[0]
    assert f" | {noise} | " in row
    assert row.endswith(f"| {whole} | {drawn} |")
