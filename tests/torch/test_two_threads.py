"""Two threads that step on one batch: one does, at any line of it where the other begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from tests.interleaving import Interleaving  # noqa: E402

from dpgrain.torch import PrivacyEngine  # noqa: E402


def on_a_batch() -> Callable[[], bool]:
    """The step of a run of two, after reading its first batch."""
    network = torch.nn.Linear(1, 1, bias=False)
    network, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        dataset=torch.utils.data.TensorDataset(torch.ones(1, 1)),
        n_users=1,
        noise_multiplier=1.0,
        steps=2,
        sampling_rate=1.0,
        max_grad_norm=1.0,
    )
    (records,) = next(iter(loader))
    network(records).mean().backward()
    step: Callable[[], bool] = optimizer.step
    return step


def test_a_batch_is_stepped_on_once() -> None:
    pair = Interleaving("dpgrain.torch.training_run")
    with pair.in_force():
        seams = pair.lines(on_a_batch())
        assert len(seams) > 20
        for seam in seams:
            step = on_a_batch()
            answers = pair.run(step, step, seam)
            assert sorted(answer.value is True for answer in answers) == [False, True], seam
            (other,) = (answer.raised for answer in answers if answer.raised)
            assert "ParameterError" in other, other
