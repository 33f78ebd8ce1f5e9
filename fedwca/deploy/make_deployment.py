"""Makes the folder that `fedwca deploy init` writes, and runs a deployment in Flower's simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedwca.config.build_component import architecture, build_partition
from fedwca.config.method_spec import PARTS
from fedwca.config.run_config import Layer, validate
from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.core.files import check_writable
from fedwca.core.mean import mean
from fedwca.core.plain_values import to_plain
from fedwca.deploy.deployable_checks import check_clients_per_round, check_deployable, check_first_groups
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.deployment_folder import check_no_deployment, write_deployment
from fedwca.deploy.flower.simulation import simulate, write_client_images
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.deploy.state_files import read_final
from fedwca.describe_problems import describe_problems
from fedwca.engine.precision import matmul_precision
from fedwca.engine.randomness import Keys
from fedwca.errors import InvalidConfig, UsageError
from fedwca.partitions import Partition
from fedwca.partitions._domain_partition import DomainPartition
from fedwca.partitions.skewed_domains import SkewedDomains
from fedwca.results.read_run_files import may_be_of_run
from fedwca.results.table_rows import Row, run_summary
from fedwca.results.trial_key import TrialKey
from fedwca.runs.check_components import dry_run_components
from fedwca.runs.check_model import check_model
from fedwca.runs.load_data import build_network, load
from fedwca.runs.records.measure_delivered import list_accuracies
from fedwca.runs.resources.select_engine import choose_engine
from fedwca.runs.run_folder_name import new_run_path
from fedwca.runs.run_request import RunRequest
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial
from fedwca.warn_caller import warn_caller

SIMULATED_DEADLINE = 11 * 3600.0
"""Seconds that a simulated round waits for answers, whose clients share this machine's cores; below the 12 hours after
which Flower drops a message."""


@dataclass(frozen=True)
class DeployRequest:
    """What a deployment is made from."""

    folder: Path
    run: RunRequest
    """The method, the data that holds the source domain, and how clients train."""
    baseline: str | None = None
    """Deploy this baseline as it is."""
    clients: int | None = None
    """Number of clients; None where ``dealt``, which sets it."""
    dealt: bool = False
    """Whether the images of simulated clients are written too, to try the deployment on one machine."""
    rules: Sequence[tuple[str, str]] = ()
    """Names and values of fields of `fedwca.deploy.server_rules.Rules`."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `DeploymentConfig`."""
    hosts: Sequence[str] = ()
    """Names and addresses of the server."""
    insecure: bool = False
    """No TLS and no node keys."""
    simulated: bool = False
    """Whether the clients compute on the run's device too, as in Flower's simulation; else each on its own."""


def make_deployment(request: DeployRequest, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Check the request, train the source model if there is none, and write the folder; return the number of clients.

    Args:
        request: what the deployment is made from.
        progress: called with (epochs done, epochs in total) of the source model.

    Raises:
        FedwcaError: the request cannot be deployed. Nothing is written before the source model is trained.
    """
    check_no_deployment(request.folder)
    if (request.folder / "config.json").exists():
        held = "a run already" if may_be_of_run(request.folder) else "a config.json that is no run's"
        raise UsageError(f"{request.folder} holds {held}; name another folder")
    parts = [part for part in PARTS if request.run.layer.get(part)]
    if request.baseline and parts:
        raise UsageError(
            f"baseline {request.baseline!r} is deployed as it is; leave {parts[0]} out, or compose a method without it"
        )
    methods: Layer = {"baselines": [request.baseline], "composed": False} if request.baseline else {"baselines": []}
    plan = replace(request.run, layer={**request.run.layer, **methods}).plan()
    dataset, source = load(plan.config)
    if not request.dealt and "partition" in request.run.layer:
        check_partition(build_partition(plan.config))
    method, rounds = plan.methods[-1]
    config = plan.at(source).config.model_copy(update={"rounds": rounds})
    network = build_network(config, len(dataset.classes))
    federation = split_trial(config, dataset, source, 0, 0) if request.dealt else None
    if federation is None and request.clients is None:
        raise UsageError("--clients is needed: how many clients take part (or --deal, to try it out on this machine)")
    if "clients" in dict(request.rules):
        raise UsageError("--rule clients: say how many clients take part with --clients")
    count = len(federation) if federation is not None else request.clients or 0
    try:
        rules = Rules(**{"participation": config.participation, **dict(request.rules), "clients": count})
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, "--rule ", Rules)) from error
    check_deployable(method, rounds, network, rules.clients)
    try:
        deployment = DeploymentConfig(
            config=config.model_dump(mode="json"), classes=dataset.classes, rules=rules, **request.more
        )
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error)) from error
    Session(method, network, deployment.composition, rules)  # refuses rules that do not fit the method
    check_clients_per_round(rules)
    check_first_groups(rules, method, Keys(deployment.composition.seed, deployment.composition.trial))
    check_model(network, architecture(config).name)
    dry_run_components(config, plan.methods, network, dataset.classes, count, elsewhere=not request.simulated)
    check_writable(request.folder)
    model = source_model(config, dataset, source, 0, lambda done, total, accuracy: progress(done, total))
    if federation is not None:
        write_client_images(federation.clients, request.folder / "data")
    write_deployment(request.folder, deployment, model.network, request.hosts, request.insecure)
    return count


def check_partition(partition: Partition) -> None:
    """Refuse a partition that only says which client has which images, where clients have their own.

    Raises:
        UsageError: it is such a partition.
    """
    deals = isinstance(partition, DomainPartition) and type(partition).deal is not DomainPartition.deal
    chooses = type(partition).choose_images is not Partition.choose_images
    if isinstance(partition, SkewedDomains):
        chooses = partition.source_ratio > 1
    if deals and not chooses:
        raise UsageError(
            f"--partition {partition.name} deals the images that --deal writes; clients train on all of theirs; leave "
            "it out"
        )


@dataclass(frozen=True)
class SimulatedDeployment:
    """The result of a method in Flower's simulation."""

    row: Row
    """The method's row in the results table."""
    rounds: int
    folder: Path
    """The deployment's folder."""
    summary: Mapping[str, Any]
    """The same structure as a run's ``summary.json``."""


def simulate_deployment(request: RunRequest) -> SimulatedDeployment:
    """Deploy the composed method, run it in Flower's simulation, and measure the final models.

    Raises:
        FedwcaError: the method cannot be deployed, or the simulation failed.

    Warns:
        UserWarning: a cluster's model was a single client's, which deployments refuse by default.
    """
    import torch

    started = time.perf_counter()
    folder = request.out or new_run_path("flower")
    # No model leaves this machine, so clusters of one client are harmless; every sampled client must answer anyway.
    rules, settings = [("alone", "warn"), ("least", "1")], {"wait": 120.0, "deadline": SIMULATED_DEADLINE}
    on_cpu = replace(request, layer={**request.layer, "device": "cpu"})  # as the simulated clients are
    made = DeployRequest(folder, on_cpu, dealt=True, rules=rules, more=settings, insecure=True, simulated=True)
    make_deployment(made)
    deployment = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
    setup_done = time.perf_counter()
    session = simulate(deployment, folder / "server", folder / "data")
    if session.single_rounds:
        warn_caller(
            f"after round {session.single_rounds[0]} a cluster's model was a single client's own: a deployment stops "
            "in round 0 where that is so, or keeps the model that the cluster had, unless it has --rule alone=warn",
        )
    config = validate(deployment.config)
    dataset, source = load(config)
    federation = split_trial(config, dataset, source, 0, 0)
    engine = choose_engine(config, session.network, federation.clients)
    # Each client has written its final model, which includes its own BatchNorm statistics.
    models = [read_final(folder / "server" / f"client-{k}", engine.layout) for k in range(len(federation.clients))]
    engine.bank.copy_(torch.stack(models))
    with matmul_precision(config.precision, engine.device):
        accuracies = list_accuracies(federation.metrics, engine.predict_tests())
    by_domain = {domain: [value] for domain, value in federation.metrics.by_domain(accuracies).items()}
    row = Row(session.method.name, session.method.label, {TrialKey(): mean(accuracies)}, by_domain)
    ended = time.perf_counter()
    seconds, total, setup = {row.name: ended - setup_done}, ended - started, setup_done - started
    summary = run_summary([row], config.model_dump(mode="json"), seconds, total, setup, complete=True)
    return SimulatedDeployment(row, config.rounds, folder, to_plain(summary))
