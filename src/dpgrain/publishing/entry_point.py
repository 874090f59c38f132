"""Doors: public functions for publishing what a query asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from dpgrain.publishing.parameters import described
from dpgrain.publishing.publish import publish
from dpgrain.publishing.query import Query

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Made = TypeVar("Made")
Published = TypeVar("Published", covariant=True)


class PublishingFunction(Protocol[Parameters, Published]):
    """A publishing function, with the query for what it would publish."""

    __name__: str

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Published:
        """Publish what the parameters ask for."""

    def query(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Query[Any]:
        """Check what the parameters ask for, and return it as a query; nothing is read."""


def publishes(query: Callable[Parameters, Query[Made]]) -> PublishingFunction[Parameters, Made]:
    """Make a door from a function of parameters that returns a query.

    Args:
        query: the function; its docstring is the door's, with those of shared parameters.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> asked = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0)
    >>> round(asked.plan.guarantee.epsilon(), 6), str(asked.plan.expected)
    (1.0, '±7.07')
    """

    @wraps(query)
    def door(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Made:
        return publish(query(*args, **kwargs))

    made: Any = door
    made.query = query
    signature = inspect.signature(query)
    made.__doc__ = described(query.__doc__, list(signature.parameters))
    made.__signature__ = _published(signature)
    return cast("PublishingFunction[Parameters, Made]", made)


def published(
    query: Callable[Concatenate[Owner, Parameters], Query[Made]], name: str
) -> Callable[Concatenate[Owner, Parameters], Made]:
    """Make a publishing method from another method of the class, which asks for the release.

    Args:
        query: the other method; its docstring is the method's.
        name: the name of the method.
    """

    @wraps(query)
    def method(whose: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Made:
        return publish(query(whose, *args, **kwargs))

    method.__name__, method.__qualname__ = name, query.__qualname__.replace(query.__name__, name)
    method.__dict__["__signature__"] = _published(inspect.signature(query))
    return method


def _published(stated: inspect.Signature) -> inspect.Signature:
    """Return the signature of what publishes a query."""
    returned = str(stated.return_annotation).removeprefix("Query[").removesuffix("]")
    return stated.replace(return_annotation=returned)
