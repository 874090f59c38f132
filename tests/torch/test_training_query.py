"""Training runs as queries: validated, planned without reading, and charged once."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.means import PEOPLE, engine_of, means
from tests.torch.runs import WIDTH, made
from tests.torch.test_privacy_engine import RECORDS, USERS

# isort: split
import dpgrain as dg
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.means import ClippedMean
from dpgrain.papers import SoftCoreMean
from dpgrain.publishing import Promise, publish
from dpgrain.torch import PrivacyEngine
from dpgrain.torch.training_query import RunQuery
from dpgrain.units import Record, User

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "class": ({"mean": SoftCoreMean}, "mean must be a private mean of dpgrain.means"),
    "number": ({"mean": 1.0}, "mean must be a private mean of dpgrain.means"),
    "steps": ({"steps": 4}, "steps must be omitted with mean="),
    "noise": ({"noise": "banded"}, "noise must be omitted with mean="),
    "bands": ({"bands": 3}, "bands must be omitted with mean="),
    "norm": ({"max_grad_norm": 1.0}, "max_grad_norm must be omitted with mean="),
    "unit": ({"unit": Record()}, "mean must have the blocks of unit=Record"),
    "kept": (
        {"unit": User(max_elements=2), "elements": np.zeros(len(PEOPLE))},
        "mean must have the blocks",
    ),
    "bound": ({"mean": ClippedMean(1e-20, 1.0, 40, 1, level="user")}, "clip must be between"),
    "roster": (
        {
            "mean": SoftCoreMean.calibrate(
                epsilon=50.0, delta=1e-6, rounds=1, n_users=30, radius=1.0
            )
        },
        "n_users = 30 must be at least the number of distinct ids in users",
    ),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_incompatible_mean_arguments_are_rejected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        engine_of(**{"mean": means()["soft core"], **wrong})


BANDED: dict[str, tuple[dict[str, Any], str]] = {
    "no noise": ({"noise": "pink"}, "noise must be one of 'independent', 'banded'"),
    "alone": ({"bands": 3}, "bands = 3 requires noise='banded'"),
    "unknown": (
        {"noise": "banded"},
        "bands is required with noise='banded' and noise_multiplier",
    ),
    "exact": ({"noise": "banded", "bands": 2, "exact": True}, "exact must be False with noise"),
    "many": ({"noise": "banded", "bands": 3}, "bands = 3 must be at most 1/sampling_rate = 2"),
    "none": ({"noise": "banded", "bands": 0}, "bands must be an integer"),
}


@pytest.mark.parametrize(("wrong", "words"), BANDED.values(), ids=BANDED)
def test_invalid_bands_are_rejected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        made(np.ones((RECORDS, WIDTH)), User(), users=USERS, sampling_rate=0.5, **wrong)


def test_budget_rejects_a_mean_before_reading() -> None:
    with dg.budget(0.1, 1e-9), pytest.raises(ParameterError, match="has no room"):
        engine_of(means()["winsorized"])
    with refuses("sampling_rate"):
        made(np.ones((RECORDS, WIDTH)), User(), users=USERS, sampling_rate=None)


def test_guarantee_states_its_assumptions() -> None:
    def public(**options: Any) -> str:
        return str(made(np.ones((6, WIDTH)), User(), **options)[0].guarantee)

    assert "no record makes reading, the network or the loss fail" in public()
    assert "collate_fn" not in public()
    said = public(collate_fn=torch.utils.data.default_collate)
    assert "collate_fn computes each row only from the record at the same position" in said


N_RECORDS, N_USERS = 60, 20


class Unread:
    """Labels, or records, that show their number, and raise when one is read."""

    shape, ndim, dtype = (N_RECORDS,), 1, np.dtype(np.int64)

    def __len__(self) -> int:
        return N_RECORDS

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
        "dataset": torch.utils.data.TensorDataset(
            torch.ones(N_RECORDS, 3), torch.ones(N_RECORDS, 1)
        ),
        "users": np.arange(N_RECORDS) // 3,
        "n_users": N_USERS,
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


def test_plan_names_the_steps() -> None:
    plan = asked(PrivacyEngine()).plan
    assert plan.parts == {"steps": plan.guarantee.event}


def test_training_beyond_the_budget_has_read_nothing() -> None:
    query = asked(PrivacyEngine(), dataset=Unread(), users=Unread(), example=torch.ones(4, 3))
    with dg.budget(0.5, 1e-6), pytest.raises(RefusedError):
        publish(query)
    # The network is an ordinary one again, or still.
    module = query.network.module
    assert not module._forward_pre_hooks
    assert not module._forward_hooks
    assert 0.99 < query.plan.guarantee.epsilon() <= 1.0


def test_network_is_in_the_plan_of_a_budget() -> None:
    query = asked(PrivacyEngine())
    event = query.plan.guarantee.event
    with dg.budget(1.2, 2e-6, plan=[query]) as whole:
        net, optimizer, loader = publish(query)
        for x, y in loader:
            torch.nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
    assert whole.left == 1.0
    assert query.engine.guarantee.event == event


def test_share_matches_the_plans() -> None:
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


def test_a_free_training_loop_is_not_stored() -> None:
    query = asked(PrivacyEngine())
    for store in (dg.Query.to_dict, pickle.dumps):
        with refuses("this query", "training loop"):
            store(query)
    assert query != asked(PrivacyEngine())


def test_a_copy_is_to_the_same_unit() -> None:
    query = asked(PrivacyEngine())
    with refuses("promise", "create a new query"):
        replace(query, promise=Promise(dg.Record(), 1.0, 1e-6, "zero_out"))


def test_both_methods_accept_and_report_the_same() -> None:
    made, query = (
        inspect.signature(method) for method in (PrivacyEngine.make_private, PrivacyEngine.query)
    )
    assert made.parameters == query.parameters
    assert PrivacyEngine.make_private.__name__ == "make_private"
    assert PrivacyEngine.make_private.__doc__ == PrivacyEngine.query.__doc__
