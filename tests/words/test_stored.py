"""Files, events and ledgers contain kinds and numbers, never sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain import learn
from dpgrain.accounting import Gaussian
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.publishing.facts import Fact
from dpgrain.shuffle import VectorSum

# A text of this many words is a sentence.
_WORDS = 4
GENERATOR = np.random.default_rng(3)
ROWS = pa.table(
    {
        "who": GENERATOR.integers(0, 200, 1500),
        "page": [f"p{int(i)}" for i in GENERATOR.geometric(0.3, 1500)],
        "day": [f"2025-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(1500)],
        "paid": GENERATOR.gamma(2.0, 3.0, 1500),
    }
)
TABLE = dg.read(ROWS, user="who", types={"day": "DATE"}, n_users=200)
X = GENERATOR.normal(size=(300, 2)) / 2
OWNERS = np.arange(300) // 2
USER: dict[str, Any] = {"unit": dg.User(), "epsilon": 3.0, "delta": 1e-6}
PUBLISHED: dict[str, Callable[[], Any]] = {
    "count": lambda: dg.count(TABLE, by="page", **USER),
    "mean": lambda: dg.mean(TABLE.filter("paid > 1"), "paid", by="page", **USER),
    "quantiles": lambda: dg.quantiles(TABLE, "paid", **{**USER, "epsilon": 0.01}),
    "covariance": lambda: dg.covariance(
        TABLE.derive(half="paid / 2"), "paid", "half", bounds=(0, 9), other_bounds=(0, 5), **USER
    ),
    "top": lambda: dg.top(TABLE, "page", **USER),
    "weights": lambda: dg.histogram(
        TABLE, "page", weight="paid", **{**USER, "unit": dg.Element("month(day)")}
    ),
    "elements": lambda: dg.elements_per_user(TABLE, "page", **USER),
    "people": lambda: dg.mean(TABLE.per_user(spent="total(paid)"), "spent", **USER),
    "rare": lambda: dg.sum(TABLE, "paid", **{**USER, "epsilon": 0.01}),
    "shrunk": lambda: dg.count(TABLE, by="page", **USER).shrunk(),
    "vectors": lambda: dg.mean_of_users(X, users=OWNERS, bound=2.0, epsilon=3.0, delta=1e-6),
    "fit": lambda: learn.LogisticRegression(rounds=3, **USER).fit(
        X, (X[:, 0] > 0).astype(int), users=OWNERS
    ),
    "elements of a fit": lambda: learn.LinearRegression(
        rounds=3, **{**USER, "unit": dg.Element()}
    ).fit(X, X[:, 0], users=OWNERS, elements=np.arange(300) % 3),
    "choice": lambda: dg.select(
        [0.0, 0.5], lambda c, x: abs(x - c), X[:, 0], OWNERS, epsilon=1.0, n_users=150
    ),
    "shuffled": lambda: dg.publish(VectorSum(n_users=300, dim=2, epsilon=2.0, delta=1e-6).query(X)),
}
# A ledger for users rejects an unlimited number of elements.
OF_ELEMENTS = ("weights", "elements of a fit")


def texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, dict):
        yield from values
        for value in values.values():
            yield from texts(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from texts(value)


def sentences(values: Any) -> list[str]:
    return [text for text in texts(values) if len(text.split()) >= _WORDS]


def stored(release: Any, folder: Path) -> Any:
    """Return the JSON values of a release, or of its guarantee and query."""
    if isinstance(release, dg.Release):
        about = pq.read_schema(release.save(folder / "release.parquet")).metadata[b"dpgrain"]
        values = json.loads(about)
        # The name of a table is a label.
        del values["facts"]["title"]
        return values
    if isinstance(release, learn.LinearModel):
        release.save(folder / "model.json")
        return json.loads((folder / "model.json").read_text(encoding="utf-8"))
    guarantee = getattr(release, "guarantee", None)
    return [release.query, None if guarantee is None else guarantee.to_dict()]


@pytest.mark.slow(cases=6)
@pytest.mark.filterwarnings("ignore::dpgrain.CareWarning")
@pytest.mark.parametrize("name", PUBLISHED)
def test_no_file_or_ledger_contains_a_sentence(name: str, tmp_path: Path) -> None:
    # Labels of the caller, such as names of columns, have fewer words here.
    promise = LastingPromise.of(dg.User(), 90.0, 1e-3, leak=1e-4, pure=9.0)
    made = dg.Ledger.create(tmp_path / "visits.ledger", name="visits", promises=[promise])
    with made if name not in OF_ELEMENTS else nullcontext():
        release = PUBLISHED[name]()
    lines = [entry.to_dict() for entry in made.entries]
    assert len(lines) == (2 if name in OF_ELEMENTS else 3)
    assert sentences(lines) == []
    assert sentences(stored(release, tmp_path)) == []


def test_a_sentence_is_found_wherever_it_is_stored() -> None:
    said = "the list of our tariffs"
    guarantee = dg.Guarantee(
        "user", "", "zero_out", 1e-6, Gaussian(4.0), (Fact("stated", (said,)),)
    )
    assert sentences(guarantee.to_dict()) == [said]
    assert sentences({"a": [{said: 1}, (said,)]}) == [said, said]
