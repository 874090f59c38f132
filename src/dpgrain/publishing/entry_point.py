"""Public functions that publish the release of a query."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from dpgrain.publishing.call import recorded
from dpgrain.publishing.publish import publish
from dpgrain.publishing.query import Query

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Released = TypeVar("Released")
Published = TypeVar("Published", covariant=True)


class PublishingFunction(Protocol[Parameters, Published]):
    """A function that publishes a release, with a method for its query."""

    __name__: str

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Published:
        """Publish the release."""

    def query(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Query[Any]:
        """Validate the parameters, and return the query; nothing is read."""


def publishes(
    query: Callable[Parameters, Query[Released]],
) -> PublishingFunction[Parameters, Released]:
    """Create a publishing function from a function that returns a query.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> query = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0)
    >>> round(query.plan.guarantee.epsilon(), 6), str(query.plan.expected)
    (1.0, '±7.07')
    """
    with_call = recorded(query)

    @wraps(query)
    def function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Released:
        return publish(with_call(*args, **kwargs))

    wrapped: Any = function
    wrapped.query = with_call
    wrapped.__signature__ = _published(inspect.signature(query))
    return cast("PublishingFunction[Parameters, Released]", wrapped)


def published(
    query: Callable[Concatenate[Owner, Parameters], Query[Released]], name: str
) -> Callable[Concatenate[Owner, Parameters], Released]:
    """Create a publishing method with a name from a method that returns a query."""

    @wraps(query)
    def method(whose: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Released:
        return publish(query(whose, *args, **kwargs))

    method.__name__, method.__qualname__ = name, query.__qualname__.replace(query.__name__, name)
    method.__dict__["__signature__"] = _published(inspect.signature(query))
    return method


def _published(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of a function that publishes a query."""
    returned = str(signature.return_annotation).removeprefix("Query[").removesuffix("]")
    return signature.replace(return_annotation=returned)
