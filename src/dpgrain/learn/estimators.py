"""Estimators, each for one loss."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain._validate import MISFIT_ERRORS
from dpgrain.errors import ParameterError, ScoreWarning
from dpgrain.inputs.columns import type_name
from dpgrain.learn.accuracy import Accuracy, accuracy
from dpgrain.learn.auc import Auc, auc
from dpgrain.learn.classes import Labels, NumericTargets, TargetRule, Targets, unselected_targets
from dpgrain.learn.files import damaged, read
from dpgrain.learn.fit_config import check_scale
from dpgrain.learn.fit_data import Classes
from dpgrain.learn.model import LinearModel
from dpgrain.learn.r2 import R2, r2
from dpgrain.learn.rows import without_rows
from dpgrain.learn.scoring import Predictions
from dpgrain.optimize import (
    Hinge,
    Huber,
    Logistic,
    MarginLoss,
    PoissonLoss,
    Quantile,
    Softmax,
    Squared,
)
from dpgrain.publishing.facts import Fact
from dpgrain.words.fit_text import list_labels


@dataclass(kw_only=True, repr=False, eq=False)
class _Classifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """Base of classifiers, with public or privately selected labels."""

    classes: Sequence[Any] | None = None

    def _targets(self, y: NDArray[Any]) -> Targets:
        if self.classes is None and y.dtype != np.bool_:
            return unselected_targets(y)
        # Without stated labels, the type of boolean targets determines them.
        kind = "boolean-labels" if self.classes is None else "stated-labels"
        rule = Labels.create([False, True] if self.classes is None else self.classes)
        classes = rule.classes
        return Targets(rule(y), (Fact(kind, (list_labels(classes),)),), classes=classes)

    def _rule(self, classes: Classes) -> TargetRule:
        return Labels(np.array([]) if classes is None else classes)

    def _set(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef_, self.intercept_ = coef, intercept

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the exact mean accuracy, and issue a ScoreWarning because it has no noise.

        Args:
            X: (m, d) features.
            y: (m,) labels.
            sample_weight: (m,) weights of rows.

        No (ε, δ) covers it; :meth:`score_privately` publishes the accuracy.
        """
        _warn_exact_score()
        with without_rows("y", "y and sample_weight must have one value per row of X."):
            return float(super().score(X, y, sample_weight))

    def score_privately(
        self, X: Any, y: Any, *, measure: Literal["accuracy", "auc"] = "accuracy", **promised: Any
    ) -> Accuracy | Auc:
        """Publish the quality of the model for users' rows, with an interval.

        Args:
            X: (m, d) features.
            y: (m,) labels.
            measure: ``"accuracy"``, next to the accuracy of the most common class; or ``"auc"``
                with calibration, for a model with two classes and probabilities.
            promised: the parameters of the release, such as ``users`` and ``epsilon``, as for
                :func:`dpgrain.learn.accuracy`.

        Raises:
            ParameterError: if a value is out of range, features have another form than in the fit,
                or the model does not support the measure.

        Formal guarantee: the guarantee of :func:`dpgrain.learn.accuracy` or
        :func:`dpgrain.learn.auc`, in addition to the fit's.

        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(4000, 2)); y = X[:, 0] > 0
        >>> model = LogisticRegression(epsilon=1.0, random_state=0).fit(X, y)
        >>> found = model.score_privately(X, y, epsilon=0.5, random_state=1)
        >>> found.value > 0.9, round(found.base, 1)
        (True, 0.5)
        """
        check_is_fitted(self)
        if _validate.one_of(("accuracy", "auc"), measure=measure) == "accuracy":
            return accuracy(
                y,
                Predictions.create(self, X),
                classes=self.classes_.tolist(),
                **promised,
            )
        if not hasattr(self, "predict_proba") or len(self.classes_) != 2:
            raise ParameterError(
                "measure must be 'accuracy' for this model, because 'auc' requires probabilities "
                "of two classes."
            )
        predicted = Predictions.create(self, X, positive=True)
        return auc(y, predicted, positive=self.classes_[1], **promised)

    def decision_function(self, X: Any) -> FloatArray:
        """Return the margins of rows: (m,) for two classes, otherwise (m, classes).

        Args:
            X: (m, d) features.
        """
        margins = self.margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row, (m,).

        Args:
            X: (m, d) features.
        """
        margins = self.margins(X)
        best = margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best.astype(np.intp)]
        return labels


@dataclass(kw_only=True, repr=False, eq=False)
class LogisticRegression(_Classifier):
    """Logistic regression under differential privacy, for two or more labels.

    The fit is for the average unit: the average user by default, the average record with
    ``Record()``. A ``clip`` below the usual norm of gradients makes coefficients too large.

    Args:
        classes: all labels, as a,b, or repeated for each; selected privately without it. By default
            (None), boolean targets have the labels False and True; otherwise labels with enough
            users are selected privately, with 3% of the budget and a tenth of δ, and rows with
            other labels are dropped. Each user counts for the label of one row, and a label needs
            about 130 users at ε = 1, δ = 1e-6. Labels are published by value, regardless of the
            type of the rows: 1 for ``True`` and 1.0.

    Other arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2)); y = X[:, 0] > 0
    >>> model = LogisticRegression(epsilon=1.0, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), round(model.guarantee_.epsilon(), 2)
    (True, 1.0)
    """

    def loss(self, classes: Classes) -> MarginLoss:
        """Return the logistic loss, or softmax for more than two labels."""
        return Logistic() if classes is None or len(classes) == 2 else Softmax(len(classes))

    @property
    def adds_to(self) -> str:
        """Description of the quantity that coefficients change."""
        return "the logarithm of the odds" if self.coef_.shape[0] == 1 else "the score of a label"

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each label, (m, classes).

        Args:
            X: (m, d) features.
        """
        margins = self.margins(X)
        if margins.shape[1] == 1:
            return np.column_stack([expit(-margins[:, 0]), expit(margins[:, 0])])
        result: FloatArray = softmax(margins, axis=1)
        return result


@dataclass(kw_only=True, repr=False, eq=False)
class LinearSVC(_Classifier):
    """Linear support vector machine for two labels, under differential privacy.

    Args:
        classes: the two labels; by default public or selected as in :class:`LogisticRegression`.

    Other arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2)); y = X[:, 0] > 0
    >>> bool(LinearSVC(epsilon=1.0, random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    def loss(self, classes: Classes) -> MarginLoss:
        """Return the hinge loss.

        Raises:
            ParameterError: if the number of classes is known and not two.
        """
        if classes is not None and len(classes) != 2:
            raise ParameterError(
                f"classes must be two labels for LinearSVC, not {len(classes)}. Only binary "
                "classification is supported: use LogisticRegression for more labels."
            )
        return Hinge()

    @property
    def adds_to(self) -> str:
        """Description of the quantity that coefficients change."""
        return "the score, whose sign is the label,"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(kw_only=True, repr=False, eq=False)
class _Regressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Base of regressors, with numeric targets."""

    def _targets(self, y: NDArray[Any]) -> Targets:
        if y.dtype.kind not in "biufO":
            raise ParameterError(f"y must be numbers, not {type_name(y.dtype)}.")
        return Targets(self._rule(None)(y))

    def _rule(self, classes: Classes) -> TargetRule:  # noqa: ARG002 - numbers have no labels
        return NumericTargets()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the exact R², and issue a ScoreWarning because it has no noise.

        Args:
            X: (m, d) features.
            y: (m,) targets.
            sample_weight: (m,) weights of rows.

        No (ε, δ) covers it; :meth:`score_privately` publishes R².
        """
        _warn_exact_score()
        with without_rows("y", "y and sample_weight must have one value per row of X."):
            return float(super().score(X, y, sample_weight))

    def score_privately(self, X: Any, y: Any, *, lower: float, upper: float, **promised: Any) -> R2:
        """Publish the R² of the model for users' rows, with an interval.

        Args:
            X: (m, d) features.
            y: (m,) targets.
            lower: the smallest target, a public number in the units of ``y``; smaller targets are
                clamped.
            upper: the largest target, likewise.
            promised: the parameters of the release, such as ``users`` and ``epsilon``, as for
                :func:`dpgrain.learn.r2`.

        Raises:
            ParameterError: if a value is out of range, or features have another form than in the
                fit.

        Formal guarantee: the guarantee of :func:`dpgrain.learn.r2`, in addition to the fit's.

        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(4000, 1)); y = X[:, 0]
        >>> model = LinearRegression(epsilon=1.0, random_state=0).fit(X, y)
        >>> found = model.score_privately(X, y, lower=-1, upper=1, epsilon=0.5, random_state=1)
        >>> found.value > 0.9
        True
        """
        check_is_fitted(self)
        predicted = Predictions.create(self, X)
        return r2(y, predicted, lower=lower, upper=upper, **promised)

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row, (m,).

        Args:
            X: (m, d) features.
        """
        return self.margins(X)


@dataclass(kw_only=True, repr=False, eq=False)
class LinearRegression(_Regressor):
    """Least squares under differential privacy.

    Gradients of least squares grow with the error of a record. The default bound clips few of them,
    and approaches the mean as the number of users grows; a lower ``clip`` approaches a median. The
    fit is for the average unit: the average user by default, the average record with ``Record()``.

    Args:
        target_bound: the public bound on the absolute value of a target; targets are clipped to
            ±target_bound and divided by it before the fit, so ``clip`` refers to the scaled
            targets. Set it for targets beyond about 1,000, because ``clip="auto"`` never chooses a
            bound above 4,096. None: unchanged.

    Other arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(4000, 2)); y = X @ [1.0, -1.0]
    >>> LinearRegression(epsilon=1.0, random_state=0).fit(X, y).coef_.round(1).tolist()
    [1.0, -1.0]
    >>> model = LinearRegression(target_bound=2e6, random_state=0).fit(X, 1e6 * y)
    >>> bool(abs(model.coef_ / 1e6 - [1.0, -1.0]).max() < 0.1)
    True
    """

    target_bound: float | None = None

    def loss(self, classes: Classes) -> MarginLoss:  # noqa: ARG002 - numbers have no labels
        """Return half the squared error.

        Raises:
            ParameterError: if ``target_bound`` is out of range.
        """
        if self.target_bound is not None:
            check_scale(target_bound=self.target_bound)
        return Squared()

    def _targets(self, y: NDArray[Any]) -> Targets:
        targets = super()._targets(y)
        if self.target_bound is None:
            return targets
        return replace(targets, public=(Fact("clipped-targets", (self.target_bound,)),))

    def _rule(self, classes: Classes) -> TargetRule:  # noqa: ARG002 - numbers have no labels
        return NumericTargets(bound=self.target_bound)

    @property
    def target_scale(self) -> float:
        """Divisor of targets."""
        scale: float | None = self.parameters_.get("target_bound")
        return scale or 1.0


@dataclass(kw_only=True, repr=False, eq=False)
class HuberRegressor(_Regressor):
    """Least squares with a linear loss beyond a threshold, under differential privacy.

    Args:
        threshold: the error beyond which the loss is linear, above 0, in units of the target.

    Other arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> HuberRegressor(threshold=2.0).threshold
    2.0
    """

    threshold: float = 1.35

    def loss(self, classes: Classes) -> MarginLoss:  # noqa: ARG002 - numbers have no labels
        """Return the loss: squared up to the threshold, linear beyond it."""
        return Huber(self.threshold)


@dataclass(kw_only=True, repr=False, eq=False)
class QuantileRegressor(_Regressor):
    """Quantile of the target as a linear function, under differential privacy.

    Args:
        quantile: the rank of the quantile, strictly between 0 and 1.

    Other arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> QuantileRegressor(quantile=0.9).quantile
    0.9
    """

    quantile: float = 0.5

    def loss(self, classes: Classes) -> MarginLoss:  # noqa: ARG002 - numbers have no labels
        """Return the error, weighted by its sign.

        Raises:
            ParameterError: if the rank is not strictly between 0 and 1.
        """
        return Quantile(_validate.fraction(quantile=self.quantile))


@dataclass(kw_only=True, repr=False, eq=False)
class PoissonRegressor(_Regressor):
    """Poisson regression with a log link, under differential privacy.

    Negative targets are treated as 0.

    Arguments, ``fit``, errors, guarantee and source: :class:`LinearModel`.

    >>> PoissonRegressor(epsilon=2.0).epsilon
    2.0
    """

    def loss(self, classes: Classes) -> MarginLoss:  # noqa: ARG002 - numbers have no labels
        """Return the loss of counts."""
        return PoissonLoss()

    @property
    def adds_to(self) -> str:
        """Description of the quantity that coefficients change."""
        return "the logarithm of the expected count"

    def _rule(self, classes: Classes) -> TargetRule:  # noqa: ARG002 - numbers have no labels
        return NumericTargets(0.0)

    def predict(self, X: Any) -> FloatArray:
        """Return the expected count of each row, (m,).

        Args:
            X: (m, d) features.
        """
        return np.exp(np.minimum(self.margins(X), 30.0))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def load(path: str | Path) -> LinearModel:
    """Read a model from :meth:`LinearModel.save`, with bitwise equal predictions.

    Args:
        path: the file.

    Raises:
        DataError: if the file cannot be read.
        ParameterError: if it is not a model, is damaged, or was written by a later version.

    >>> from tempfile import TemporaryDirectory
    >>> X = np.linspace(-1, 1, 500)[:, None]
    >>> model = LinearRegression(rounds=20).fit(X, X[:, 0])
    >>> with TemporaryDirectory() as folder:
    ...     again = load(model.save(Path(folder) / "model.json"))
    >>> bool((again.predict(X) == model.predict(X)).all()), again.guarantee_ == model.guarantee_
    (True, True)
    """
    contents = read(path)
    kind = vars(sys.modules[__name__])[contents.estimator]
    try:
        model: LinearModel = kind(**contents.parameters).restore(contents)
        if hasattr(model, "decision_function"):
            # Raises if a classifier lacks its classes, because it could not predict.
            _ = model.classes_
        return model
    except MISFIT_ERRORS as error:
        raise damaged(path) from error


def _warn_exact_score() -> None:
    """Warn that no (ε, δ) covers an exact score."""
    warnings.warn(
        "a score without noise is not covered by any (ε, δ), so show it only to people with access to "
        "the rows; use score_privately to publish a score.",
        ScoreWarning,
        stacklevel=3,
    )
