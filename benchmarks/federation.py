"""What precision on the wire, defences and noise cost, measured message by message in one process.

    python benchmarks/federation.py OUT.json [--clients 2 --samples 150 --rounds 5]

Eight clients of digits-mini (two for each of four domains); each line is one federation from the same source model.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedwca.data.metrics import mean
from fedwca.deploy.client import Client, Privacy
from fedwca.deploy.composition import Composition
from fedwca.deploy.local import federate
from fedwca.deploy.protocol import Parcel
from fedwca.deploy.rules import Rules
from fedwca.deploy.server import Session
from fedwca.engine.loop import Loop
from fedwca.experiments.bench import draw
from fedwca.experiments.request import plan
from fedwca.experiments.setup import architecture, load, source_model
from fedwca.results.store import environment


def flipped(session: Session, liar: int) -> Callable[[int, Parcel], Parcel]:
    """A wire on which one client's update is turned round and made ten times as long."""

    def wire(client: int, parcel: Parcel) -> Parcel:
        if client != liar or parcel.kind != "upload":
            return parcel
        own = session.asked[client].own
        slots = {slot.name: slot.of(own) for slot in session.layout.parameters}
        model = {k: slots[k] - 10 * (t - slots[k]) if k in slots else t for k, t in parcel.models["model"].items()}
        return replace(parcel, models={"model": model})

    return wire


def epsilon(noise: float, rounds: int, delta: float = 1e-5) -> float | None:
    """What ``rounds`` uploads of one client spend, replacing all its images; None without noise."""
    if not noise:
        return None
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    # Two clipped updates are at most twice the bound apart.
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise / 2), rounds)
    return float(RdpAccountant().compose(event).get_epsilon(delta))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    lines: list[dict[str, Any]] = []

    def measure(what: str, aggregator: str, liar: bool = False, privacy: Privacy | None = None, **options: Any) -> None:
        layer = {"aggregator": aggregator, "clients": given.clients, "samples": given.samples, "baselines": []}
        decided = plan({**layer, "rounds": given.rounds})
        dataset, source = load(decided.config)
        config, (method, rounds) = decided.config, decided.methods[-1]
        dealt = draw(config, dataset, source, 0, 0)
        model = source_model(config, dataset, source, 0)
        composition = Composition.of(
            method,
            architecture(config),
            len(dataset.classes),
            training=config.training,
            seed=config.seed,
            transport=options.pop("transport", "full"),
        )
        session = Session(method, model.network, composition, Rules(clients=len(dealt), alone="warn", **options))
        clients = [Client(lambda side, x=each.train: x, privacy=privacy) for each in dealt.clients]
        down, up = [], []
        inner = flipped(session, 0) if liar else lambda client, parcel: parcel

        def wire(client: int, parcel: Parcel) -> Parcel:
            if client == 1:
                up.append(parcel.bytes)
            return inner(client, parcel)

        class Weighing(Client):
            def handle(self, parcel: Parcel) -> Parcel:
                down.append(parcel.bytes)
                return super().handle(parcel)

        clients[1].__class__ = Weighing
        federate(session, clients, rounds, wire)
        loop = Loop(model.network, dealt.clients, "cpu", 1)
        server = session.memory.server
        weights = method.aggregator.deliver(server.state, len(server.rows))
        honest = range(1, len(dealt)) if liar else range(len(dealt))
        found = loop.classify(weights, server.rows)
        accuracy = mean(dealt.metrics.accuracy(client, found[client]) for client in honest)
        lines.append(
            {
                "what": what,
                "aggregator": aggregator,
                "accuracy": round(accuracy, 2),
                "bytes_down": down[:-1],
                "bytes_up": up,
                "clusters": len(server.rows),
                "epsilon": epsilon(privacy.noise, rounds) if privacy else None,
            }
        )
        settings = {"clients": len(dealt), "samples": given.samples, "rounds": rounds}
        about = {"settings": {**settings, "training": config.training.model_dump()}, "environment": environment("cpu")}
        given.out.write_text(json.dumps({**about, "lines": lines}, indent=1) + "\n")

    for aggregator in ("fedavg", "wca", "revised_wca:u=2"):
        measure("full precision", aggregator)
        measure("half precision", aggregator, transport="half")
    for aggregator in ("fedavg:weighting=uniform", "wca"):
        measure("one of eight lies", aggregator, liar=True)
        measure("one lies, norm bound 3", aggregator, liar=True, norm_bound=3.0)
        measure("one lies, median", aggregator, liar=True, robust="median")
        measure("one lies, trimmed mean", aggregator, liar=True, robust="trimmed")
    measure("nobody lies, median", "fedavg:weighting=uniform", robust="median")
    for clip, noise in ((1.0, 0.0), (0.3, 0.0), (1.0, 0.01), (1.0, 0.1), (1.0, 1.0), (0.3, 4.0)):
        measure(f"clip {clip}, noise {noise}", "fedavg", privacy=Privacy(clip, noise))
    picture(lines, given.out.with_suffix(".png"))


def picture(lines: list[dict[str, Any]], path: Path) -> None:
    """Bytes that one client is sent in each round, by method and precision."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for line in (line for line in lines if "precision" in line["what"]):
        style = "--" if line["what"].startswith("half") else "-"
        rounds = range(len(line["bytes_down"]))
        axis.plot(
            rounds, [n / 1e6 for n in line["bytes_down"]], style, label=f"{line['aggregator']}, {line['what'][:4]}"
        )
    axis.set(xlabel="round", ylabel="MB sent to a client", xticks=list(rounds), ylim=(0, None))
    axis.legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
