"""What `fedwca deploy init` writes, from a request as that of `fedwca bench`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedwca.config.baselines import baseline
from fedwca.config.method_spec import PARTS
from fedwca.config.run_config import Layer, merge, validate
from fedwca.core.files import check_writable
from fedwca.core.mean import mean
from fedwca.core.plain_values import to_plain
from fedwca.deploy.deployable_checks import (
    check_compressible,
    check_consent,
    check_defences,
    check_deployable,
    check_enough_asked,
)
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.deployment_folder import write_deployment
from fedwca.deploy.flower.simulation import simulate, write_client_images
from fedwca.deploy.folder_names import CONFIG_NAME
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.state_files import read_final
from fedwca.describe_problems import describe_problems
from fedwca.engine.precision import matmul_precision
from fedwca.errors import InvalidConfig, UsageError
from fedwca.results.table_rows import Row, summarise
from fedwca.results.trial_key import TrialKey
from fedwca.runs.check_components import rehearse_components
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.load_data import build_network, load
from fedwca.runs.measure_delivered import list_accuracies
from fedwca.runs.run_folder_name import new_run_path
from fedwca.runs.run_request import RunRequest
from fedwca.runs.select_engine import choose_engine
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

SIMULATED_DEADLINE = 11 * 3600.0
"""Seconds of a simulated round, whose clients share this machine's cores; Flower gives a message up after 12 hours."""


@dataclass(frozen=True)
class DeployRequest:
    """What a deployment is to be made of."""

    folder: Path
    run: RunRequest
    """The method, the data that holds the source domain, and how clients train."""
    baseline: str | None = None
    """Deploy this baseline as it is."""
    clients: int | None = None
    """Clients in all; None where they are dealt."""
    dealt: bool = False
    """Whether simulated clients get their images, to try it out on one machine."""
    rules: Sequence[tuple[str, str]] = ()
    """Names and values of `fedwca.deploy.server_rules.Rules`."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `DeploymentConfig`."""
    hosts: Sequence[str] = ()
    """Names and addresses of the server."""
    insecure: bool = False
    """No TLS and no node keys."""


def make_deployment(wanted: DeployRequest, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Check, train the source model where there is none, and write the folder; returns the number of clients.

    Args:
        wanted: what is asked for.
        progress: told (epochs done, epochs) of the source model.

    Raises:
        FedwcaError: what is wrong, in a sentence. Until the source model is there nothing is written.
    """
    if (wanted.folder / "server" / CONFIG_NAME).exists():
        raise UsageError(f"{wanted.folder} holds a deployment already; name another folder or remove it")
    if (wanted.folder / "config.json").exists():
        raise UsageError(f"{wanted.folder} holds a run already; name another folder")
    given = [part for part in PARTS if wanted.run.layer.get(part)]
    if wanted.baseline and given:
        raise UsageError(
            f"baseline {wanted.baseline!r} is deployed as it is; leave {given[0]} out, or compose a method without it"
        )
    layer = merge(baseline_components(wanted.baseline), wanted.run.layer) | {"baselines": []}
    plan = replace(wanted.run, layer=layer).plan()
    dataset, source = load(plan.config)
    config = plan.at(source).config
    most = baseline(wanted.baseline).rounds if wanted.baseline else None
    if most is not None:
        config = config.model_copy(update={"rounds": min(config.rounds, most)})
    method, rounds = plan.methods[-1]
    network = build_network(config, len(dataset.classes))
    check_deployable(method, rounds, network)
    federation = split_trial(config, dataset, source, 0, 0) if wanted.dealt else None
    if federation is None and wanted.clients is None:
        raise UsageError("--clients is needed: how many clients take part (or --deal, to try it out on this machine)")
    if "clients" in dict(wanted.rules):
        raise UsageError("--rule clients: say how many clients take part with --clients")
    count = len(federation) if federation is not None else wanted.clients or 0
    try:
        rules = Rules(**{"participation": config.participation, **dict(wanted.rules), "clients": count})
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, "--rule ", Rules.model_fields)) from error
    try:
        made = DeploymentConfig(
            config=config.model_dump(mode="json"), classes=dataset.classes, rules=rules, **wanted.more
        )
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error)) from error
    check_consent(rules, method)
    check_defences(rules, method, made.composition)
    check_enough_asked(rules)
    check_compressible(made.composition, network)
    rehearse_components(config, plan.methods, dataset)
    check_writable(wanted.folder)
    with matmul_precision("fp32", resolve_device(config.device)):
        model = source_model(config, dataset, source, 0, lambda done, total, accuracy: progress(done, total))
    if federation is not None:
        write_client_images(federation.clients, wanted.folder / "data")
    write_deployment(wanted.folder, made, model.network, wanted.hosts, wanted.insecure)
    return count


@dataclass(frozen=True)
class SimulatedDeployment:
    """What a method came to in Flower's simulation."""

    row: Row
    """The method's, as in the table of a run."""
    rounds: int
    folder: Path
    """That of a deployment."""
    summary: Mapping[str, Any]
    """The shape of a run's ``summary.json``."""


def simulate_deployment(request: RunRequest) -> SimulatedDeployment:
    """The composed method in Flower's simulation: deployed, played and measured.

    Raises:
        FedwcaError: what is wrong, in a sentence.
    """
    import torch

    began = time.perf_counter()
    folder = request.out or new_run_path("flower")
    # Nobody's model goes anywhere, so one that is alone does no harm; every client that is asked must answer anyway.
    rules, more = [("alone", "warn"), ("least", "1")], {"join": 120.0, "deadline": SIMULATED_DEADLINE}
    make_deployment(DeployRequest(folder, request, dealt=True, rules=rules, more=more, insecure=True))
    deployment = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
    ready = time.perf_counter()
    session = simulate(deployment, folder / "server", folder / "data")
    config = validate(deployment.config)
    dataset, source = load(config)
    federation = split_trial(config, dataset, source, 0, 0)
    engine = choose_engine(config, session.network, federation.clients)
    # Each client has written the model that it ends with, its own statistics of BatchNorm in it.
    models = [read_final(folder / "server" / f"client-{k}", engine.layout) for k in range(len(federation.clients))]
    engine.bank.copy_(torch.stack(models))
    found = list_accuracies(federation.metrics, engine.predict_tests())
    by_domain = {domain: [value] for domain, value in federation.metrics.by_domain(found).items()}
    row = Row(session.method.name, session.method.label, {TrialKey(): mean(found)}, by_domain)
    now = time.perf_counter()
    timing = {"total_seconds": now - began, "setup_seconds": ready - began, "run_seconds": now - ready}
    summary = {
        "methods": summarise([row]),
        "config": config.model_dump(mode="json"),
        "timing": {**timing, "methods": {row.name: now - ready}},
        "complete": True,
    }
    return SimulatedDeployment(row, config.rounds, folder, to_plain(summary))


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
        **({"methods": {name: {"training": found.training}}} if found.training else {}),
    }
