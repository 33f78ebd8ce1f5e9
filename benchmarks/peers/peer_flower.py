"""Flower's simulation: Ray actors, one process for each client that runs at the same time."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from work import Clock, adapt, arguments, fresh

given, clock = arguments(), Clock()
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    number, options = int(context.node_config["partition-id"]), message.content["config"]
    state = message.content["arrays"].to_torch_state_dict()
    state = adapt(state, number, int(options["images"]), int(options["epochs"]), str(options["device"]))
    metrics = MetricRecord({"num-examples": int(options["images"])})
    return Message(content=RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)


class Timed(FedAvg):
    """FedAvg that starts and stops the clock around a round."""

    def configure_train(self, server_round, arrays, config, grid) -> list[Message]:  # type: ignore[no-untyped-def]
        clock.start()
        return list(super().configure_train(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):  # type: ignore[no-untyped-def]
        result = super().aggregate_train(server_round, replies)
        clock.stop()
        return result


@server.main()
def main(grid: Grid, context: Context) -> None:
    clients = given.clients
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    options = ConfigRecord({"images": given.images, "epochs": given.epochs, "device": given.device})
    strategy.start(grid, ArrayRecord(fresh()), num_rounds=given.rounds + 1, train_config=options)
    clock.report()


if __name__ == "__main__":
    gpus = 0.0 if given.device == "cpu" else 1 / given.workers
    run_simulation(
        server,
        client,
        num_supernodes=given.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": gpus},
            "init_args": {"num_cpus": given.workers, "include_dashboard": False},
        },
    )
