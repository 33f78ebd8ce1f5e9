"""Clients that compute in bfloat16, and what stays in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedwca import Keys, Method, Training, init_server, run_round
from fedwca.aggregators import aggregators
from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.data.federation import ClientImages
from fedwca.engine.precision import check_precision, compute_precision, deterministic_convolutions, matmul_precision
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import UsageError
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.runs.check_components import dry_run_components
from fedwca.runs.load_data import load
from fedwca.runs.resources.select_engine import choose_engine
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits

TRAINING = Training(epochs=2, lr=0.01, batch_size=8)


class Seen(Shot):
    """Records in `TYPES` the dtypes of the tensors that objectives get."""

    def __call__(self, batch: Batch) -> Tensor:
        TYPES.update({batch.logits.dtype, batch.features.dtype, batch.target_logits.dtype})
        return super().__call__(batch)


TYPES: set[torch.dtype] = set()


EngineClass = type[SequentialEngine | StackedEngine]
BOTH_ENGINES = pytest.mark.parametrize("engine", [SequentialEngine, StackedEngine])


def played(
    network: Network,
    images: list[ClientImages],
    precision: Precision,
    rounds: int = 2,
    engine: EngineClass = SequentialEngine,
) -> SequentialEngine | StackedEngine:
    """An engine after some rounds of FedAvg."""
    loop = engine(network, images, "cpu", 2, precision=precision)
    method, server = Method("toy", "Toy", aggregators.build("fedavg"), TwoModel(), (Seen(),)), init_server(loop)
    for round in range(rounds):
        server, _ = run_round(
            round, server, method, loop, TRAINING, Keys(0), torch.zeros(len(images), dtype=torch.int64)
        )
    return loop


def test_the_device_that_is_used_is_asked_for_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    @contextmanager
    def use(device: torch.device) -> Iterator[None]:
        current.append(int(device.index))
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", use)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: current[-1] == 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "old")
    check_precision("bf16", torch.float32, torch.device("cuda:1"))
    with pytest.raises(UsageError, match="old has no bfloat16"):
        check_precision("bf16", torch.float32, torch.device("cuda:2"))


def test_torchs_other_way_to_allow_tf32_is_not_mixed_with_this_one() -> None:
    convolutions = torch.backends.cudnn.conv
    before = convolutions.fp32_precision
    try:
        convolutions.fp32_precision = "ieee"
        with pytest.raises(UsageError, match="torch's fp32_precision is set in this process"):
            matmul_precision("fp32", "cuda:0").__enter__()
    finally:
        convolutions.fp32_precision = before


def layers(loop: SequentialEngine) -> dict[str, set[torch.dtype]]:
    """Output dtypes of modules by class; filled in while the engine's replicas run."""
    dtypes: dict[str, set[torch.dtype]] = {}

    def watch(module: nn.Module, _: object, out: Tensor) -> None:
        if isinstance(out, Tensor):
            dtypes.setdefault(type(module).__name__, set()).add(out.dtype)

    replicas = [loop._replicas.get() for _ in range(loop.workers)]
    for replica in replicas:
        for module in replica.network.modules():
            module.register_forward_hook(watch)
        loop._replicas.put(replica)
    return dtypes


@pytest.mark.parametrize("precision", ["bf16", "bf16-all"])
def test_rows_and_losses_stay_in_float32(network: Network, images: list[ClientImages], precision: Precision) -> None:
    TYPES.clear()
    loop = played(network, images, precision)
    assert TYPES.issubset({torch.float32})
    assert TYPES
    assert loop.bank.dtype == torch.float32
    assert bool(loop.bank.isfinite().all())
    assert not torch.equal(loop.bank, loop.bank.bfloat16().float()), "master weights keep all their digits"


@pytest.mark.parametrize(
    ("precision", "convolutions"),
    [
        ("fp32", {torch.float32}),
        ("bf16", {torch.float32, torch.bfloat16}),  # evidence and labels in float32, training in bfloat16
        ("bf16-all", {torch.bfloat16}),
    ],
)
def test_which_layers_run_in_bfloat16(
    network: Network, images: list[ClientImages], precision: Precision, convolutions: set[torch.dtype]
) -> None:
    loop = SequentialEngine(network, images, "cpu", 1, precision=precision)
    dtypes = layers(loop)
    method = Method("toy", "Toy", aggregators.build("fedavg"), TwoModel(), (Shot(),))
    run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), torch.zeros(len(images), dtype=torch.int64))
    assert dtypes["Conv2d"] == convolutions
    assert dtypes["BatchNorm1d"] == {torch.float32}
    dtypes.clear()
    loop.classify()
    assert dtypes["Conv2d"] == {torch.float32}, "evaluation is never lowered"


def test_batch_norm_inside_a_backbone_keeps_float32_statistics() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=generator)
    network = ResNet18(side=32, weights="none", bottleneck=8).build(3)
    loop = played(network, [ClientImages(noise, noise[:0])], "bf16", rounds=1)
    assert loop.bank.dtype == torch.float32
    assert bool(loop.bank.isfinite().all())


@BOTH_ENGINES
def test_bf16_gives_nearly_the_model_of_fp32(network: Network, images: list[ClientImages], engine: EngineClass) -> None:
    start = SequentialEngine(network, images, "cpu", 1).bank
    full, low = (played(network, images, precision, 1, engine).bank for precision in ("fp32", "bf16"))
    update_norms = (full - start).norm(dim=1)
    assert bool(((full - low).norm(dim=1) < 0.2 * update_norms).all())
    assert not torch.equal(full, low)


def test_accuracy_is_nearly_that_of_float32() -> None:
    """On digits-mini after two rounds: within five points, where a source model gains eight."""
    settings = {
        "model": "convnet:side=32,width=8,head=bottleneck,bottleneck=32,dropout=0.5",
        "clients": 1,
        "samples": 80,
        "rounds": 2,
        "baselines": [],
        "aggregator": "fedavg",
        "device": "cpu",
        "training": {"epochs": 2, "lr": 1e-2},
        "source_training": {"epochs": 3, "lr": 2e-2},
    }
    accuracies = {}
    for precision in ("fp32", "bf16", "bf16-all"):
        plan = resolve_plan({**settings, "precision": precision})
        dataset, source = load(plan.config)
        records = list(run_bench(plan.config, plan.methods, TrialSplits(plan.config, dataset, source)))
        accuracies[precision] = torch.tensor(records[-1]["accuracy"]).mean()
    assert abs(accuracies["bf16"] - accuracies["fp32"]) < 5
    assert abs(accuracies["bf16-all"] - accuracies["fp32"]) < 5


@pytest.mark.parametrize("precision", ["bf16", "bf16-all"])
def test_float64_is_refused(network: Network, images: list[ClientImages], precision: Precision) -> None:
    with pytest.raises(UsageError, match=f"precision {precision} needs a network of float32 weights, not float64"):
        SequentialEngine(network.double(), images, "cpu", 1, precision=precision)
    SequentialEngine(network.double(), images, "cpu", 1)


def test_a_runs_precision_reaches_its_engine(network: Network, images: list[ClientImages]) -> None:
    engine = choose_engine(RunConfig(device="cpu", workers=1, precision="bf16"), network, images)
    assert isinstance(engine, SequentialEngine)
    assert engine._replicas.get()._forward.precision == "bf16"


class Noting(TwoModel):
    """Also notes the logits that it reads."""

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        return replace(super().__call__(predictions, draws), notes={"logits": predictions["start"].logits})


@BOTH_ENGINES
def test_evidence_is_lowered_in_bf16_all_alone(
    network: Network, images: list[ClientImages], engine: EngineClass
) -> None:
    def noted(precision: Precision) -> Tensor:
        built = engine(network, images, "cpu", 2, precision=precision)
        method = Method("toy", "Toy", aggregators.build("fedavg"), Noting(), (Shot(),))
        domains = torch.zeros(len(images), dtype=torch.int64)
        _, outcome = run_round(0, init_server(built), method, built, TRAINING, Keys(0), domains)
        return torch.cat([upload.targets.notes["logits"] for upload in outcome.uploads.values()])

    assert torch.equal(noted("bf16"), noted("fp32"))
    assert not torch.equal(noted("bf16-all"), noted("fp32"))


def test_evidence_is_not_lowered_in_bf16(network: Network) -> None:
    with compute_precision("bf16", "evidence", torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
    with compute_precision("bf16", "train", torch.device("cpu")):
        assert torch.is_autocast_enabled("cpu")


def test_tf32_on_a_cpu_is_refused(network: Network, images: list[ClientImages]) -> None:
    with pytest.raises(UsageError, match="precision tf32: only GPUs since Ampere have TensorFloat-32, not cpu; take"):
        SequentialEngine(network, images, "cpu", 1, precision="tf32")


def test_workers_of_the_loop_with_tf32_are_refused_before_training(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwca.runs.check_components.check_precision", lambda *arguments: None)  # as on a GPU
    plan = resolve_plan({"rounds": 1, "engine": "loop", "workers": 2, "precision": "tf32", "device": "cpu"})
    with pytest.raises(UsageError, match="precision tf32: engine loop then trains one client at a time; leave out"):
        dry_run_components(plan.config, plan.methods, network, tuple("ab"), 4)


PRODUCTS = torch.backends.cudnn, torch.backends.cuda.matmul


def rounded() -> tuple[bool, ...]:
    """Whether convolutions and products of matrices may use TensorFloat-32."""
    return tuple(backend.allow_tf32 for backend in PRODUCTS)


@pytest.fixture(params=[(True, False), (False, True)])
def settings(request: pytest.FixtureRequest) -> Iterator[tuple[bool, bool]]:
    """Torch's settings as a user may have left them."""
    original = rounded()
    for backend, value in zip(PRODUCTS, request.param, strict=True):
        backend.allow_tf32 = value  # type: ignore[union-attr]
    yield request.param
    for backend, value in zip(PRODUCTS, original, strict=True):
        backend.allow_tf32 = value  # type: ignore[union-attr]


@pytest.mark.parametrize(("precision", "inside"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_tensorfloat_is_used_where_asked_for_and_put_back(
    settings: tuple[bool, bool], precision: Precision, inside: bool
) -> None:
    seen: list[tuple[bool, ...]] = []

    def work() -> None:
        with matmul_precision(precision, "cuda:0"):
            seen.append(rounded())
            raise KeyError

    with matmul_precision(precision, "cpu"):
        assert rounded() == settings, "a CPU has nothing to do with it"
    with pytest.raises(KeyError):
        work()
    assert seen == [(inside, inside)]
    assert rounded() == settings, "after an error too"


@pytest.mark.parametrize("original", [False, True])
def test_convolutions_are_deterministic_inside_and_the_setting_is_put_back(
    monkeypatch: pytest.MonkeyPatch, original: bool
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", original)

    def work() -> None:
        with deterministic_convolutions("cuda:0"):
            assert torch.backends.cudnn.deterministic is True
            raise KeyError

    with deterministic_convolutions("cpu"):
        assert torch.backends.cudnn.deterministic is original, "a CPU has nothing to do with it"
    with pytest.raises(KeyError):
        work()
    assert torch.backends.cudnn.deterministic is original, "after an error too"
