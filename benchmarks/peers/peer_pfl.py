"""pfl-research: its simulated backend and FederatedAveraging; with several workers one process each, under torchrun."""

from __future__ import annotations

import os
import sys

import torch
from plain import PlainLeNet, objective
from work import Clock, arguments, fresh, images

given = arguments()
if given.workers > 1 and "LOCAL_RANK" not in os.environ:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={given.workers}"]
    os.execv(sys.executable, [sys.executable, *launch, *sys.argv])
if given.workers == 1 and given.device != "cpu":
    os.environ["PFL_PYTORCH_DEVICE"] = given.device

from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam.base import NNTrainHyperParams  # noqa: E402
from pfl.internal.ops import pytorch_ops  # noqa: E402
from pfl.metrics import Metrics  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402

torch.set_num_threads(1)
clock, ranks = Clock(), pytorch_ops.distributed
device = str(pytorch_ops.get_default_device())


class Trained(PlainLeNet):
    """The plain network with the two methods that pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.train()
        return objective(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        """Nothing is evaluated."""
        return {}


class Whole(PyTorchModel):
    """Averages BatchNorm's running statistics beside the parameters, as the other peers do."""

    def __init__(self, model: Trained) -> None:
        statistics = {name: x for name, x in model.named_buffers() if x.is_floating_point()}
        averaged = [*model.features.parameters(), *statistics.values()]
        super().__init__(model, self.local, torch.optim.SGD(averaged, 1.0))
        self._variable_map |= statistics

    @staticmethod
    def local(parameters, lr: float) -> torch.optim.Optimizer:  # type: ignore[no-untyped-def]
        return torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=1e-3)


class Timed(TrainingProcessCallback):
    """Times a round from the end of the previous one."""

    def on_train_begin(self, *, model: Whole) -> Metrics:
        clock.start()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        clock.stop()
        clock.start()
        return False, Metrics()


def client(number: int) -> Dataset:
    """One client's images, made and split into batches once per process."""
    if number not in made:
        made[number] = Dataset(images(number, given.images, device), user_id=str(number))
    return made[number]


made: dict[int, Dataset] = {}
network = Trained()
network.load_state_dict(fresh(), strict=False)
sampler = get_user_sampler("minimize_reuse", list(range(given.clients)))
backend = SimulatedBackend(FederatedDataset(client, sampler), FederatedDataset(client, sampler))
never = 10 * given.rounds
FederatedAveraging().run(
    NNAlgorithmParams(given.rounds + 1, evaluation_frequency=never, train_cohort_size=given.clients, val_cohort_size=0),
    backend,
    Whole(network.to(device)),
    NNTrainHyperParams(local_num_epochs=given.epochs, local_learning_rate=1e-3, local_batch_size=64),
    callbacks=[Timed()],
    send_metrics_to_platform=False,
)
if ranks is None or ranks.global_rank == 0:
    clock.report()
