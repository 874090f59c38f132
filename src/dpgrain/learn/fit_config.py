"""Validated copy of the parameters of an estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.guarantees import Sampling
from dpgrain.inputs.record_limit import Weights, check_weights
from dpgrain.learn.confidence import check_share
from dpgrain.learn.program import Known, Recipe
from dpgrain.noise import RandomState
from dpgrain.optimize import CoinBetting, FullMatrixAdagrad, MarginLoss, Solver
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise
from dpgrain.units import Relation, Trust, Unit, User

if TYPE_CHECKING:
    from dpgrain import papers
    from dpgrain.learn.fit_data import Classes
    from dpgrain.learn.model import LinearModel
else:
    papers = lazy_import("dpgrain.papers")

# Largest norm of a row, including the 1 for the intercept, that the first round without a curator
# does not clip. Later rounds follow the norms; a low first bound costs more than a high one.
_FIRST_NORM = 2.0
# Approximate ratio of a fit's total distance to a coordinate's distance after the warm-up.
_REMAINING_DISTANCE = 2.0
# Number of coefficients above which a full-matrix solver is not used: with few users, noise
# obscures the axes of gradients, and coin betting is more accurate. For 490 coefficients of digits
# by 539 writers at ε = 1, its accuracy was 80%, and 76% with full matrices.
_MAX_AXES = 100


@dataclass(frozen=True, eq=False)
class FitConfig:
    """Copy of an estimator's parameters; see :class:`~dpgrain.learn.LinearModel`."""

    kind: type[LinearModel]
    unit: Unit | None
    relation: Relation
    epsilon: float
    delta: float
    share: float | None
    clip: float | Literal["auto"] | None
    rounds: int | None
    sampling_rate: float | None
    sampling: Sampling
    algorithm: Literal["auto"] | Solver[Any] | Recipe
    trust: Trust
    l2: float
    fit_intercept: bool
    feature_bound: float | None
    n_features: int | None
    n_users: int | None
    elements_per_user: float | Literal["auto"]
    weights: Weights
    max_records: int | None
    intervals: float
    exact: bool
    tune: Any
    random_state: RandomState
    verbose: bool
    options: Mapping[str, Any]
    copied: bool = False

    @staticmethod
    def create(model: LinearModel) -> FitConfig:
        """Copy and validate the parameters of a model, except the parameters of its loss."""
        values = {name: _copy(value) for name, value in model.get_params(deep=False).items()}
        own = {name: values.pop(name) for name in _PARAMETERS}
        return FitConfig(type(model), **own, options=values, copied=model._copied)

    def model(self) -> LinearModel:
        """Return a new unfitted model."""
        model = self.kind(**self.parameters)
        model._copied = self.copied
        return model

    @property
    def parameters(self) -> dict[str, Any]:
        """Copies of all parameters of the estimator, by name."""
        values = {**{name: getattr(self, name) for name in _PARAMETERS}, **self.options}
        return {name: _copy(value) for name, value in sorted(values.items())}

    def __post_init__(self) -> None:
        unit = User() if self.unit is None else self.unit
        promise = Promise(unit, self.epsilon, self.delta, self.relation)
        promise.require_delta("delta must be above 0 for fits, not 0; use about 1e-6.")
        self._check_numbers()
        _validate.one_of(("central", "shuffle", "pan"), trust=self.trust)
        known = hasattr(self.algorithm, "step") or isinstance(self.algorithm, Recipe)
        if self.algorithm != "auto" and (not known or isinstance(self.algorithm, type)):
            raise ParameterError(
                "algorithm must be 'auto', a solver of dpgrain.optimize or dpgrain.papers, or a recipe "
                f"of dpgrain.papers, not {self.algorithm!r}."
            )
        if isinstance(self.algorithm, Recipe) or self.trust != "central":
            self._check_recipe()

    def _check_numbers(self) -> None:
        """Reject numbers that are out of range, by name."""
        for name in ("clip", "elements_per_user"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise ParameterError(
                    f"{name} must be a number or 'auto', not {_validate.describe(value)}."
                )
            if value not in ("auto", None) or (name != "clip" and value is None):
                _validate.positive(**{name: value})
        _validate.one_of(("pairs", "users", "full"), sampling=self.sampling)
        check_weights(self.weights, self.max_records)
        if self.weights == "records" and self.tune is not None:
            raise ParameterError(
                "weights must be 'users' with tune, not 'records', because the scores of settings "
                "give users equal weight.",
                name="weights",
            )
        _validate.non_negative(l2=self.l2)
        _validate.boolean(fit_intercept=self.fit_intercept)
        if self.rounds is not None:
            _validate.integer(minimum=1, rounds=self.rounds)
        for name in ("feature_bound", "elements_per_user"):
            value = getattr(self, name)
            if value is not None and value != "auto":
                check_scale(**{name: value})
        for name in ("n_features", "n_users"):
            if getattr(self, name) is not None:
                _validate.integer(minimum=1, **{name: getattr(self, name)})
        check_share(self.intervals)

    def _check_recipe(self) -> None:
        """Reject parameters that a recipe does not support."""
        how = self.how
        if self.unit not in (None, User()):
            raise ParameterError(
                f"unit must be User() with {how}, not {self.unit!r}, because recipes protect whole "
                "users."
            )
        # The default recipes of `trust` use these.
        own = not isinstance(self.algorithm, Recipe)
        stated = () if own else (("clip", (None,)), ("rounds", (None,)))
        for name, allowed in (
            *stated,
            ("sampling_rate", (None,)),
            ("sampling", ("pairs", "full")),
            ("elements_per_user", (1.0,)),
            ("weights", ("users",)),
            ("intervals", (0.0,)),
            ("exact", (False,)),
        ):
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"{name} must be omitted with {how}, not {getattr(self, name)!r}, because the "
                    "recipe sets it."
                )

    @property
    def promise(self) -> Promise:
        """Promise of a fit, by default for users: the stated ε and δ, or a share of the budget."""
        epsilon = self.epsilon if self.share is None else None
        unit = User() if self.unit is None else self.unit
        return Promise.of(unit, epsilon, self.delta, self.relation, self.share)

    def loss(self, classes: Classes) -> MarginLoss:
        """Return the loss of a record as a function of its margin; see the estimator."""
        return self.model().loss(classes)

    @property
    def labels(self) -> bool:
        """True if targets are labels."""
        return "classes" in self.options

    @property
    def how(self) -> str:
        """Name of the parameter that selected the recipe."""
        return "a recipe" if isinstance(self.algorithm, Recipe) else f"trust={self.trust!r}"

    @property
    def recipe(self) -> Recipe | None:
        """Recipe of the fit; None for a curator's clipped means."""
        return self.recipe_for(math.inf)

    def recipe_for(self, slope: float) -> Recipe | None:
        """Return the recipe for a loss with the (possibly infinite) largest slope, or None."""
        if isinstance(self.algorithm, Recipe):
            return self.algorithm
        if self.trust == "central":
            return None
        shuffled = self.trust == "shuffle"
        kind = papers.ShuffleConcentrated if shuffled else papers.PanPrivateConcentrated
        if self.clipping != "auto":
            return kind(Known(radius=self.clipping), self.rounds, 1.0, self.solver)
        first = _FIRST_NORM * (slope if math.isfinite(slope) else 1.0)
        return kind(Known(radius=first), self.rounds, None, self.solver)

    @property
    def solver(self) -> Solver[Any]:
        """Solver of the fit, unless a recipe has its own."""
        if self.algorithm == "auto" or isinstance(self.algorithm, Recipe):
            return CoinBetting()
        return self.algorithm

    def after_warming_up(self, moved: FloatArray, noise: float) -> Solver[Any]:
        """Return the solver for the rounds after the warm-up."""
        if len(moved) > _MAX_AXES:
            return self.solver
        # The median is robust against a distant constant, or noise in one coordinate.
        reach = _REMAINING_DISTANCE * float(np.median(np.abs(moved)))
        return FullMatrixAdagrad(reach or 1.0, noise)

    @property
    def clipping(self) -> float | Literal["auto"]:
        """Clipping bound, or ``"auto"`` if it is chosen within the budget."""
        if self.clip is not None:
            return self.clip
        # The steps of a curator's custom solver depend on a scale, which a chosen bound would
        # change.
        own = self.trust == "central" or isinstance(self.algorithm, Recipe)
        return 1.0 if own and self.algorithm != "auto" else "auto"

    @property
    def warms_up(self) -> bool:
        """True if the first rounds only find the neighbourhood of the solution."""
        return self.trust == "central" and self.clipping == self.algorithm == "auto"

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Other explicit numbers."""
        facts = []
        if self.feature_bound is not None:
            facts.append(Fact("feature-bound", (self.feature_bound,)))
        if self.elements_per_user not in ("auto", 1.0):
            facts.append(Fact("division", (self.elements_per_user,)))
        if self.l2:
            facts.append(Fact("ridge", (self.l2,)))
        if self.warms_up:
            facts.append(Fact("warm-up"))
        if self.intervals:
            facts.append(Fact("intervals", (self.intervals,)))
            if self.exact:
                facts.append(Fact("floating-moments"))
        return tuple(facts)


# Parameters of every estimator.
_PARAMETERS = tuple(
    field.name for field in fields(FitConfig) if field.name not in ("kind", "options", "copied")
)


def _copy(value: Any) -> Any:
    """Return a copy of a parameter that later changes by the caller do not affect."""
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_copy(one) for one in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def check_scale(**parameter: float) -> None:
    """Require a divisor of rows or targets between 1e-50 and 1e50."""
    ((name, value),) = parameter.items()
    if not 1e-50 <= _validate.positive(**parameter) <= 1e50:
        raise ParameterError(
            f"{name} must be between 1e-50 and 1e50, not {_validate.describe(value)}.",
            name=name,
        )
