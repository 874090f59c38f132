"""The cost of an ε, compared with dp_accounting's PLD accountant and the PRV accountants.

Run ``python benchmarks/accounting.py [--repeats 3] [--only WORDS]``. The references come with ``pip
install dpgrain[bench]`` (Opacus needs PyTorch: ``pip install torch --index-url
https://download.pytorch.org/whl/cpu`` first is enough); missing references are skipped.

Every figure is the best of several runs, each in a separate process without caches and import
times. Ours and the references alternate, so that a slow minute affects all of them. All use δ =
1e-6, and noise with standard deviation σ in clipping bounds. If no other accountant answers, the
reference is a direct evaluation of the formula, written here.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, ndtr

from dpgrain.accounting import Gaussian
from dpgrain.accounting.calibration import calibrate
from dpgrain.accounting.events.subsampling import SampledGaussian
from dpgrain.units import User

DELTA = 1e-6


@dataclass(frozen=True)
class Work:
    """One computation, and its libraries: each prepares (imports), then computes a number.

    Args:
        others: name of the reference → its answer; an ImportError leaves it out.
        gap: how far our upper bound is from our lower one, relative; None where there is no lower one.
    """

    name: str
    ours: Callable[[], Callable[[], float]]
    others: dict[str, Callable[[], Callable[[], float]]] = field(default_factory=dict)
    gap: Callable[[], float] | None = None

    @property
    def everyone(self) -> dict[str, Callable[[], Callable[[], float]]]:
        return {"dpgrain": self.ours, **self.others}


def own(event: Any, **asked: Any) -> Callable[[], Callable[[], float]]:
    """Our ε of an event."""
    return lambda: lambda: float(event.epsilon(DELTA, **asked))


def gap(event: Any, **asked: Any) -> Callable[[], float]:
    """(upper − lower) ÷ upper of our ε."""

    def relative() -> float:
        low, high = event.epsilon(DELTA, bounds=True, **asked)
        return float((high - low) / high)

    return relative


def pld(event: Callable[[Any], Any]) -> Callable[[], Callable[[], float]]:
    """dp_accounting's ε of an event built from its module of events."""

    def prepare() -> Callable[[], float]:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        asked = event(dp_accounting)
        return lambda: float(PLDAccountant().compose(asked).get_epsilon(DELTA))

    return prepare


def sampled(noise: float, rate: float, rounds: int) -> Callable[[Any], Any]:
    """Poisson-sampled Gaussian rounds in dp_accounting's words."""
    return lambda dp: dp.SelfComposedDpEvent(
        dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), rounds
    )


def opacus(noise: float, rate: float, rounds: int) -> Callable[[], Callable[[], float]]:
    """Opacus's PRV accountant with its own choice of errors."""

    def prepare() -> Callable[[], float]:
        from opacus.accountants import PRVAccountant

        def epsilon() -> float:
            accountant = PRVAccountant()
            accountant.history = [(noise, rate, rounds)]
            return float(accountant.get_epsilon(DELTA))

        return epsilon

    return prepare


def prv(noise: float, rate: float, rounds: int) -> Callable[[], Callable[[], float]]:
    """The PRV authors' accountant: its upper bound, with errors as tight as ours."""

    def prepare() -> Callable[[], float]:
        from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

        def epsilon() -> float:
            accountant = PRVAccountant(
                prvs=[PoissonSubsampledGaussianMechanism(rate, noise)],
                max_self_compositions=[rounds],
                eps_error=1e-3,
                delta_error=DELTA / 1000,
            )
            return float(accountant.compute_epsilon(DELTA, [rounds])[2])

        return epsilon

    return prepare


def revealed(noise: float, rate: float, rounds: int) -> Callable[[], Callable[[], float]]:
    """Revealed participation, as the sum over all possible numbers of rounds."""

    def prepare() -> Callable[[], float]:
        j = np.arange(1, rounds + 1, dtype=np.float64)
        mass = np.exp(
            gammaln(rounds + 1)
            - gammaln(j + 1)
            - gammaln(rounds - j + 1)
            + j * math.log(rate)
            + (rounds - j) * math.log1p(-rate)
        )

        def delta(epsilon: float) -> float:
            mu = np.sqrt(j) / noise
            far = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0))
            return float(mass @ (ndtr(mu / 2 - epsilon / mu) - far))

        return lambda: float(brentq(lambda e: delta(e) - DELTA, 1e-3, 1e4, rtol=1e-9))

    return prepare


def calibrated_by_pld() -> Callable[[], float]:
    """dp_accounting's σ for ε = 2, to the same tolerance as ours."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    def noise() -> float:
        return float(
            dp.calibrate_dp_mechanism(
                PLDAccountant,
                lambda sigma: sampled(sigma, 0.01, 10_000)(dp),
                2.0,
                DELTA,
                tol=1e-4,
            )
        )

    return noise


def mixture(noise: float, rate: float, rounds: int, units: int) -> Callable[[Any], Any]:
    """k elements drawn one by one, in dp_accounting's words."""
    weights = [math.comb(units, j) * rate**j * (1 - rate) ** (units - j) for j in range(units + 1)]
    return lambda dp: dp.SelfComposedDpEvent(
        dp.dp_event.MixtureOfGaussiansDpEvent(noise, list(range(units + 1)), weights), rounds
    )


def one_bound(
    event: SampledGaussian, place: int, **asked: Any
) -> Callable[[], Callable[[], float]]:
    """One of the bounds on the same loss, separately: 0 revealed, 1 both sides."""

    def prepare() -> Callable[[], float]:
        from dataclasses import replace

        def epsilon() -> float:
            loss = event.loss(**asked)
            return (replace(loss, others=()), *loss.others)[place].epsilon(DELTA)

        return epsilon

    return prepare


def works() -> list[Work]:
    """The questions."""
    run = (1.0, 0.01, 10_000)
    pairs, users = SampledGaussian(*run), SampledGaussian(1.0, 0.01, 100_000, sampling="users")
    ten = SampledGaussian(1.0, 0.01, 1000)
    held: dict[str, Any] = {"max_elements": 5, "unit": User(5)}
    small = SampledGaussian(4.0, 0.01, 1000, sampling="users")
    return [
        Work(
            "Gaussian, σ=4",
            own(Gaussian(4.0)),
            {"dp_accounting": pld(lambda dp: dp.GaussianDpEvent(4.0))},
        ),
        Work(
            "participation revealed, σ=1 q=.01 T=10⁵",
            own(users),
            {"direct sum": revealed(1.0, 0.01, 100_000)},
        ),
        Work(
            "pairs, σ=1 q=.01 T=10⁴",
            own(pairs),
            {
                "dp_accounting": pld(sampled(*run)),
                "Opacus PRV": opacus(*run),
                "prv_accountant": prv(*run),
            },
            gap(pairs),
        ),
        Work(
            "pairs, the same, replace",
            own(pairs, relation="replace"),
            {},
            gap(pairs, relation="replace"),
        ),
        Work(
            "σ for ε=2, q=.01 T=10⁴",
            lambda: (
                lambda: float(
                    calibrate(
                        lambda noise: SampledGaussian(noise, 0.01, 10_000), 2.0, DELTA
                    ).parameter
                )
            ),
            {"dp_accounting": lambda: calibrated_by_pld()},
        ),
        Work(
            "k=10 of one person, σ=1 q=.01 T=1000",
            own(ten, units=10),
            {"dp_accounting": pld(mixture(1.0, 0.01, 1000, 10))},
            gap(ten, units=10),
        ),
        Work(
            "a whole user of ≤ 5, σ=4 q=.01 T=1000",
            own(small, **held),
            {"dp_accounting": pld(sampled(0.8, 0.01, 1000))},
            gap(small, **held),
        ),
        Work("one element of ≤ 5, users drawn, all bounds", own(small, max_elements=5)),
        Work(
            "— participation revealed alone",
            one_bound(small, 0, max_elements=5),
            {"direct sum": revealed(4.0, 0.01, 1000)},
        ),
        Work("— both sides alone", one_bound(small, 1, max_elements=5)),
    ]


def measure(place: int, who: str) -> dict[str, float] | None:
    """Seconds and answer of one run in a separate process; None if it is not installed."""
    command = [sys.executable, __file__, "--one", str(place), who]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def one(place: int, who: str) -> None:
    """Answer one question once, print seconds and the answer."""
    import warnings

    warnings.simplefilter("ignore")
    work = works()[place]
    try:
        compute = work.everyone[who]()
    except ImportError:
        sys.exit(3)
    started = time.perf_counter()
    answer = compute()
    seconds = time.perf_counter() - started
    found = {"seconds": seconds, "answer": answer}
    if who == "dpgrain" and work.gap is not None:
        found["gap"] = work.gap()
    print(json.dumps(found))


def main() -> None:
    """Print a table: seconds, ratio and both answers for every question."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="questions with these words")
    parser.add_argument("--one", nargs=2, metavar=("PLACE", "WHO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(int(options.one[0]), options.one[1])
        return
    print(f"{'':44}{'ours s':>10}{'ours':>11}{'gap':>9}  {'reference':<16}{'its s':>9}{'its':>11}"
          f"{'times':>9}{'differs':>10}")  # fmt: skip
    for place, work in enumerate(works()):
        if options.only not in work.name:
            continue
        runs = [{who: measure(place, who) for who in work.everyone} for _ in range(options.repeats)]
        show(work.name, runs)


def show(name: str, runs: list[dict[str, dict[str, float] | None]]) -> None:
    """The lines of one question."""
    answered: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        for who, found in run.items():
            if found is not None:
                answered.setdefault(who, []).append(found)
    best = {who: min(all_, key=lambda f: f["seconds"]) for who, all_ in answered.items()}
    ours = best.pop("dpgrain")
    apart = f"{ours['gap']:.1e}" if "gap" in ours else ""
    line = f"{name:44}{ours['seconds']:10.4f}{ours['answer']:11.4f}{apart:>9}"
    if not best:
        print(line)
    for who, its in best.items():
        times = its["seconds"] / ours["seconds"]
        differs = ours["answer"] / its["answer"] - 1
        print(f"{line}  {who:<16}{its['seconds']:9.3f}{its['answer']:11.4f}{times:9.1f}"
              f"{differs:+10.1e}")  # fmt: skip
        line = " " * 74


if __name__ == "__main__":
    main()
