"""Shuffled sums, and their written reports."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass

from dpgrain._formatting import rounded_up
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.shuffle import PoissonSum, ScalarSum, VectorSum
from dpgrain.shuffle.protocol import ShuffledSum

OTHER = Gaussian(10.0, Contribution(block="user"))
PROTOCOLS: dict[str, ShuffledSum] = {
    "vectors": VectorSum(n_users=1000, dim=10, epsilon=1.0, delta=1e-6),
    "poisson, nine in ten": PoissonSum(
        n_users=1000, dim=3, epsilon=1.0, delta=1e-6, honest_fraction=0.9, relation="zero_out"
    ),
    "one coordinate, three users": VectorSum(
        n_users=3, dim=1, l2_bound=2.5, epsilon=0.5, delta=1e-5, honest_fraction=0.1, rounds=3
    ),
    "one user": VectorSum(n_users=1, dim=2, epsilon=1.0, delta=1e-6),
    "numbers": ScalarSum(n_users=50, bound=3.0, epsilon=1.0, delta=1e-6),
    "large epsilon": ScalarSum(n_users=100, epsilon=8.0, delta=1e-6),
    "beside something": VectorSum(n_users=100, dim=2, epsilon=1.0, delta=1e-6, beside=OTHER),
}


@dataclass(frozen=True)
class Written:
    protocol: ShuffledSum
    page: str

    def rows(self, table: str) -> list[list[str]]:
        found = re.search(rf'<table class="{table}">(.*?)</table>', self.page, re.DOTALL)
        assert found is not None, table
        rows = re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
        return [
            [
                html.unescape(re.sub(r"<small>.*?</small>|<[^>]*>", "", cell)).strip()
                for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
            ]
            for row in rows
            if "<td" in row
        ]

    @property
    def text(self) -> str:
        body = self.page[self.page.index("<body>") :]
        return " ".join(html.unescape(re.sub(r"<[^>]*>", "", body)).split())


def shown(epsilon: float) -> str:
    return "∞ (no guarantee)" if math.isinf(epsilon) else rounded_up(epsilon)
