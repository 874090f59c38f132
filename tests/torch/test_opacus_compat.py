"""Users who write Opacus code see the dpgrain equivalent."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dpgrain.errors import ParameterError  # noqa: E402
from dpgrain.torch import PrivacyEngine  # noqa: E402
from dpgrain.torch.opacus_compat import NAMES, PARAMETERS  # noqa: E402


def asked() -> dict[str, Any]:
    network = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(60, 2), torch.ones(60, 1))
    return {
        "module": network, "optimizer": torch.optim.SGD(network.parameters(), lr=0.1),
        "dataset": data, "n_users": 60, "steps": 3, "sampling_rate": 0.1, "max_grad_norm": 1.0,
        "target_epsilon": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_opacus_parameter_error_names_the_replacement(name: str) -> None:
    methods: list[Any] = [PrivacyEngine().make_private, PrivacyEngine().query]
    for method in methods:
        with pytest.raises(ParameterError, match=f"{name} is not a parameter of make_") as caught:
            method(**asked(), **{name: 1})
        assert caught.value.name == name


@pytest.mark.parametrize("name", NAMES)
def test_opacus_name_error_names_the_replacement(name: str) -> None:
    engine = PrivacyEngine()
    assert not hasattr(engine, name)
    with pytest.raises(AttributeError, match=f"has no '{name}': "):
        getattr(engine, name)(module=None)


def test_named_replacements_exist() -> None:
    """The remedies name parameters and methods that there are."""
    stated = set(inspect.signature(PrivacyEngine.make_private).parameters)
    assert not stated & set(PARAMETERS)
    for told in (*PARAMETERS.values(), *NAMES.values()):
        named = {word.strip("(,=)") for word in told.split() if word.strip("(,)").endswith("=")}
        assert named <= stated | {"random_state", "make_private(module"}, told
    with pytest.raises(AttributeError, match=r"'PrivacyEngine' has no 'nonsense'\."):
        _ = PrivacyEngine().nonsense
    with pytest.raises(TypeError, match="nonsense"):
        PrivacyEngine().make_private(**{**asked(), "nonsense": 1})


def test_named_replacements_work() -> None:
    engine = PrivacyEngine(random_state=1)
    network, optimizer, loader = engine.make_private(**asked())
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(x), y).backward()
        optimizer.step()
    assert engine.get_epsilon(1e-6) <= 1.0
