"""Sums, bounds, noise and resuming on a GPU, if there is one."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.torch.cases import CLASSES, NETWORKS, Case, Scaled, distance
from tests.torch.library import torch

# isort: split
import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.noise import SystemSource
from dpgrain.noise.device_normals import chacha, normals
from dpgrain.publishing.draws import counted
from dpgrain.torch import block_gradients
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.block_gradients import Filters
from dpgrain.torch.clipping import PRODUCT_ERROR, clipped_sums, overshoot
from dpgrain.torch.gradient_precision import precisely
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.losses import record_losses
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.recorder import Recorder
from dpgrain.torch.steps import ClippedSteps
from dpgrain.torch.training import train
from dpgrain.units import Element, User

GPU = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="PyTorch sees no GPU (torch.cuda.is_available())"
)
SIZES = (1, 1, 2, 2, 3, 5, 5, 7)
PEOPLE, EACH = 24, 5
nn, functional = torch.nn, torch.nn.functional


@pytest.fixture
def whole() -> Iterator[None]:
    """The network itself also computes in full single precision."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def on_gpu(case: Case) -> Case:
    module = copy.deepcopy(case.module).to(GPU)
    return Case(module, case.x.to(GPU), case.y.to(GPU), case.layout)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("bound", [1e-3, 0.3, 1e6])
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_those_of_a_loop_on_a_processor(name: str, bound: float) -> None:
    for precision, share in ((torch.float32, 1e-4), (torch.float64, 1e-9)):
        case = Case.of(name, SIZES, precision)
        sums, norms = case.looped(bound)
        found = {key: part.cpu() for key, part in on_gpu(case).clipped(bound).items()}
        assert found.keys() == sums.keys()
        assert distance(found, sums) <= share * max(distance(sums), min(norms, bound))


def used(case: Case) -> Any:
    """Contributions of blocks to each parameter."""
    recorder = Recorder(case.module, (Scaled,), lambda: case.layout)
    case.losses(case.module, case.x, case.y).sum().backward()
    recorder.remove()
    return recorder.uses


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "made twice"])
@pytest.mark.parametrize("level", ["highest", "medium"])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_block_is_longer_than_the_bound(
    name: str, level: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr(block_gradients, "_MAX_STORED_ENTRIES", 0)
        monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", 0.0)
    case, bound = on_gpu(Case.of(name, SIZES, torch.float32)), 1e-3
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        uses = used(case)
        for block in range(len(SIZES)):
            others = torch.arange(len(SIZES), device=GPU) != block
            own = {p: [use.without(others) for use in of] for p, of in uses.items()}
            norm = distance({str(i): s.double() for i, s in enumerate(
                clipped_sums(own, case.layout, bound).values())})  # fmt: skip
            assert 0.5 * bound < norm <= bound * (1 + overshoot(torch.float32))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("rows", [3, 300, 30_000])
def test_products_are_as_exact_as_is_billed(rows: int) -> None:
    torch.manual_seed(1)
    for values in (
        torch.ones(rows, 64),
        torch.randn(rows, 64),
        torch.rand(rows, 64).sort(0).values,
    ):
        x, b = values * 1.1, torch.linspace(0.3, 1.7, rows)[:, None].repeat(1, 48)
        for signs in (torch.ones(rows), torch.sign(torch.arange(rows) - rows / 2)):
            signed = b * signs[:, None]
            exact = signed.double().t() @ x.double()
            lengths = float((signed.double().norm(dim=1) * x.double().norm(dim=1)).sum())
            one, other = signed.to(GPU), x.to(GPU)
            with precisely():
                made = (
                    one.t() @ other,
                    torch.bmm(one.t()[None].repeat(3, 1, 1), other[None].repeat(3, 1, 1))[1],
                    torch.tensordot(one, other, ([0], [0])),
                )
            for found in made:
                error = float((found.cpu().double() - exact).norm())
                assert error <= PRODUCT_ERROR[torch.float32] * lengths


@pytest.mark.parametrize("size", [1, 2, 3, 8, 40])
@pytest.mark.parametrize(
    ("channels", "filters", "places"), [(3, 6, 5), (64, 64, 3), (32, 128, 1)], ids=str
)
def test_sums_of_filters_are_as_exact_as_is_billed(
    channels: int, filters: int, places: int, size: int
) -> None:
    torch.manual_seed(1)
    layout = BlockLayout((size,) * 4)
    x = torch.randn(layout.rows, channels, 16, 16, device=GPU)
    b = torch.rand(layout.rows, filters, *[16 - places + 1] * 2, device=GPU)
    flat: Any = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    use = Filters(layout, x, b, (filters, channels, places, places), **flat)
    exact = torch.stack([use.block_gradient(block) for block in range(4)])
    with precisely():
        kept, total = (
            use.stored().weighted_sum(torch.eye(4)[2].to(GPU)),
            use.weighted_sum(torch.ones(4, device=GPU)),
        )
        norms = use.squared_norms().sqrt()
    allowed = PRODUCT_ERROR[torch.float32] * use.term_norms()
    assert float((kept.double() - exact[2]).norm()) <= float(allowed[2])
    assert float((total.double() - exact.sum(0)).norm()) <= float(allowed.sum())
    assert ((norms - exact.flatten(1).norm(dim=1)).abs() <= allowed).all()


# Runs ------------------------------------------------------------------------------------------


def pictures() -> Any:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Conv2d(6, 16, 5), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 32), nn.ReLU(), nn.Linear(32, CLASSES),
    ).to(GPU)  # fmt: skip


def data(device: str = "cpu") -> Any:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(PEOPLE * EACH, 3, 32, 32, generator=generator, device="cpu")
    y = torch.randint(0, CLASSES, (PEOPLE * EACH,), generator=generator, device="cpu")
    return torch.utils.data.TensorDataset(x.to(device), y.to(device))


USERS = np.repeat(np.arange(PEOPLE), EACH)
NUMBERS: dict[str, Any] = {
    "users": USERS,
    "n_users": PEOPLE,
    "steps": 6,
    "sampling_rate": 0.5,
    "max_grad_norm": 0.5,
    "noise_multiplier": 1.0,
}


def begun(seed: int | None = 1, module: Any = None, **options: Any) -> Any:
    module = pictures() if module is None else module
    given = {
        "module": module,
        "optimizer": torch.optim.Adam(module.parameters(), lr=0.01),
        "dataset": data(),
        **NUMBERS,
        **options,
    }
    engine = PrivacyEngine(unit=User(), random_state=seed)
    return engine, *engine.make_private(**given)


def follow(run: Any, steps: int = 10**9) -> Any:
    _, module, optimizer, loader = run
    for x, y in loader if len(loader) else ():
        optimizer.zero_grad()
        functional.cross_entropy(module(x.to(GPU)), y.to(GPU), reduction="sum").backward()
        steps -= optimizer.step()
        if steps == 0:
            break
    return torch.cat([p.detach().flatten() for p in module.parameters()]).cpu()


SUM: dict[str, Any] = {"loss_reduction": "sum"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dataset": "on the GPU"},
        {"max_rows": 3},
        {"exact": True},
        {"max_grad_norm": AdaptiveNorm(start=0.5)},
        {"noise": "banded", "bands": 2, "sampling_rate": 0.25},
    ],
    ids=str,
)
def test_a_run_makes_its_steps(options: dict[str, Any]) -> None:
    given = {**SUM, **options, **({"dataset": data(GPU)} if "dataset" in options else {})}
    before = torch.cat([p.detach().flatten().cpu() for p in pictures().parameters()])
    after = follow(begun(None, **given))
    assert torch.isfinite(after).all()
    assert float((after - before).norm()) > 0


@pytest.mark.parametrize("exact", [False, True])
def test_noise_has_the_billed_deviation(exact: bool) -> None:
    module = nn.Linear(400, 100).to(GPU)
    # Records of zeros, with zero gradients by the weight.
    x, y = torch.zeros(PEOPLE * EACH, 400), torch.zeros(PEOPLE * EACH, 100)
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        _, module, optimizer, loader = begun(
            None, module, dataset=torch.utils.data.TensorDataset(x, y), steps=1, exact=exact
        )
        for x_, y_ in loader:
            functional.mse_loss(module(x_.to(GPU)), y_.to(GPU), reduction="none").mean(
                1
            ).mean().backward()
            optimizer.step()
        found.append(module.weight.grad.double().flatten().cpu())
    sd = 0.5 * 1.0 / (PEOPLE * 0.5)
    for noise in found:
        assert float(noise.std()) == pytest.approx(sd, rel=0.03)
    # It does not follow from PyTorch's seed.
    assert abs(float(torch.corrcoef(torch.stack(found))[0, 1])) < 0.05


def test_a_gpu_computes_the_cipher_as_a_processor_does() -> None:
    blocks = torch.arange(2**33, 2**33 + 1000)
    on_cpu = chacha(range(8), blocks, 5)
    on_gpu = chacha(range(8), blocks.to(GPU), 5)
    assert torch.equal(on_gpu.cpu(), on_cpu)
    words = on_cpu[:15].view(3, 5, 1000)
    assert float((normals(words.to(GPU)).cpu() - normals(words)).abs().max()) < 1e-13


@pytest.mark.parametrize("bands", [1, 3])
def test_noise_makes_no_step_wait(bands: int) -> None:
    mean = ClippedMean(2.0, 1.0, 100, 6, sampling_rate=0.1, bands=bands)
    weights = [torch.zeros(shape, device=GPU) for shape in ((3000, 400), (7,))]
    steps = ClippedSteps(mean, weights, counted(SystemSource(), mean.event))
    sums = [steps.empty_sum() for _ in range(3)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for each in sums:
            for weight, gradient in steps.gradients(each):
                weight.grad = gradient.float()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(weight.grad.is_cuda and float(weight.grad.std()) > 0 for weight in weights)


def test_seeded_runs_go_on_as_without_the_kill(tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    whole_run = follow(begun(**SUM))
    run = begun(**SUM)
    follow(run, 3)
    run[0].save(place)
    follow(run, 1)
    torch.cuda.manual_seed_all(99)
    module = pictures()
    again = PrivacyEngine.resume(
        place,
        module=module,
        optimizer=torch.optim.Adam(module.parameters(), lr=0.01),
        dataset=data(),
        users=USERS,
    )
    assert len(again[3]) == 3
    after = follow(again)
    # Kernels of a GPU add up in no fixed order.
    assert float((after - whole_run).norm() / whole_run.norm()) < 1e-4


def test_resumed_private_runs_lose_the_lost_steps(tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    run = begun(None, **SUM)
    follow(run, 2)
    run[0].save(place)
    follow(run, 1)
    module = pictures()
    again = PrivacyEngine.resume(
        place,
        module=module,
        optimizer=torch.optim.Adam(module.parameters(), lr=0.01),
        dataset=data(),
        users=USERS,
    )
    assert len(again[3]) == 3
    assert torch.isfinite(follow(again)).all()
    assert again[0].get_epsilon() == run[0].get_epsilon()


@pytest.mark.parametrize("kind", [None, torch.bfloat16, torch.float16], ids=str)
def test_one_call_trains(kind: Any, tmp_path: Path) -> None:
    seen = []

    def evaluate(module: Any) -> float:
        x, _ = data().tensors
        seen.append(next(module.parameters()).device.type)
        return float(module(x.to(GPU)).float().std())

    with torch.autocast(GPU, dtype=kind, enabled=kind is not None):
        trained = train(
            pictures(), functional.cross_entropy, data(), users=USERS, elements=USERS % 3,
            unit=Element(), n_users=PEOPLE, epsilon=2.0, delta=1e-3, steps=6, evaluate=evaluate,
            checkpoint=tmp_path / "last.pt", every=2, progress=False,
        )  # fmt: skip
    assert set(seen) == {GPU}
    assert all(p.is_cuda and torch.isfinite(p).all() for p in trained.module.parameters())
    assert trained.guarantee.epsilon() <= 2.0


def test_half_precision_and_a_mean_are_refused_by_name() -> None:
    _, module, _, loader = begun()
    (x, _), *_ = itertools.islice(loader, 1)
    refused = pytest.raises(ParameterError, match="loss_reduction must be 'sum'")
    with refused, torch.autocast(GPU, dtype=torch.bfloat16):
        module(x.to(GPU))


def test_networks_are_made_where_the_caller_makes_tensors() -> None:
    with torch.device(GPU):
        torch.manual_seed(1)
        run = begun(None, pictures(), **SUM)
        assert torch.isfinite(follow(run)).all()


def test_losses_of_any_function() -> None:
    _, module, optimizer, loader = begun(None, **SUM)
    for x, y in loader:
        record_losses(functional.cross_entropy, module(x.to(GPU)), y.to(GPU)).backward()
        assert optimizer.step()


class Centred(torch.nn.Module):
    """A layer that mixes records."""

    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


def test_mixed_records_are_rejected() -> None:
    module = nn.Sequential(Centred(), nn.Linear(4, 2)).to(GPU)
    with pytest.raises(ParameterError, match="must not mix records"):
        begun(None, module, example=torch.randn(4, 4, device=GPU))


def test_dropout_follows_from_no_seed_of_the_loop() -> None:
    found = []
    for _ in range(2):
        module = nn.Sequential(nn.Dropout(), nn.Linear(400, 1, bias=False)).to(GPU)
        x = torch.ones(PEOPLE * EACH, 400)
        _, module, _, loader = begun(
            None, module, dataset=torch.utils.data.TensorDataset(x), sampling_rate=1.0
        )
        nn.init.ones_(module[1].weight)
        ((x,),) = itertools.islice(loader, 1)
        torch.manual_seed(3)
        torch.cuda.manual_seed_all(3)
        found.append(module(x.to(GPU)).detach().as_subclass(torch.Tensor).cpu())
    assert not torch.equal(*found)


@pytest.mark.parametrize("exact", [False, True])
def test_a_group_of_nccl(exact: bool, tmp_path: Path) -> None:
    if not torch.distributed.is_nccl_available():
        pytest.skip("this PyTorch has no nccl")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        module = nn.parallel.DistributedDataParallel(pictures(), device_ids=[0])
        trained = [p for p in module.parameters() if p.requires_grad]
        own = follow(
            begun(None, module, optimizer=torch.optim.Adam(trained, lr=0.01), exact=exact, **SUM)
        )
        assert torch.isfinite(own).all()
    finally:
        torch.distributed.destroy_process_group()


def test_gpu_and_cpu_give_the_same_guarantee() -> None:
    gpu = begun(None)[0].guarantee
    module = pictures().cpu()
    cpu = begun(None, module)[0].guarantee
    assert str(gpu) == str(cpu)
    assert isinstance(gpu, dg.Guarantee)
