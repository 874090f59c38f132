"""Audits find planted errors, and refute no true claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution
from dpgrain.auditing import Audit, AuditLine, audit
from dpgrain.auditing.audit import _AuditRun
from dpgrain.noise import SystemSource
from dpgrain.publishing import draws
from dpgrain.publishing.query import Query
from dpgrain.tables.engines import kernel
from dpgrain.tables.sources.frames import ArrowSource

PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
DRAWS = 400_000


def table() -> dg.UserTable:
    rows = pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"], "paid": [1.0, 2.0, 3.0]})
    return dg.read(rows, user="who")


QUERIES: dict[str, Callable[[], Query[Any]]] = {
    "users": lambda: dg.count.query(table(), unit=dg.User(), clip=5.0, noise="gaussian", **PROMISE),
    "elements": lambda: dg.sum.query(
        table(), "paid", bounds=(0, 5), clip=8.0, noise="gaussian", unit=dg.Element("page"), **PROMISE
    ),
    "records": lambda: dg.count.query(table(), unit=dg.Record(), epsilon=1.0, delta=0.0),
    "chosen bounds": lambda: dg.count.query(table(), unit=dg.User(), **PROMISE),
    "several groups": lambda: dg.mean.query(
        table(), "paid", by="page", domain=["a", "b"], bounds=(0, 5), unit=dg.User(), **PROMISE
    ),
    "named items": lambda: dg.histogram.query(table(), "page", unit=dg.Element("page"), **PROMISE),
    "elements of people": lambda: dg.elements_per_user.query(
        table(), "page", unit=dg.User(), **PROMISE
    ),
}  # fmt: skip


def audited(name: str, draws: int = DRAWS, **how: Any) -> Audit:
    return audit(QUERIES[name](), **{"units": (1, 2), "seconds": 1e4, "runs": 20, "draws": draws,
                                     "random_state": 7, **how})  # fmt: skip


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", QUERIES)
def test_true_claims_are_confirmed(name: str) -> None:
    found = audited(name)
    assert found.verdict in ("kept", "weak")
    for line in found.lines:
        assert line.free.epsilon is None or line.free.epsilon <= line.claim
    assert any(line.verdict == "kept" and line.free.powerful for line in found.lines)


# ------------------------------------------------------------------------------ planted errors


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    draw = draws.with_noise
    patch.setattr(
        draws,
        "with_noise",
        lambda part, sums, scale, source: draw(part, sums, np.asarray(scale) / 2, source),
    )


def half_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    whole = Contribution.sensitivity
    patch.setattr(Contribution, "sensitivity", lambda self, *asked: whole(self, *asked) / 2)


def no_clipping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        kernel._Blocks, "norms", lambda self, sums, norm: np.full(len(self.lengths), 1e-9)
    )
    patch.setattr(kernel._Blocks, "_shrink", lambda self, integers, limit, norm: None)


ERRORS = {each.__name__: each for each in (half_the_noise, half_the_sensitivity, no_clipping)}


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["users", "elements"])
def test_planted_errors_are_found(name: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ERRORS[error](monkeypatch)
    found = audited(name, units=[1], draws=200_000)
    assert found.verdict == "violated"
    removed = next(line for line in found.lines if line.relation == "zero_out")
    assert removed.free.exceeds(removed.claim), found


@pytest.mark.slow
def test_noise_of_a_ticket_without_its_radius_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the law is not Gaussian, and δ is 0."""
    half_the_noise(monkeypatch)
    found = audited("records", units=[1], draws=50_000)
    assert [line.verdict for line in found.lines] == ["violated", "not audited"]


def test_text_cleaning_keys_are_audited() -> None:
    table = dg.read(pa.table({"who": ["ann"], "town": ["x"]}), user="who")
    query = dg.count.query(
        table, by="upper(trim(town))", domain=["LYON"], unit=dg.User(), epsilon=2.0, delta=1e-6
    )
    found = dg.audit(query, units=[1], seconds=60, draws=5_000, runs=2, random_state=1)
    assert "not audited" not in [line.verdict for line in found.lines]


def richer_query(monkeypatch: pytest.MonkeyPatch) -> Query[Any]:
    """A query that spends ε = 3 instead of 1."""
    query: Query[Any] = QUERIES["users"]()
    richer: Any = query.with_promise(replace(query.promise, epsilon=3.0))
    monkeypatch.setattr(type(query), "events", richer.events)
    return query


def test_claim_is_at_most_the_requested_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _AuditRun(richer_query(monkeypatch), 1, 1, SystemSource(), None, 0.0, 0.0)
    assert run._claim(1, "zero_out") == 1.0
    assert run._claim(2, "zero_out") > 2.0


@pytest.mark.slow
def test_audit_detects_a_plan_above_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    query = richer_query(monkeypatch)
    found = audit(query, units=[1], draws=200_000, runs=20, seconds=1e4, random_state=7)
    removed = found.lines[0]
    assert removed.claim == 1.0
    assert removed.verdict == "violated"


# ------------------------------------------------------------------------------ what is read


def unreadable(patch: pytest.MonkeyPatch) -> dg.UserTable:
    opened = table()
    read = ArrowSource.read

    def guarded(self: ArrowSource, columns: Any) -> pa.Table:
        assert self.table is not opened.source.table, "rows were read"  # type: ignore[attr-defined]
        return read(self, columns)

    patch.setattr(ArrowSource, "read", guarded)
    return opened


def test_no_row_is_read_and_nothing_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = unreadable(monkeypatch)
    asked = dg.count.query(opened, unit=dg.User(), clip=5.0, **PROMISE)
    with pytest.raises(AssertionError, match="rows were read"):
        dg.publish(asked)
    with dg.budget(1.0, 1e-6) as whole:
        found = audit(asked, units=[1], draws=1000, runs=2, random_state=7)
    assert found.lines
    assert whole.left == 1.0


@pytest.mark.slow
def test_curator_sees_only_the_bound() -> None:
    rows = pa.table({"who": [str(n) for n in range(90)], "page": ["secret page"] * 90})
    asked = dg.count.query(dg.read(rows, user="who"), unit=dg.User(), clip=5.0, **PROMISE)
    found = audit(asked, units=[1], draws=5000, runs=2, rows="curator", random_state=7)
    assert found.curator
    assert str(found).startswith("For the curator, NOT PRIVATE")
    for line in found.lines:
        assert (line.pair, line.curve, line.free.seen, line.named.seen) == ("", (), None, None)
        assert line.free.epsilon is not None
    assert "secret" not in f"{found}{found.to_dict()}"
    with refuses("audit", "real rows"):
        found.plot()


# ------------------------------------------------------------------------------ what is asked for


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("seconds", {"seconds": 0.0}),
        ("draws", {"draws": 1}),
        ("runs", {"runs": 0}),
        ("confidence", {"confidence": 1.0}),
        ("units", {"units": []}),
        ("units", {"units": [0]}),
        ("rows", {"rows": "real"}),
    ],
)
def test_invalid_arguments_are_rejected(name: str, how: dict[str, Any]) -> None:
    with refuses(name):
        audited("users", **how)


def test_queries_of_arrays_are_audited_by_hand() -> None:
    model = dg.learn.LinearRegression(epsilon=1.0, delta=1e-6, clip=1.0, n_users=3)
    query = model.query(np.zeros((3, 1)), np.zeros(3), users=np.arange(3))
    with refuses("query", "dg.read"):
        audit(query)


def test_impossible_units_are_skipped() -> None:
    asked = dg.histogram.query(
        table(), "page", domain=["a", "b"], clip=1.0, unit=dg.Element("page"), **PROMISE
    )
    found = audit(asked, units=[2, 4], draws=1000, runs=2, random_state=7)
    assert {line.units for line in found.lines} == {2}
    assert any("4 units" in note for note in found.notes)


def test_units_without_a_claim_are_listed_once() -> None:
    asked = dg.histogram.query(table(), "page", clip=1.0, unit=dg.User(), **PROMISE)
    found = audit(asked, units=[1, 2, 4], draws=1000, runs=2, random_state=7)
    listed = [note for note in found.notes if "Nothing is claimed" in note]
    assert listed == [
        "Nothing is claimed for 2 units (zero_out, replace); 4 units (zero_out, replace)."
    ]


@pytest.mark.slow
def test_the_same_seed_makes_the_same_audit() -> None:
    one, two = (audited("users", draws=2000, units=[1]) for _ in range(2))
    assert one == two
    assert isinstance(one.lines[0], AuditLine)
