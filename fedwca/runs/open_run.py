"""A finished run as live values: the models, the clients they belong to, and an engine to ask."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import torch
from torch import Tensor

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig, restore_config
from fedwca.core.network import Architecture, Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.partition import Federation
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, FedwcaError, UsageError
from fedwca.federated.last_phase import final_models
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.registry import canonical_name, describe_unknown
from fedwca.results.checkpoints import Checkpoints, SavedCheckpoint, Unit
from fedwca.results.find_runs import find_run
from fedwca.results.read_run import read_run, run_identity
from fedwca.results.run_schemas import read_configuration
from fedwca.runs.checkpointer import state_from_tensors
from fedwca.runs.load_data import architecture, build_network, load
from fedwca.runs.run_trials_and_methods import split_trial
from fedwca.runs.select_engine import choose_engine


@dataclass(frozen=True, repr=False)
class OpenedRun:
    """One method of a run on one federation, as it was after its last round."""

    path: Path
    """The run folder."""
    config: RunConfig
    method: Method
    unit: Unit
    """Which source model, trial and method."""
    rounds: int
    """Rounds the method has; 0 for the source model as it is."""
    round: int
    """The round everything below is of; -1 before round 0."""
    architecture: Architecture
    network: Network
    """The source model, with the classifier that all models share unless they have each their own in their rows."""
    layout: Layout
    """Where a network's tensors are in a row."""
    dataset: FederatedDataset
    source: str | None
    """Name of the source domain; None where all clients but those of one domain have labels."""
    federation: Federation
    """The clients' images, and the metrics that hold their labels and domains."""
    engine: Engine
    """With every client's own model in its ``bank [K, P]``."""
    server: Server
    """Rows ``[R, P]``, state, and ``source [P]``, the source model's row."""
    labels: Tensor
    """Cluster of each client ``[K]``; all 0 before round 0."""
    delivered: Tensor
    """The model each client ends with ``[K, P]``: what the table evaluates."""

    def __repr__(self) -> str:
        which = f"source model {self.unit.source_model}, trial {self.unit.trial}"
        return f"<OpenedRun {str(self.path)!r}: {self.method.label} after {self.round + 1} rounds, {which}>"

    @property
    def finished(self) -> bool:
        """Whether the method has done all its rounds."""
        return self.round == self.rounds - 1


def open_run(
    run: str | Path, method: str | None = None, source_model: int = 0, trial: int = 0, round: int | None = None
) -> OpenedRun:
    """Open a run's kept models; trains nothing and draws no source model anew.

    Args:
        run: run folder, or its name in ``runs/``.
        method: name of a method of the run; None: the composed one.
        source_model: which source model, from 0.
        trial: which trial, from 0.
        round: after how many rounds; None: after all that are kept.

    Warns:
        UserWarning: the method is unfinished, so its last kept round is opened.

    Raises:
        UsageError: no such run, method, source model, trial or round.
        CheckpointError: its checkpoints were not kept, or the one that is asked for is damaged.
        FedwcaError: its files cannot be read.
    """
    path = find_run(run)
    about = read_configuration(path)
    config = restore_config(about["config"])
    unit = _unit(path, list(about["methods"]), config, method, source_model, trial)
    found = _kept(path, run_identity(about), unit, round)
    tensors = found.tensors()
    composed = {made.name: (made, rounds) for made, rounds in compose(config)}
    if unit.method not in composed:
        raise FedwcaError(f"{path}: this fedwca composes no method {unit.method!r} from the run's configuration")
    made, rounds = composed[unit.method]
    if found.round < rounds - 1 and round is None:
        state = f"{found.round + 1} of {rounds} rounds are done" if found.round >= 0 else "no round of it is done"
        warnings.warn(f"{path}: {made.label} is unfinished; {state}, and these are opened", UserWarning, stacklevel=2)
    dataset, domain = load(config)
    federation = split_trial(config, dataset, domain, source_model, trial)
    built = architecture(config)
    network = build_network(config, len(dataset.classes))
    layout = Layout.of(network)
    layout.write(network, tensors["source"])
    extra = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    network.load_state_dict(extra, strict=False)
    network.eval()
    engine = choose_engine(config, network, federation.clients)
    point = state_from_tensors(found, engine)
    delivered, server = engine.bank, point.server
    if point.round >= 0:
        delivered = final_models(made, server, engine, finished=made.is_last_phase(point.round, rounds))
    labels = torch.zeros(len(federation), dtype=torch.int64) if point.labels is None else point.labels
    return OpenedRun(
        path, config, made, unit, rounds, point.round, built, network, layout, dataset, config.source, federation,
        engine, server, labels, delivered,
    )  # fmt: skip


def _unit(path: Path, names: list[str], config: RunConfig, method: str | None, source_model: int, trial: int) -> Unit:
    """The unit that is asked for, if the run has it."""
    name = (
        names[-1] if method is None else next((n for n in names if canonical_name(n) == canonical_name(method)), None)
    )
    if name is None:
        raise UsageError(f"{path}: {describe_unknown('method', str(method), names)}")
    for what, number, count in (
        ("source model", source_model, config.source_models),
        ("trial", trial, config.trials),
    ):
        if not 0 <= number < count:
            raise UsageError(f"{path}: no {what} {number}; the run has {count}, counted from 0")
    return Unit(source_model, trial, name)


def _kept(path: Path, configuration: str, unit: Unit, round: int | None) -> SavedCheckpoint:
    """A unit's checkpoint after so many rounds, or its newest one."""
    store = Checkpoints(path, configuration)
    if round is not None:
        file = store.path_of(unit, round - 1)
        if not file.is_file():
            kept = ", ".join(str(int(other.stem)) for other in reversed(store.files(unit))) or "none"
            raise UsageError(f"{path}: no checkpoint of {unit.method} after round {round}; those that are kept: {kept}")
        return store.read(file, unit)
    saved, damaged = store.latest(unit)
    if damaged and saved is not None:
        older = saved.round + 1
        raise CheckpointError(
            f"{damaged[0]}; the checkpoint after round {older} is whole, and export and predict take it with "
            f"--round {older}"
        )
    if saved is None:
        more = "" if read_run(path).state == "done" else f", or continue it with: fedwca resume {quote(str(path))}"
        raise CheckpointError(
            f"{path}: no checkpoint of {unit.method} (source model {unit.source_model}, trial {unit.trial}) is kept; "
            f"run it again with --keep last{more}"
        )
    return saved
