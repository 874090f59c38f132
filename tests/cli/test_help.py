"""Help texts: examples are broken into lines that fit a terminal."""

from __future__ import annotations

import shlex

from dpgrain.cli.help import broken


def test_an_option_of_an_example_stays_with_its_values() -> None:
    text = "dpgrain mean 'a b.csv' --bounds 0 100 --flag --user who"
    for width in range(20, 70):
        lines = broken(text, width).split(" \\\n")
        assert shlex.split(" ".join(lines)) == shlex.split(text)
        assert all(len(line) + 2 <= width for line in lines if len(line.split(" --")) > 2)
        assert any("--bounds 0 100" in line for line in lines)
