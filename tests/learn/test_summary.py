"""The coefficients as people see them: per what, with intervals or the reason for none, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.learn import cases

from dpgrain import publish, read
from dpgrain.learn import LinearRegression, LogisticRegression, load
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import CategoryColumn, FeatureEncoding, NumberColumn
from dpgrain.units import Record, User
from dpgrain.words.fit_text import coefficients


def squares(n: int = 4000, scale: float = 1.0, **options: Any) -> LinearRegression:
    rng = np.random.default_rng(0)
    X = rng.uniform(-scale, scale, size=(n, 2))
    y = X @ [2.0, -1.0] + 0.1 * rng.normal(size=n)
    stated: dict[str, Any] = {"unit": Record(), "n_users": n, "random_state": 0, **options}
    return LinearRegression(**stated).fit(X, y)


def test_a_printed_model_shows_its_coefficients() -> None:
    model = squares(intervals=0.2)
    found = coefficients(model)
    assert (found.intervals, found.unsure) == (True, "")
    assert found.headings == ("coefficient", "value", "corrected", "95% low", "95% high")
    shown = str(model).splitlines()
    assert [line.split()[0] for line in shown[1:5]] == ["coefficient", "x0", "x1", "intercept"]
    low, high = (float(cell.replace("−", "-")) for cell in shown[2].split()[-2:])
    assert low < 2.0 < high
    assert "95% intervals cover the noise and the sampling of users" in str(model)
    assert str(model).splitlines()[-2] == model.guarantee_.summary
    assert str(model.guarantee_) in " ".join(model.explain().split())


def test_many_coefficients_are_cut() -> None:
    X = np.random.default_rng(0).normal(size=(500, 30))
    model = LinearRegression(unit=Record(), n_users=500, random_state=0, rounds=3).fit(X, X[:, 0])
    assert "[31 coefficients, first 20 shown; all: .coef_]" in str(model)
    assert "x19" in str(model)
    assert "x20" not in str(model)


@pytest.mark.slow
def test_weak_curvature_gives_no_intervals(tmp_path: Path) -> None:
    model = squares(n=1800, scale=0.03, intervals=0.2)
    found = coefficients(model)
    assert (found.intervals, found.unsure) == (False, "")
    assert all(row.values == (row.value,) for row in found.rows)
    (caution,) = found.cautions
    assert caution.startswith("there are no intervals: the curvature does not stand out")
    assert "so that each varies by about 1" in caution
    assert f"Warning: {caution}" in str(model)
    page = model.report(tmp_path / "fit.html").read_text(encoding="utf-8")
    for said in (str(model), page):
        assert "95% low" not in said
        assert "95% intervals cover" not in said
    assert "No intervals were published for the reason above" in page
    again = load(model.save(tmp_path / "model.json"))
    assert str(again).splitlines()[1:] == str(model).splitlines()[1:]
    assert np.isinf(again.confidence_intervals().high).all()


def test_table_columns_state_the_unit_of_their_coefficients() -> None:
    table = read(
        pa.table({
            "who": cases.USERS,
            "age": cases.X[:, 0],
            "size": cases.X[:, 1],
            "sex": np.where(cases.BINARY, "f", "m"),
            "bought": cases.BINARY,
        }),
        user="who",
    )  # fmt: skip
    encoding = FeatureEncoding(
        (NumberColumn("age", (18.0, 80.0)), NumberColumn("size"), CategoryColumn("sex", ("f", "m")))
    )
    model = LogisticRegression(unit=User(), n_users=600, classes=[0, 1], rounds=3, random_state=0)
    fitted = publish(model.query(ColumnRows(table, encoding, "bought"), None))
    found = coefficients(fitted)
    assert found.headings == ("coefficient", "per", "value")
    told = ["62, from 18 to 80", "1", "from no to yes", "from no to yes", ""]
    assert [row.per for row in found.rows] == told
    assert "increases by the amount in column" in " ".join(fitted.explain().split())
    assert "62, from 18 to 80" in str(fitted)
