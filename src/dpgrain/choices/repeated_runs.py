"""Best result of a random number of runs of a private candidate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpgrain import _validate
from dpgrain._formatting import short_repr
from dpgrain.accounting import Event, SelectBest
from dpgrain.accounting.events.best_of import Stopping
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.inputs.callbacks import silent
from dpgrain.noise import RandomSource, SystemSource
from dpgrain.publishing import in_budget
from dpgrain.publishing.draws import best_run
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee

Result = TypeVar("Result")

# δ of the printed guarantee, if it is not pure.
_PRINTED_DELTA = 1e-6


@dataclass(frozen=True)
class BestResult(Generic[Result]):
    """Best result of several runs; ``score`` is None if there was no run."""

    result: Result
    score: float | None
    event: SelectBest
    private: bool = True

    def __str__(self) -> str:
        event = self.event
        delta = 0.0 if math.isfinite(event.epsilon(0.0)) else _PRINTED_DELTA
        drawn = (Fact("runs", (event.mean,)),)
        guarantee = Guarantee(event.level, "", "zero_out", delta, event, drawn, self.private)
        score = "" if self.score is None else f", score {self.score:.4g}"
        subject = "the best of several runs" if self.score is not None else "nothing was run"
        return f"{subject}{score}: {short_repr(self.result)}.\n{guarantee}"


def best_of(
    run: Callable[[RandomSource], tuple[float, Result]],
    *,
    event: Event | tuple[Event, ...],
    mean: float,
    stopping: Stopping = "negative_binomial",
    eta: float = 1.0,
    default: Result | None = None,
    source: RandomSource | None = None,
) -> BestResult[Result]:
    """Run a private candidate a random number of times, and return the best result.

    Args:
        run: a function that performs one run with a source of randomness, and returns its score and
            its result, both private. It draws settings from a public distribution, and must not
            depend on other runs. Among equal scores the first one wins. NaN is the lowest score,
            and so is the score of a run that raises, with the default as its result.
        event: the event, or events, of one run, for the computation of the result *and* the score.
        mean: the mean number of runs.
        stopping: the distribution of the number of runs, ``"negative_binomial"`` or ``"poisson"``.
        eta: η of the negative binomial distribution; 1 stops after each run with probability
            1/mean.
        default: the result if the Poisson distribution yields no run, and of a run that raises; it
            must not depend on data.
        source: the source of randomness for the number of runs and for the runs; by default, the
            operating system.

    Raises:
        ParameterError: if a parameter is out of range, or a budget is open; nothing is run in these
            cases.

    Only the returned value may be published. The number of runs, their duration, their output and
    the other results must stay secret: a timing is a release.

    Formal guarantee: the guarantee of :class:`dpgrain.accounting.SelectBest`; the number of runs is
    drawn exactly from its distribution. It must run outside a budget. A budget would charge each
    run, and thus reveal their number, but charge too little in total. The caller is responsible for
    the event. Source: Papernot & Steinke 2022, Algorithm 1; Levy et al. 2021, Algorithm 5, is η =
    1.

    >>> from dpgrain.accounting import Laplace
    >>> from dpgrain.noise import discrete_laplace
    >>> def noisy(source):
    ...     return float(discrete_laplace(10.0, 1, source=source)[0]), "what was made"
    >>> best = best_of(noisy, event=Laplace(10.0), mean=5.0)
    >>> best.result, round(best.event.epsilon(), 3)
    ('what was made', 0.233)
    """
    if in_budget():
        raise ParameterError(
            "best_of must not run inside a budget, which would charge its runs; call it "
            "outside, and reduce the budget by the ε of best.event.epsilon(delta)."
        )
    _validate.function(run=run)
    source = SystemSource() if source is None else source
    if not callable(getattr(source, "words", None)):
        raise ParameterError(
            f"source must be a random source of dpgrain.noise, not {_validate.describe(source)}.",
            name="source",
        )
    about = SelectBest(event, mean, stopping, eta)

    def guarded(source: RandomSource) -> tuple[float, Result]:
        try:
            with silent():
                score, result = run(source)
                return float(score), result
        except BaseException as error:
            # Errors and warnings of a run are suppressed, because they could reveal a user's data.
            reraise_keyboard_interrupt(error)
            return -math.inf, default  # type: ignore[return-value]

    best = best_run(guarded, about, source)
    if best is None:
        return BestResult(default, None, about, source.private)  # type: ignore[arg-type]
    return BestResult(best[1], best[0], about, source.private)
