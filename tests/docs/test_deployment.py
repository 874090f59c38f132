"""The code of docs/deployment.md runs unchanged, and its reports match the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from dpgrain.shuffle import VectorSum

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"


def test_the_code_of_the_page_runs(capsys: Any) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S))
    names: dict[str, Any] = {}
    exec(code, names)
    assert capsys.readouterr().out.count("200 devices; 1 dropped") == 2
    means = [
        names["protocol"].analyzer(batch).estimate(bag).value / 200
        for batch, bag in enumerate(names["bags"])
    ]
    sd = names["protocol"].noise_sd / 200
    assert np.abs(np.array(means) - 0.9 * np.array([0.1, -0.2, 0.3])).max() < 6 * sd


def test_reports_match_the_page() -> None:
    packing = VectorSum(n_users=50, dim=5, epsilon=2.0, delta=1e-5).randomizer().packing
    integers = np.array([0, 1, 2, packing.largest, 77])
    report = packing.pack(integers, bytes(range(16)))
    assert report[:8] == packing.tag
    assert report[8:24] == bytes(range(16))
    bits = "".join(f"{byte:08b}" for byte in report[24:])
    read = [int(bits[i * packing.bits : (i + 1) * packing.bits][::-1], 2) for i in range(5)]
    assert read == integers.tolist()
    assert set(bits[5 * packing.bits :]) <= {"0"}
