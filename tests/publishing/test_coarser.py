"""Coarser copies: more noise by the same law, one chain, and nothing that several readers learn."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.publishing import coarser
from dpgrain.publishing.coarser import Chain

CELLS = list(range(60))
ROWS = pa.table(
    {
        "who": np.arange(3000) // 3,
        "cell": np.arange(3000) % 60,
        "x": np.random.default_rng(1).uniform(-3, 10, 3000),
    }
)
OPTIONS: dict[str, Any] = {"unit": dg.User(), "epsilon": 2.0, "delta": 1e-6, "noise": "gaussian"}


# Number of cells where a chain, which takes as long for few of them, is to show its law.
MANY = 1500


def fine(**options: Any) -> dg.Histogram:
    table = dg.read(ROWS, user="who", threads=1)
    asked = {"by": "cell", "domain": CELLS, "clip": 2.0, **OPTIONS, **options}
    return dg.count(table, **asked)


def of_many(seed: int) -> dg.Histogram:
    """Counts of many cells, which are 2 each: clipping takes nothing."""
    rows = ROWS.set_column(1, "cell", pa.array(np.arange(3000) % MANY))
    table = dg.read(rows, user="who", threads=1)
    return dg.count(table, by="cell", domain=range(MANY), clip=2.0, random_state=seed, **OPTIONS)


def test_a_copy_has_the_noise_that_its_promise_needs() -> None:
    """The error over many chains is normal, with the standard error that is stated."""
    off = [
        ((made := of_many(seed)).coarser(0.4).estimate - 2) / made.std_error for seed in range(3)
    ]
    one = fine(random_state=1)
    ratio = one.coarser(0.4).std_error / one.std_error
    assert (ratio == ratio[0]).all()
    assert stats.kstest(np.concatenate(off) / ratio[0], "norm").pvalue > 1e-3
    event = one.coarser(0.4).guarantee.event
    assert isinstance(event, Gaussian)
    assert isinstance(one.guarantee.event, Gaussian)
    assert event.noise_multiplier / one.guarantee.event.noise_multiplier == pytest.approx(ratio[0])


@pytest.mark.parametrize("epsilon", [1.99, 1.0, 0.3, 0.05])
def test_a_copy_promises_what_is_asked_or_a_hundredth_less(epsilon: float) -> None:
    made = fine().coarser(epsilon)
    assert 0.985 * epsilon < made.guarantee.epsilon() <= epsilon
    assert made.guarantee.delta == 1e-6
    assert made.guarantee.private
    assert "learns no more than from the finest of these" in str(made.guarantee)
    assert made.asked.epsilon == made.guarantee.epsilon()
    known = (made.low, made.high, made.at_least)
    assert all(limit is not None and np.isfinite(limit).all() for limit in known)


def test_copies_are_the_same_by_whatever_way(tmp_path: Path) -> None:
    one = fine()
    want = one.coarser(0.25)
    by_steps = one
    for epsilon in (1.9, 1.2, 0.8, 0.3, 0.25):
        by_steps = by_steps.coarser(epsilon)
    saved = dg.Release.load(one.save(tmp_path / "fine.parquet")).coarser(0.25)
    middle = dg.Release.load(one.coarser(1.0).save(tmp_path / "middle.parquet")).coarser(0.25)
    sent = pickle.loads(pickle.dumps(one)).coarser(0.25)
    for other in (by_steps, saved, middle, sent, copy.deepcopy(one).coarser(0.25)):
        assert np.array_equal(other.estimate, want.estimate)
        assert other.hash == want.hash
        assert np.array_equal(other.steps, want.steps)  # type: ignore[arg-type]
    assert one.coarser(one.guarantee.epsilon()) is one
    assert not np.array_equal(fine().coarser(0.25).estimate, want.estimate)


def test_averages_of_copies_are_no_better_than_the_finest_of_them() -> None:
    """The best weights of ten copies give the finest of them all the weight there is."""
    rows = []
    for seed in range(5):
        made = of_many(seed)
        copies = [made.coarser(epsilon) for epsilon in np.geomspace(1.0, 0.2, 10)]
        rows.append(np.stack([one.estimate - 2 for one in copies], axis=1))
    errors = np.concatenate(rows)
    covariance = np.cov(errors, rowvar=False)
    inverse = np.linalg.inv(covariance)
    best = inverse.sum(axis=1) / inverse.sum()
    assert best[0] == pytest.approx(1, abs=0.2)
    assert 1 / inverse.sum() == pytest.approx(covariance[0, 0], rel=0.03)
    # What each copy adds is independent of the finer ones.
    added = np.diff(errors, axis=1)
    correlation = np.corrcoef(np.concatenate([errors[:, :1], added], axis=1), rowvar=False)
    assert np.abs(correlation - np.eye(10)).max() < 4.5 / math.sqrt(len(errors))


def test_copies_whose_noise_does_not_add_up_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that draws each copy anew from the finest: ten of them average the noise away."""
    real = Chain.noise

    def anew(self: Chain, size: int) -> Any:
        return real(self, size) - (real(replace(self, rung=0), size) if self.rung else 0)

    monkeypatch.setattr(Chain, "noise", anew)
    coarse = of_many(1).coarser(0.3)
    assert (coarse.estimate - 2).std() < 0.8 * coarse.std_error[0]


def test_secrets_follow_in_one_direction() -> None:
    """The next secret is a hash of the last one, and noise is of another hash."""
    chain = Chain("00" * 32, 5.0, 2.0**20, 2.0**-10)
    secrets = [chain]
    for _ in range(20):
        secrets.append(secrets[-1].coarser())
    assert len({one.secret for one in secrets}) == 21
    assert [one.rung for one in secrets] == list(range(21))
    drawn = [one.noise(3) for one in secrets]
    assert len({tuple(noise.tolist()) for noise in drawn}) == 21
    assert np.array_equal(drawn[4], secrets[4].noise(3))
    for first, second in pairwise(secrets):
        assert second.multiplier(second.rung) == pytest.approx(1.01 * first.multiplier(first.rung))


def test_the_noise_of_a_chain_adds_up_to_that_of_each_copy() -> None:
    chain = Chain("ab" * 32, 5.0, 2.0**20, 2.0**-10)
    total = (chain.finest * chain.radius) ** 2
    for rung in range(300):
        # That the scale of each draw is this, the errors of copies show.
        more = chain.radius * chain.multiplier(rung) * math.sqrt(1.01**2 - 1)
        total += (more * coarser._MORE) ** 2
        assert total >= (chain.radius * chain.multiplier(rung + 1)) ** 2


SUMS: dict[str, dict[str, Any]] = {
    "record": {"unit": dg.Record(), "clip": "auto"},
    "element": {"unit": dg.Element("cell"), "clip": 3.0},
    "replaced": {"relation": "replace"},
    "where": {},
}


@pytest.mark.parametrize("name", SUMS)
def test_every_unit_and_relation_has_copies(name: str) -> None:
    table = dg.read(ROWS, user="who", threads=1)
    if name == "where":
        table = table.where(cell=(3, 40))
    asked = {"by": "cell", "domain": CELLS[3:40], "clip": 2.0, **OPTIONS, **SUMS[name]}
    made = dg.count(table, **asked).coarser(0.5)
    assert made.guarantee.epsilon() <= 0.5
    assert made.estimate.std() > 0


def test_sums_of_numbers_have_copies_in_their_unit() -> None:
    table = dg.read(ROWS, user="who", threads=1)
    numbers = ROWS["x"].to_numpy().clip(-2, 8)
    by_cell = np.bincount(ROWS["cell"].to_numpy(), numbers)
    groups: dict[str, Any] = {"by": "cell", "domain": CELLS}
    # A wrong unit shows in a few sums of everything, a wrong law of noise in sums of many cells.
    asked: list[tuple[dict[str, Any], Any, int]] = [({}, numbers.sum(), 20), (groups, by_cell, 10)]
    for options, truth, seeds in asked:
        off = []
        for seed in range(seeds):
            made = dg.sum(
                table, "x", bounds=(-2, 8), clip=4.0, random_state=seed, **options, **OPTIONS
            ).coarser(0.5)  # fmt: skip
            off.append((made.estimate - truth) / made.std_error)
            assert made.at_least is not None
            assert np.isnan(made.at_least).all(), "numbers below 0 leave no lower limit"
        assert stats.kstest(np.concatenate(off), "norm").pvalue > 1e-3


def test_what_has_no_copies_is_refused() -> None:
    table = dg.read(ROWS, user="who", threads=1)
    made = fine()
    without = [
        fine(clip="auto"),
        fine(noise="laplace", delta=0.0),
        dg.count(table, by="cell", **{**OPTIONS, "clip": 2.0}),
        dg.sum(table, "x", clip=2.0, **OPTIONS),
        made.largest(3),
        made.without_negatives(),
        made.shrunk(),
        made.consistent(),
    ]
    assert all(release.steps is None for release in without), "what has no copies keeps no steps"
    for release in without:
        with pytest.raises(
            dg.ParameterError, match=r"coarser\(\) needs a sum with noise='gaussian'"
        ):
            release.coarser(0.5)
    with pytest.raises(dg.ParameterError, match="noise cannot be taken off"):
        made.coarser(2.5)
    with pytest.raises(dg.ParameterError, match="that of the coarsest copy"):
        made.coarser(1e-9)
    with pytest.raises(dg.ParameterError, match="epsilon must be"):
        made.coarser(float("nan"))
    with pytest.raises(dg.ParameterError, match="and not coarser copies"):
        made.reconciled(made.coarser(1.0))


def test_numbers_of_any_size_have_copies() -> None:
    """Whether there is a copy, and how much noise it adds, follows from public numbers alone."""
    made = fine()
    assert made.steps is not None
    for far in (2**50, 2**58, -(2**61)):
        moved = replace(made, steps=made.steps + far)
        added = [
            one.coarser(0.5).steps - one.steps  # type: ignore[operator]
            for one in (made, moved)
        ]
        assert np.array_equal(added[0], added[1])
    # A multiplier that leaves few steps, and a unit that floating point rounds, have none.
    chain = Chain("00" * 32, 5.0, 2.0**20, 2.0**-10)
    event = Gaussian(2.0**-1)
    drawn = [
        Chain.of(event, event, radius, 1.0, lambda: "00" * 32) for radius in (2.0**20, 2.0**21)
    ]
    assert [one is None for one in drawn] == [True, False]
    assert Chain.of(event, event + event, 2.0**30, 1.0, lambda: "00" * 32) is None
    assert chain.scaled(1e-300) is None
    assert chain.scaled(-1e-280) is not None


def test_the_stated_epsilon_is_that_of_the_release() -> None:
    """Its own may fall a little short of it; and the coarsest copy has noise that can be drawn."""
    for epsilon in (0.5, 1.0, 2.0, 5.0):
        made = fine(epsilon=epsilon)
        assert made.coarser(epsilon) is made
        with pytest.raises(dg.ParameterError, match="cannot be taken off"):
            made.coarser(1.001 * epsilon)
        with pytest.raises(dg.ParameterError, match="that of the coarsest copy") as refused:
            made.coarser(1e-7)
        least = float(str(refused.value).partition("at least ")[2].partition(",")[0])
        assert made.coarser(1.0001 * least).guarantee.epsilon() <= 1.001 * least


def test_a_secret_stands_in_no_table_page_or_hash(tmp_path: Path) -> None:
    made = fine()
    assert made.chain is not None
    secret = made.chain.secret
    other = replace(made, chain=replace(made.chain, secret="00" * 32))
    assert other.hash != made.hash, "of few numbers a hash without it could be tried"
    assert secret not in made.hash
    for name in ("out.csv", "out.json", "out.parquet"):
        assert secret.encode() not in made.write(tmp_path / name).read_bytes()
    assert secret not in made.report(tmp_path / "page.html").read_text()
    for text in (repr(made), str(made.guarantee.to_dict()), made._repr_html_(), str(made.asked)):
        assert secret not in text
    assert secret.encode() in made.save(tmp_path / "saved.parquet").read_bytes()
    coarse = made.coarser(0.5).save(tmp_path / "coarse.parquet").read_bytes()
    assert secret.encode() not in coarse
