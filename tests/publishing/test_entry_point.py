"""Functions and methods that publish the results of their queries."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import dpgrain as dg
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.publishing import Query
from dpgrain.publishing.entry_point import published, publishes

VECTORS, USERS = np.ones((20, 2)), np.arange(20)


class People:
    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors

    def asked(self, *, epsilon: float, delta: float = 1e-6) -> Query[MeanOfUsers]:
        return mean_of_users.query(
            self.vectors, users=USERS, bound=2.0, epsilon=epsilon, delta=delta, method="clip"
        )

    mean = published(asked, "mean")


def test_function_publishes_its_query() -> None:
    def asked(vectors: Any, *, epsilon: float) -> Query[MeanOfUsers]:
        return People(vectors).asked(epsilon=epsilon)

    door = publishes(asked)
    assert door.query is asked
    assert door.__doc__ == "Publish the mean of all users."
    assert inspect.signature(door).return_annotation == "MeanOfUsers"
    with dg.budget(1.0, 1e-5) as whole:
        assert 0.49 < door(VECTORS, epsilon=0.5).guarantee.epsilon() <= 0.5
        assert whole.left < 1
    with pytest.raises(TypeError, match="delta"):
        door(VECTORS, epsilon=0.5, delta=0.1)  # type: ignore[call-arg]


def test_method_publishes_the_query_of_another() -> None:
    people = People(VECTORS)
    with dg.budget(1.0, 1e-5) as whole:
        assert 0.49 < people.mean(epsilon=0.5).guarantee.epsilon() <= 0.5
        left = whole.left
        assert people.asked(epsilon=0.5).plan.guarantee.level == "user"
        assert whole.left == left < 1
    assert (People.mean.__name__, People.mean.__qualname__) == ("mean", "People.mean")
    assert People.mean.__doc__ == "Publish the mean."
    mean, asked = (inspect.signature(method) for method in (People.mean, People.asked))
    assert mean.parameters == asked.parameters
    assert (mean.return_annotation, asked.return_annotation) == (
        "MeanOfUsers",
        "Query[MeanOfUsers]",
    )
