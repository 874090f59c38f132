"""Training runs as queries: planned without reading, charged once, and never twice."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch

import dpgrain as dg
from dpgrain.errors import RefusedError
from dpgrain.publishing import Promise, publish
from dpgrain.torch import PrivacyEngine
from dpgrain.torch.query import RunQuery

RECORDS, USERS = 60, 20


class Unread:
    """Labels, or records, that tell how many they are, and raise when one is read."""

    shape, ndim, dtype = (RECORDS,), 1, np.dtype(np.int64)

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, which: Any) -> Any:
        assert which == slice(0, 0), "rows were read"
        return np.empty(0, dtype=self.dtype)

    def _read(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("rows were read")

    __array__ = __iter__ = tolist = _read


def asked(engine: PrivacyEngine, **options: Any) -> RunQuery:
    net = torch.nn.Linear(3, 1)
    stated: dict[str, Any] = {
        "module": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.1),
        "dataset": torch.utils.data.TensorDataset(torch.ones(RECORDS, 3), torch.ones(RECORDS, 1)),
        "users": np.arange(RECORDS) // 3,
        "n_users": USERS,
        "steps": 4,
        "sampling_rate": 0.5,
        "max_grad_norm": 1.0,
        **options,
    }
    if not {"share", "noise_multiplier"} & options.keys():
        stated.setdefault("target_epsilon", 1.0)
    query = engine.query(**stated)
    assert isinstance(query, RunQuery)
    return query


def test_what_a_budget_refuses_has_read_nothing() -> None:
    query = asked(PrivacyEngine(), dataset=Unread(), users=Unread(), example=torch.ones(4, 3))
    with dg.budget(0.5, 1e-6), pytest.raises(RefusedError):
        publish(query)
    # The network is an ordinary one again, or still.
    module = query.network.module
    assert not module._forward_pre_hooks
    assert not module._forward_hooks
    assert 0.99 < query.plan.guarantee.epsilon() <= 1.0


def test_a_network_stands_in_the_plan_of_a_budget() -> None:
    query = asked(PrivacyEngine())
    event = query.plan.guarantee.event
    with dg.budget(1.2, 2e-6, plan=[query]) as whole:
        net, optimizer, loader = publish(query)
        for x, y in loader:
            torch.nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
    assert whole.left == 1.0
    assert query.engine.guarantee.event == event


def test_a_share_is_what_plans_say() -> None:
    with dg.budget(2.0, 2e-6) as whole:
        query = asked(PrivacyEngine(), share=0.5, users=Unread(), dataset=Unread()).settled()
        assert whole.left == 1.0
        published = asked(PrivacyEngine(), share=0.5)
        publish(published)
        assert 0.49 < 1 - whole.left <= 0.5 + 1e-9
    assert published.engine.guarantee.event == query.plan.guarantee.event


def test_an_engine_has_one_run() -> None:
    engine = PrivacyEngine()
    first, second = asked(engine), asked(engine)
    publish(first)
    for query in (first, second):
        with pytest.raises(dg.ParameterError, match="one run"):
            publish(query)


def test_a_copy_is_to_the_same_unit() -> None:
    query = asked(PrivacyEngine())
    with refuses("promise", "create a new query"):
        replace(query, promise=Promise(dg.Record(), 1.0, 1e-6, "zero_out"))


def test_both_methods_take_and_say_the_same() -> None:
    made, query = (
        inspect.signature(method) for method in (PrivacyEngine.make_private, PrivacyEngine.query)
    )
    assert made.parameters == query.parameters
    assert PrivacyEngine.make_private.__name__ == "make_private"
    assert PrivacyEngine.make_private.__doc__ == PrivacyEngine.query.__doc__
