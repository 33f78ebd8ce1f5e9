"""PFLlib: FedAvg's server and clients, of a checkout that the variable PFLLIB names; one process, images in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from plain import PlainLeNet, objective
from work import Clock, arguments, fresh, images

sys.path.insert(0, str(Path(os.environ["PFLLIB"]) / "system"))

from flcore.clients import clientbase
from flcore.servers import serverbase
from flcore.servers.serveravg import FedAvg

given, clock = arguments(), Clock()


class Options(SimpleNamespace):
    """Options that PFLlib's command line would give; versions differ in them, so one that is not set here is 0."""

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def read(dataset: str, index: int, is_train: bool = True, few_shot: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A client's (image, label) pairs, made once; PFLlib itself would read a file in each round."""
    if index not in made:
        made[index] = list(zip(*images(index, given.images, given.device), strict=True))
    return made[index] if is_train else []


made: dict[int, list[Any]] = {}
clientbase.read_client_data = serverbase.read_client_data = read
torch.set_num_threads(1)
network = PlainLeNet()
network.load_state_dict(fresh(), strict=False)
options = Options(
    model=network.to(given.device),
    device=given.device,
    dataset="random",
    algorithm="FedAvg",
    save_folder_name="unused",
    num_classes=10,
    num_clients=given.clients,
    global_rounds=given.rounds,
    local_epochs=given.epochs,
    batch_size=64,
    local_learning_rate=1e-3,
    learning_rate_decay_gamma=1.0,
    join_ratio=1.0,
    time_threthold=float("inf"),
    eval_gap=1,
)
server = FedAvg(options, 0)
for _ in range(given.rounds + 1):
    clock.start()
    server.selected_clients = server.select_clients()
    server.send_models()
    for client in server.selected_clients:
        # PFLlib's own are cross-entropy and an SGD optimizer without momentum, which is kept over rounds.
        client.loss, trained = objective, client.model.features.parameters()
        client.optimizer = torch.optim.SGD(trained, 1e-3, momentum=0.9, weight_decay=1e-3)
        client.train()
    server.receive_models()
    server.aggregate_parameters()
    clock.stop()
clock.report()
