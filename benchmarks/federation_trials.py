"""Federations of federation.py: the same data and source model, one line of a result each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fedwca.aggregators import aggregators
from fedwca.config.build_component import architecture
from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.core.mean import mean
from fedwca.core.plain_values import to_plain
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.privacy import Privacy
from fedwca.deploy.server_context import ModelSignatures
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.round import init_server, run_round
from fedwca.functional import largest_entries, scatter_entries
from fedwca.runs.load_data import load
from fedwca.runs.records.round_record import describe_round
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial


@dataclass(frozen=True)
class Case:
    """Settings of one federation, which is one line of a result."""

    what: str
    aggregator: str
    upload: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)
    liar: bool = False
    """Whether client 0 lies; accuracies then leave it out."""
    apart: bool = False
    """Whether accuracies leave out client 0 though it is honest, for comparison with ``liar``."""
    privacy: Privacy | None = None


def flipped(session: Session, liar: int) -> Callable[[int, Parcel], Parcel]:
    """A wire on which one client's update is multiplied by -10."""

    def wire(client: int, parcel: Parcel) -> Parcel:
        if client != liar or parcel.kind != "upload":
            return parcel
        start = session.expected[client].starts[0]
        slots = {slot.name: slot.of(start) for slot in session.layout.parameters}
        model = {k: slots[k] - 10 * (t - slots[k]) if k in slots else t for k, t in parcel.models["model"].items()}
        return replace(parcel, models={"model": model})

    return wire


def epsilon(noise: float, rounds: int, delta: float = 1e-5) -> float | None:
    """ε of ``rounds`` uploads of one client when all its images are replaced; None without noise."""
    if not noise:
        return None
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    # Two clipped updates differ by at most twice the clip.
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise / 2), rounds)
    return float(RdpAccountant().compose(event).get_epsilon(delta))


class Weighing(Client):
    """A client that records the bytes of each message that it receives."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.down: list[int] = []

    def handle(self, parcel: Parcel) -> Parcel:
        self.down.append(parcel.bytes)
        return super().handle(parcel)


class Trials:
    """The data and source model of one seed, and federations that start from them."""

    def __init__(self, clients: int, samples: int, rounds: int, seed: int = 0) -> None:
        self.layer = {"clients": clients, "samples": samples, "rounds": rounds, "baselines": [], "seed": seed}
        self.config = self.plan("wca").config
        self.dataset, source = load(self.config)
        self.dealt = split_trial(self.config, self.dataset, source, 0, 0)
        self.network = source_model(self.config, self.dataset, source, 0).network
        self.settings = {
            **{"clients": len(self.dealt), "samples": samples, "rounds": rounds},
            "training": self.config.training.model_dump(),
            # Seed, data, source and model as resolved; each line names its own aggregator.
            "config": self.config.model_copy(update={"source": source}).model_dump(mode="json"),
        }

    def plan(self, aggregator: str) -> RunPlan:
        """The plan that the bench would run; a method that needs a clusterer gets FINCH, as in the paper."""
        needs_clusterer = aggregators.build(aggregator).grouping.needs_clusterer
        return resolve_plan(
            {**self.layer, "aggregator": aggregator, **({"clusterer": "finch"} if needs_clusterer else {})}
        )

    def accuracy(self, weights: torch.Tensor, rows: torch.Tensor, without: int = 0) -> float:
        """Mean accuracy over clients in percent; the first ``without`` clients are left out."""
        predictions = SequentialEngine(self.network, self.dealt.clients, "cpu", 1).classify(weights, rows)
        return round(mean(self.dealt.metrics.accuracy(k, predictions[k]) for k in range(without, len(self.dealt))), 2)

    def source_only(self) -> float:
        """Accuracy of the source model."""
        engine = SequentialEngine(self.network, self.dealt.clients, "cpu", 1)
        return self.accuracy(torch.ones(len(self.dealt), 1, dtype=torch.float64), init_server(engine).rows)

    def measure(self, case: Case) -> dict[str, Any]:
        """Run one federation; returns its line of the result."""
        method, rounds = self.plan(case.aggregator).methods[-1]
        composition = Composition.of(
            method,
            architecture(self.config),
            len(self.dataset.classes),
            training=self.config.training,
            seed=self.config.seed,
            **case.upload,
        )
        session = Session(method, self.network, composition, Rules(clients=len(self.dealt), alone="warn", **case.rules))
        clients = [Weighing(lambda side, stretch, x=data.train: x, privacy=case.privacy) for data in self.dealt.clients]
        inner_wire = flipped(session, 0) if case.liar else lambda client, parcel: parcel
        bytes_up: list[int] = []

        def wire(client: int, parcel: Parcel) -> Parcel:
            if client == 1:
                bytes_up.append(parcel.bytes)
            return inner_wire(client, parcel)

        run_in_process(session, clients, rounds, wire)
        server = session.state.server
        weights = method.aggregator.deliver(server.state, len(server.rows))
        return {
            "what": case.what,
            "aggregator": case.aggregator,
            "accuracy": self.accuracy(weights, server.rows, without=int(case.liar or case.apart)),
            "bytes_down": clients[1].down[:-1],
            "bytes_up": bytes_up,
            "clusters": len(server.rows),
            "labels": server.state["labels"].tolist(),
            "epsilon": epsilon(case.privacy.noise, rounds) if case.privacy else None,
        }

    def predicted(self, aggregator: str) -> dict[str, list[int]]:
        """Bytes to and from one client in each round, as the bench records them."""
        method, rounds = self.plan(aggregator).methods[-1]
        engine = SequentialEngine(self.network, self.dealt.clients, "cpu", 1)
        server, metrics, records = init_server(engine), self.dealt.metrics, []
        for number in range(rounds):
            keys = Keys(self.config.seed)
            server, outcome = run_round(
                number, server, method, engine, self.config.training, keys, metrics.domain_labels()
            )
            records.append(describe_round(outcome, method, metrics, engine, number == 0))
        return {name: [record[name] // len(self.dealt) for record in records] for name in ("bytes_down", "bytes_up")}

    def clusterings(self) -> dict[str, dict[str, Any]]:
        """Clusters after round 0 if the first layer of an upload were rounded or thinned like the other layers."""
        method = self.plan("wca").methods[-1][0]
        assert method.clusterer is not None
        engine, metrics = SequentialEngine(self.network, self.dealt.clients, "cpu", 1), self.dealt.metrics
        keys, server = Keys(self.config.seed), init_server(engine)
        run_round(0, server, method, engine, self.config.training, keys, metrics.domain_labels())
        bank, source = engine.bank.clone(), server.source
        variants = {"whole": bank, "half precision": bank.half().float()}
        for share in (0.1, 0.01):
            count = round(share * bank.shape[1])
            thinned = [scatter_entries(*largest_entries(row - source, count), bank.shape[1]) for row in bank]
            variants[f"top {100 * share:.0f} %"] = source + torch.stack(thinned)
        result = {}
        for name, rows in variants.items():
            labels = method.clusterer(ModelSignatures(rows, engine.layout, source))
            result[name] = {"labels": labels.tolist(), **to_plain(metrics.clustering(labels))}
        return result
