"""What `fedwca deploy init` writes, from a request as that of `fedwca bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from fedwca.config.layers import resolve_plan
from fedwca.config.methods import baseline
from fedwca.config.run_config import Layer, merge, validate
from fedwca.data.metrics import mean
from fedwca.deploy.checks import require_compressible, require_consent, require_defences, require_deployable
from fedwca.deploy.flower.config import CONFIG_NAME, DeploymentConfig
from fedwca.deploy.flower.deployment_folder import write_deployment
from fedwca.deploy.flower.simulation import deal, simulate
from fedwca.deploy.rules import Rules
from fedwca.deploy.state_files import read_final
from fedwca.engine.precision import matmul_precision
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import InvalidConfig, UsageError
from fedwca.registry import problems
from fedwca.runs.bench import split_trial
from fedwca.runs.execute import RunRequest
from fedwca.runs.record import count_accuracies
from fedwca.runs.setup import architecture, load, rehearse_components, resolve_device, source_model


@dataclass(frozen=True)
class DeployRequest:
    """What the command line said."""

    folder: Path
    layer: Layer
    pairs: Sequence[tuple[str, str]]
    preset: str
    file: Path | None
    baseline: str | None
    clients: int | None
    dealt: bool
    rules: Sequence[tuple[str, str]]
    more: dict[str, Any]
    hosts: Sequence[str]
    insecure: bool


def prepare(wanted: DeployRequest) -> int:
    """Check, train the source model where there is none, and write the folder; returns the number of clients.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been written by then.
    """
    if (wanted.folder / "server" / CONFIG_NAME).exists():
        raise UsageError(f"{wanted.folder} holds a deployment already; name another folder or remove it")
    layer = merge(baseline_components(wanted.baseline), wanted.layer) | {"baselines": []}
    first = resolve_plan(layer, wanted.pairs, wanted.preset, wanted.file)
    dataset, source = load(first.config)
    decided = resolve_plan(layer, wanted.pairs, wanted.preset, wanted.file, source)
    config = decided.config.model_copy(update={"source": source})
    method, rounds = decided.methods[-1]
    network = architecture(config).build(len(dataset.classes))
    require_deployable(method, rounds, network)
    federation = split_trial(config, dataset, source, 0, 0) if wanted.dealt else None
    if federation is None and wanted.clients is None:
        raise UsageError("--clients is needed: how many clients take part (or --deal, to try it out on this machine)")
    count = len(federation) if federation is not None else wanted.clients or 0
    try:
        rules = Rules(**{"participation": config.participation, **dict(wanted.rules), "clients": count})
    except ValidationError as error:
        raise InvalidConfig(problems(error, "--rule ", Rules.model_fields)) from error
    try:
        made = DeploymentConfig(
            config=config.model_dump(mode="json"), classes=dataset.classes, rules=rules, **wanted.more
        )
    except ValidationError as error:
        raise InvalidConfig(problems(error)) from error
    require_consent(rules, method)
    require_defences(rules, method, made.composition)
    require_compressible(made.composition, network)
    rehearse_components(config, decided.methods, dataset)
    with matmul_precision("fp32", resolve_device(config.device)):
        model = source_model(config, dataset, source, 0)
    write_deployment(wanted.folder, made, model.network, wanted.hosts, wanted.insecure)
    if federation is not None:
        deal(federation.clients, wanted.folder / "data")
    return count


def simulate_deployment(request: RunRequest) -> None:
    """The composed method in Flower's simulation: deployed, played and measured; the folder is that of a deployment.

    Raises:
        FedwcaError: what is wrong, in a sentence.
    """
    import torch

    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    folder = request.out or Path("runs") / f"{stamp}-flower"
    more = {"join": 120.0}
    wanted = DeployRequest(
        folder,
        request.layer,
        request.pairs,
        request.preset,
        request.file,
        baseline=None,
        clients=None,
        dealt=True,
        rules=[("alone", "warn")],  # nobody's model goes anywhere
        more=more,
        hosts=(),
        insecure=True,
    )
    prepare(wanted)
    federation = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
    session = simulate(federation, folder / "server", folder / "data")
    config, server = validate(federation.config), session.state.server
    dataset, source = load(config)
    dealt = split_trial(config, dataset, source, 0, 0)
    loop = SequentialEngine(
        session.network, dealt.clients, resolve_device(config.device), config.workers, config.batch_norm
    )
    if session.method.aggregator.travels:
        weights, rows = session.method.aggregator.deliver(server.state, len(server.rows)), server.rows
    else:
        # Models stay where they are: each client has written its own.
        weights = torch.eye(len(dealt.clients), dtype=torch.float64)
        rows = torch.stack([read_final(folder / "server" / f"client-{k}", loop.layout) for k in range(len(weights))])
    found = count_accuracies(dealt.metrics, loop, weights, rows)
    result = {"method": session.method.name, "rounds": config.rounds, "accuracy": mean(found)}
    if request.as_json:
        typer.echo(json.dumps({**result, "domains": dealt.metrics.by_domain(found)}, indent=2))
        return
    typer.echo(f"{session.method.label} in Flower's simulation: {mean(found):.1f} % after {config.rounds} rounds")
    for name, accuracy in dealt.metrics.by_domain(found).items():
        typer.echo(f"  {name:<14} {accuracy:5.1f}")
    typer.echo(f"Models and bytes by round and client are in {folder}/server")


def baseline_components(name: str | None) -> Layer:
    """A baseline's parts as values of a configuration."""
    if name is None:
        return {}
    found = baseline(name)
    if found.rounds == 0:
        raise UsageError(f"baseline {name!r} has no round: hand the source model out as it is")
    return {
        "aggregator": found.aggregator,
        "pseudo_labeler": found.pseudo_labeler,
        "objectives": list(found.objectives),
        "components": found.components,
        "name": name,
        **({"clusterer": found.clusterer} if found.clusterer else {}),
    }
