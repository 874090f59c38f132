"""The generated table: the same for a seed, and with the stated form."""

from __future__ import annotations

import pytest

from dpgrain.datasets import BRANCHES, SUBJECTS, catalogue, loans
from dpgrain.errors import ParameterError


def test_the_table_is_the_same_for_a_seed() -> None:
    assert loans(50).equals(loans(50))
    assert not loans(50).equals(loans(50, seed=1))


def test_it_has_the_stated_form() -> None:
    rows = loans(400, typical=5).to_pandas()
    assert rows["reader"].nunique() == 400
    assert rows.groupby("reader")["age"].nunique().max() == 1
    assert set(rows["branch"]) == set(BRANCHES)
    assert set(rows["subject"]) == set(SUBJECTS)
    assert (rows["title"].map(catalogue()) == rows["subject"]).all()
    assert rows["day"].is_monotonic_increasing
    assert ((rows["days_kept"] > 21) == rows["late"].astype(bool)).all()
    counts = rows.groupby("reader").size()
    # Half of the readers have at most five loans, and a few have many.
    assert 4 <= counts.median() <= 6
    assert counts.max() > 5 * counts.median()


@pytest.mark.parametrize("wrong", [{"readers": 0}, {"typical": 0.5}, {"seed": -1}])
def test_invalid_numbers_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        loans(**wrong)  # type: ignore[arg-type]
