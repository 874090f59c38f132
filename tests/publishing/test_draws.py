"""Mechanisms of many rounds draw what their event states, and no more, in every family."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.charges import charge_of
from tests.refusals import refused_when_forked

import dpgrain as dg
from dpgrain.accounting import (
    AboveThreshold,
    ApproximateDP,
    Contribution,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Parallel,
    SampledGaussian,
    SoftCore,
)
from dpgrain.gradients.norms import release_norms
from dpgrain.learn import LogisticRegression, minimise
from dpgrain.learn import central as central_module
from dpgrain.means import ClippedMean, Mean, Radius, Recentred, Shuffled, Vectors, user_mean
from dpgrain.means.problem import Candidate
from dpgrain.noise import SystemSource
from dpgrain.optimize import Ball, Power, Sgd, Squared
from dpgrain.papers.pan_private import PanPrivate, PanPrivateRounds
from dpgrain.papers.softcore import SoftCoreMean
from dpgrain.papers.winsorized.winsorized import Winsorized
from dpgrain.publishing.draws import CountedSource, counted, one_draw, range_event, tickets
from dpgrain.shuffle import VectorSum
from dpgrain.shuffle.device_noise import BinomialNoise
from dpgrain.units import User

N, D = 40, 2
SUMS = np.zeros(3, dtype=np.int64)
PROMISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-4, "n_users": N, "rounds": 3}
ENDED = "no charged draws left|in an earlier group"
MEANS: dict[str, Mean] = {
    "clipped": ClippedMean(1.0, 2.0, N, 3),
    "exact": ClippedMean(1.0, 2.0, N, 3, exact=True),
    "sampled": ClippedMean(1.0, 2.0, N, 3, sampling_rate=0.5),
    "banded": ClippedMean(1.0, 2.0, N, 3, sampling_rate=0.25, bands=2),
    "recentred": Recentred(1.0, 2.0, N, 3, choice_scale=3.0),
    "recentred in shares": Recentred(1.0, 2.0, N, 3, shares=(0.2, 0.3, 0.5)),
    "winsorized": Winsorized(1.0, 2.0, D, 2.0, 1.0, N, 3),
    "shuffled": Shuffled.calibrate(**PROMISE, dimension=D),
    "shuffled in full": Shuffled.calibrate(**PROMISE, dimension=D, interaction="full"),
    "pan-private": PanPrivate(1.0, 2.0, N, 3),
}
VECTORS = Vectors(np.full((N, D), 0.3))


def started(mean: Mean, charged: Mean | None = None) -> Any:
    event = (mean if charged is None else charged).event
    return mean.start(charge_of(event, SystemSource()).rounds(event), np.arange(N))


@pytest.mark.parametrize("name", MEANS)
def test_mean_draws_no_further_round(name: str) -> None:
    run = started(MEANS[name])
    for _ in range(MEANS[name].rounds):
        run.estimate(VECTORS)
    # A mean that does not count its rounds itself.
    run._done = 0
    getattr(run, "radii", []).clear()
    # The state of a pan-private mean also counts users.
    pan = isinstance(run, PanPrivateRounds)
    with pytest.raises(RuntimeError, match=ENDED):
        _ = run.source.group(0, N) if pan else run.estimate(VECTORS)


@pytest.mark.parametrize("name", [name for name in MEANS if not name.startswith("shuffled")])
def test_mean_draws_no_smaller_noise(name: str) -> None:
    mean: Any = MEANS[name]
    weaker = replace(mean, noise_multiplier=mean.noise_multiplier / 3)
    run = started(weaker, mean)
    # A first round with less noise may use the precision of others, if nothing is sampled.
    with pytest.raises(RuntimeError, match=ENDED):
        _ = [run.estimate(VECTORS) for _ in range(mean.rounds)]


@pytest.mark.parametrize("name", ["shuffled", "shuffled in full"])
def test_shuffled_mean_draws_no_smaller_noise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started(MEANS[name])
    law = BinomialNoise.law
    monkeypatch.setattr(BinomialNoise, "law", lambda own, devices: law(own, devices // 2))
    with pytest.raises(RuntimeError, match="charged for more noise"):
        run.estimate(VECTORS)


def test_choices_of_a_mean_are_counted() -> None:
    mean = Recentred(1.0, 2.0, N, 3, choice_scale=3.0)
    with pytest.raises(RuntimeError, match=ENDED):
        started(replace(mean, choice_scale=2.0), mean).estimate(VECTORS)
    wide = Winsorized(1.0, 2.0, D, 2.0, 1.0, N, 3)
    with pytest.raises(RuntimeError, match=ENDED):
        started(replace(wide, range_epsilon=4.0), wide).estimate(VECTORS)


def test_rounds_of_a_soft_core_are_counted() -> None:
    mean = SoftCoreMean.calibrate(
        epsilon=4.0, delta=1e-4, n_users=400, rounds=2, radius=1.0, relation="zero_out"
    )
    users = Vectors(np.zeros((400, D)))
    run: Any = started(mean)
    for _ in range(2):
        run.estimate(users)
    run._done = 0
    with pytest.raises(RuntimeError, match=ENDED):
        run.estimate(users)
    for weaker in ("noise_multiplier", "query_scale", "threshold_scale"):
        less = replace(mean, **{weaker: getattr(mean, weaker) / 2})
        with pytest.raises(RuntimeError, match=ENDED):
            started(less, mean)
    run = started(mean)
    with pytest.raises(RuntimeError, match=ENDED):
        # No round has passed.
        run._comparisons.noisy(SUMS, 1.0)


def test_gaussians_share_their_precision() -> None:
    """Four draws of 2 cost as much as one of 1, with the same contribution."""
    event = Gaussian(2.0, count=4) + Gaussian(2.0, Contribution(layout="shared"))
    source = charge_of(event, SystemSource()).rounds(event)
    source.noisy(Gaussian(math.sqrt(2.0)), SUMS, 2.0**20)
    for _ in range(2):
        source.noisy(Gaussian(2.0), SUMS, 2.0**20)
    for part in (Gaussian(2.0), Gaussian(20.0)):
        with pytest.raises(RuntimeError, match=ENDED):
            source.noisy(part, SUMS, 2.0**20)
    source.noisy(Gaussian(2.0, Contribution(layout="shared")), SUMS, 2.0**20)


def test_samples_do_not_share_their_precision() -> None:
    """Amplified rounds have no such total: each needs its own noise and its own rate."""
    event = SampledGaussian(2.0, 0.5, rounds=4)
    source = charge_of(event, SystemSource()).rounds(event)
    for part in (
        SampledGaussian(1.0, 0.5),
        SampledGaussian(2.0, 0.4),
        Gaussian(2.0),
        SampledGaussian(2.0, 0.5, level="user"),
    ):
        with pytest.raises(RuntimeError, match=ENDED):
            source.floating(part, np.zeros(2))
    for _ in range(4):
        source.floating(SampledGaussian(2.0, 0.5), np.zeros(2))
    with pytest.raises(RuntimeError, match=ENDED):
        source.floating(SampledGaussian(2.0, 0.5), np.zeros(2))


def test_full_samples_are_gaussians() -> None:
    assert tickets(SampledGaussian(2.0, 1.0, 3, level="user")) == tickets(
        Gaussian(2.0, SampledGaussian(2.0, 1.0, level="user").contribution, 3)
    )


def test_rounds_are_at_most_the_charged_number() -> None:
    event = SampledGaussian(2.0, 0.5, rounds=4)
    with pytest.raises(RuntimeError, match=ENDED):
        charge_of(event, SystemSource()).rounds(event, 5)
    source = charge_of(event, SystemSource()).rounds(event, 1)
    source.floating(one_draw(event), np.zeros(2))
    with pytest.raises(RuntimeError, match=ENDED):
        source.floating(one_draw(event), np.zeros(2))
    with pytest.raises(RuntimeError, match=ENDED):
        charge_of(event, SystemSource()).rounds(event, 0).floating(one_draw(event), np.zeros(2))


ACTS: list[tuple[Event, Callable[[CountedSource], Any]]] = [
    (Gaussian(2.0), lambda s: s.noisy(Gaussian(2.0), SUMS, 2.0**20)),
    (Gaussian(2.0), lambda s: s.floating(Gaussian(2.0), np.zeros(2))),
    (Gaussian(2.0), lambda s: s.normals(Gaussian(2.0), 1.0, 1.0)),
    (Laplace(2.0), lambda s: s.noisy(Laplace(2.0), SUMS, 2.0**20)),
    (ExponentialMechanism(2.0), lambda s: s.order(ExponentialMechanism(2.0), SUMS)),
    (AboveThreshold(2.0, 4.0), lambda s: s.comparisons(AboveThreshold(2.0, 4.0))),
    (range_event(0.5, 2), lambda s: s.choose(np.ones((2, 3), dtype=np.int64), 0.5)),
    (ApproximateDP(0.5), lambda s: s.choose(np.ones((1, 3), dtype=np.int64), 0.5, pure=True)),
    (Parallel((Gaussian(2.0),)), lambda s: s.group(0, 9)),
    (Gaussian(2.0), lambda s: s.bits("sampling", 3)),
    (Gaussian(2.0), lambda s: s.generator("sampling")),
]


@pytest.mark.parametrize(("event", "act"), ACTS)
def test_source_draws_once(event: Event, act: Callable[[CountedSource], Any]) -> None:
    source = charge_of(event, SystemSource()).rounds(event)
    act(source)
    with pytest.raises(RuntimeError, match=ENDED):
        act(source)


@pytest.mark.parametrize(("event", "act"), [*ACTS, (Gaussian(2.0), lambda s: s.words(1))])
def test_source_ends_with_its_release(event: Event, act: Callable[[CountedSource], Any]) -> None:
    with charge_of(event, SystemSource()) as charge:
        source = charge.rounds(event)
        refused_when_forked(lambda: act(source), "charge of a release", "another process")
    with pytest.raises(RuntimeError, match="the release is complete"):
        act(source)
    with charge_of(event, SystemSource()) as charge:
        source = charge.rounds(event, outlives=True)
    refused_when_forked(lambda: act(source), "charge of a release", "another process")
    act(source)


def test_choices_have_the_charged_range() -> None:
    source = charge_of(range_event(0.5, 4), SystemSource()).rounds(range_event(0.5, 4))
    with pytest.raises(RuntimeError, match=ENDED):
        source.choose(np.ones((1, 3), dtype=np.int64), 1.01)
    pure = ApproximateDP(0.5)
    with pytest.raises(RuntimeError, match=ENDED):
        counted(SystemSource(), pure).choose(np.ones((1, 3), dtype=np.int64), 0.51, pure=True)


def test_comparisons_stop_once() -> None:
    part = AboveThreshold(2.0, 4.0)
    run = counted(SystemSource(), part).comparisons(part, 2)

    def far(noisy: Any, lowered: Any) -> Any:
        return noisy + lowered >= 1000

    values = np.array([0, 10**6])
    assert run.stop(values, far).tolist() == [False, True]
    # A comparison that has stopped does not stop again.
    assert run.stop(values, far).tolist() == [False, False]
    assert run.stop(values[::-1], far).tolist() == [True, False]
    with pytest.raises(RuntimeError, match=ENDED):
        run.stop(values, far)
    with pytest.raises(RuntimeError, match=ENDED):
        run.noisy(SUMS, 1.0)


def test_soft_core_draws_once_per_passing_round() -> None:
    part = SoftCore(2.0, 100, 80, 5, 2.0, 2.0, rounds=2)
    run = counted(SystemSource(), part).comparisons(part)
    for _ in range(2):
        run.stop(np.array([0]), lambda noisy, _: noisy > 10**6)
        run.noisy(SUMS, 2.0**20)
        with pytest.raises(RuntimeError, match=ENDED):
            run.noisy(SUMS, 2.0**20)
    with pytest.raises(RuntimeError, match=ENDED):
        run.stop(np.array([0]), lambda noisy, _: noisy > 10**6)


def test_groups_are_disjoint_and_of_the_charged_events() -> None:
    one, two = Gaussian(2.0), Gaussian(3.0)
    for first, end, part in ((0, 5, Gaussian(1.0)), (0, 5, None), (5, 3, one)):
        source = counted(SystemSource(), Parallel((one, two)))
        with pytest.raises(RuntimeError, match="in an earlier group, or their event"):
            source.group(first, end, part)
    source = counted(SystemSource(), Parallel((one, two)))
    inner = source.group(0, 5, one)
    inner.noisy(one, SUMS, 2.0**20)
    with pytest.raises(RuntimeError, match=ENDED):
        inner.noisy(one, SUMS, 2.0**20)
    with pytest.raises(RuntimeError, match="in an earlier group"):
        source.group(4, 9, two)
    source.group(5, 9, two).noisy(two, SUMS, 2.0**20)
    # The draws of a single event belong to its groups.
    single = counted(SystemSource(), one)
    single.group(0, 5)
    with pytest.raises(RuntimeError, match=ENDED):
        single.noisy(one, SUMS, 2.0**20)


def test_a_source_is_not_copied() -> None:
    source = counted(SystemSource(), Gaussian(2.0))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(dg.ParameterError, match="a CountedSource cannot be copied"):
            copied(source)


# -- releases --

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(200, 2)), RNG.integers(0, 2, 200)
USERS = np.arange(200)


central: Any = central_module


def more_rounds(mean: Any) -> Any:
    return replace(mean, rounds=mean.rounds + 1)


def less_noise(mean: Any) -> Any:
    return replace(mean, noise_multiplier=mean.noise_multiplier / 1.01)


def fitted(**options: Any) -> object:
    return LogisticRegression(
        epsilon=4.0, delta=1e-4, n_users=200, classes=[0, 1], unit=User(), rounds=4, **options
    ).fit(X, Y, users=USERS)


@pytest.mark.parametrize("changed", [more_rounds, less_noise])
@pytest.mark.parametrize("options", [{}, {"sampling_rate": 0.5}, {"exact": True}], ids=str)
def test_fit_draws_match_the_charge(
    changed: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = central.train
    monkeypatch.setattr(
        central, "train", lambda at, mean, *rest, **more: real(at, changed(mean), *rest, **more)
    )
    with pytest.raises(RuntimeError, match=ENDED):
        fitted(**options)


def test_fit_counts_its_histograms_and_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(gradients: Any, event: Any, source: Any) -> Any:
        release_norms(gradients, event, source)
        return release_norms(gradients, event, source)

    monkeypatch.setattr(central, "release_norms", twice)
    with pytest.raises(RuntimeError, match=ENDED):
        fitted(sampling_rate=0.5)
    monkeypatch.undo()
    real = central.release_evidence
    monkeypatch.setattr(
        central,
        "release_evidence",
        lambda *rest, event, **more: real(
            *rest, event=replace(event, noise_multiplier=event.noise_multiplier / 1.01), **more
        ),
    )
    with pytest.raises(RuntimeError, match=ENDED):
        fitted(intervals=0.2)


@pytest.mark.parametrize("changed", [more_rounds, less_noise])
def test_minimisation_draws_match_the_charge(changed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules["dpgrain.learn.minimise"]
    real = module.train
    monkeypatch.setattr(
        module, "train", lambda at, mean, *rest, **more: real(at, changed(mean), *rest, **more)
    )
    with pytest.raises(RuntimeError, match=ENDED):
        minimise(
            Squared(), X, Y, np.zeros(2), solver=Sgd(Power(1.0), Ball(3.0)), users=USERS,
            n_users=200, epsilon=4.0, delta=1e-4, rounds=4, unit=User(),
        )  # fmt: skip


def test_users_of_a_shuffled_round_report_once(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = VectorSum(n_users=N, dim=D, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    real = VectorSum._ones

    def twice(own: VectorSum, *given: Any) -> Any:
        real(own, *given)
        return real(own, *given)

    monkeypatch.setattr(VectorSum, "_ones", twice)
    with pytest.raises(RuntimeError, match=ENDED):
        protocol.simulate(np.full((N, D), 0.3))
    monkeypatch.undo()
    law = BinomialNoise.law
    monkeypatch.setattr(BinomialNoise, "law", lambda own, devices: law(own, devices - 1))
    with pytest.raises(RuntimeError, match="charged for more noise"):
        protocol.simulate(np.full((N, D), 0.3))


def test_mean_of_users_draws_match_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Candidate.run
    monkeypatch.setattr(
        Candidate,
        "run",
        lambda own, *given: (real(own, *given), real(own, *given))[1],
    )
    for method in ("clip", "recentred"):
        with pytest.raises(RuntimeError, match=ENDED):
            user_mean.mean_of_users(
                np.full((4000, 2), 0.5), bound=1.0, epsilon=1.0, delta=1e-6, n_users=4000,
                method=method,
            )  # fmt: skip


def test_an_evaluation_draws_only_within_its_run() -> None:
    kept: list[Any] = []

    def evaluation(losses: Any, epsilon: float, source: Any) -> float:
        kept.append(source)
        source.words(2)
        return float(losses.mean())

    dg.select(
        [0.0, 1.0], lambda c, x: abs(x - c), np.linspace(0, 1, 50), users=np.arange(50), epsilon=1.0,
        method="repeat", evaluation=evaluation,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="the release is complete"):
        kept[0].words(1)


def test_a_radius_is_chosen_once() -> None:
    radius = Radius.calibrate(epsilon=8.0, n_users=500, smallest=0.1, largest=10.0)
    source = charge_of(radius.event, SystemSource()).rounds(radius.event)
    users = np.zeros((500, 2))
    with pytest.raises(RuntimeError, match=ENDED):
        replace(radius, query_scale=radius.query_scale / 2).find(users, source)
    radius.find(users, source)
    with pytest.raises(RuntimeError, match=ENDED):
        radius.find(users, source)
