"""A finished run as live values: the models, the clients they belong to, and an engine to ask."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig, restore_config
from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Objective
from fedwca.core.network import Architecture, Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages, Federation
from fedwca.describe_problems import describe_unknown
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, FedwcaError, InvalidConfig, UnknownComponent, UsageError
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.extra_networks import grow_network
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.registry import canonical_name
from fedwca.results.checkpoints import Checkpoints, NoWholeCheckpoint, SavedCheckpoint, SelectedRound, Unit
from fedwca.results.describe_run import data_name
from fedwca.results.diverged_runs import describe_divergence
from fedwca.results.find_runs import find_run
from fedwca.results.read_run import read_run, run_identity
from fedwca.results.read_run_files import read_configuration, trained_clients
from fedwca.results.trial_key import TrialKey
from fedwca.runs.checkpointer import RoundState, read_round_state
from fedwca.runs.choose_device import has_device, resolve_device
from fedwca.runs.load_data import architecture, build_network
from fedwca.runs.run_images import load_same_images, locate_paths
from fedwca.runs.select_engine import choose_engine
from fedwca.runs.split_trials import split_trial


@dataclass(frozen=True, repr=False, eq=False)
class OpenedRun:
    """One method of a run on one federation, as it was after its last round.

    All of it comes from the run folder, but for what needs the images (`dataset`, `federation`, `engine`) or the
    method's components (`method`): these are looked for when they are asked for.
    """

    path: Path
    """The run folder."""
    about: Mapping[str, Any]
    """What its ``config.json`` holds."""
    config: RunConfig
    """With its paths as they are found now."""
    unit: Unit
    """Which source model, trial and method."""
    point: RoundState
    """What was kept: the server's rows and state, clusters, and what each client is delivered."""
    bank: Tensor
    """Every client's own model ``[K, P]``."""
    architecture: Architecture
    network: Network
    """The source model, with the classifier that all models share unless they have each their own in their rows; beside
    it the extra networks of the method."""
    layout: Layout
    """Where a network's tensors are in a row."""
    classes: Sequence[str]
    """Names of the M classes."""
    last: int
    """The last round that is kept; an earlier one may be opened."""
    selected: SelectedRound | None = None
    """The round that the table shows, where one is selected and no round was asked for."""

    def __repr__(self) -> str:
        which = f"source model {self.unit.source_model}, trial {self.unit.trial}"
        return f"<OpenedRun {str(self.path)!r}: {self.label} after {self.round + 1} rounds, {which}>"

    @property
    def label(self) -> str:
        """What tables call the method."""
        return str(self.about["methods"][self.unit.method]["label"])

    @property
    def rounds(self) -> int:
        """Rounds the method has; 0 for the source model as it is."""
        return int(self.about["methods"][self.unit.method]["rounds"])

    @property
    def round(self) -> int:
        """The round everything is of; -1 before round 0."""
        return self.point.round

    @property
    def finished(self) -> bool:
        """Whether the method has done all its rounds."""
        return self.last == self.rounds - 1

    @property
    def choice(self) -> str:
        """Which of several rounds was opened, and why, in a sentence; empty where there was nothing to choose."""
        if self.selected is None or self.selected.round == self.last:
            return ""
        opened = f"{self.label}: the model after {self.round + 1} of {self.last + 1} rounds"
        if self.round == self.selected.round:
            return f"{opened}, which was best on training clients' validation images; the table shows the same"
        return f"{opened}; the table shows that after {self.selected.round + 1}, which --keep selected would have kept"

    @property
    def server(self) -> Server:
        """Rows ``[R, P]``, state, and ``source [P]``, the source model's row."""
        return self.point.server

    @property
    def labels(self) -> Tensor:
        """Cluster of each client ``[K]``; all 0 before round 0."""
        found = self.point.labels
        return torch.zeros(len(self.bank), dtype=torch.int64) if found is None else found

    @property
    def domains(self) -> Sequence[str]:
        """True domain of each client, K names; newcomers have no model of their own in it."""
        return tuple(self.about["domains"])[: trained_clients(self.about)]

    @property
    def source(self) -> str | None:
        """Name of the source domain; None where clients have labels."""
        if self.network.whole:
            return None
        return self.config.source or self._images[1]

    @property
    def dataset_name(self) -> str:
        """Name of the data set."""
        return str(self.about.get("dataset_name") or data_name(self.config.dataset, self.config.data))

    @cached_property
    def method(self) -> Method:
        """The method, made of its components.

        Raises:
            FedwcaError: one of them is not installed, or the run's configuration gives no such method any more.
        """
        composed = {made.name: made for made, _ in compose(self.config)}
        if self.unit.method not in composed:
            raise FedwcaError(
                f"{self.path}: this fedwca composes no method {self.unit.method!r} from the run's configuration"
            )
        return composed[self.unit.method]

    @cached_property
    def _images(self) -> tuple[FederatedDataset, str | None]:
        return load_same_images(self.config, self.about, self.path)

    @property
    def dataset(self) -> FederatedDataset:
        """The images the run was made on.

        Raises:
            DataError: they are others now.
            DatasetMissing: they are not there.
        """
        return self._images[0]

    @cached_property
    def federation(self) -> Federation:
        """The clients' images, and the metrics that hold their labels and domains; raises what `dataset` raises."""
        return split_trial(self.config, *self._images, self.unit.source_model, self.unit.trial)

    @cached_property
    def engine(self) -> Engine:
        """An engine with every client's own model in its bank; raises what `dataset` raises."""
        engine = choose_engine(self.config, self.network, self.federation.clients)
        engine.bank.copy_(self.bank)
        return engine

    @cached_property
    def delivered(self) -> Tensor:
        """The model each client ends with ``[K, P]``: what the table evaluates.

        Raises:
            DatasetMissing, DataError: BatchNorm statistics are those of images that are not there or others.
        """
        if self.round < 0:
            return self.bank
        models, adapted = self._deliver(), self.point.adapted
        if adapted is not None:
            models[adapted] = self.bank[adapted]
        return models

    def _deliver(self) -> Tensor:
        """What the server sends each client at the end ``[K, P]``."""
        rows, delivery = self.server.rows, self.point.delivery
        if delivery is None:  # kept by an earlier release
            delivery = deliver_mixtures(self.method.aggregator, self.server.state, len(rows))
        if BatchNormPolicy(self.config.batch_norm) is BatchNormPolicy.RECALIBRATED:
            return self.engine.deliver(delivery, rows)
        none = torch.zeros(0, 3, self.architecture.stored, self.architecture.stored, dtype=torch.uint8)
        engine = choose_engine(self.config, self.network, [ClientImages(none, none, none)] * len(self.bank))
        engine.bank.copy_(self.bank)
        return engine.deliver(delivery, rows)


def open_run(
    run: str | Path, method: str | None = None, source_model: int = 0, trial: int = 0, round: int | None = None
) -> OpenedRun:
    """Open a run's kept models; trains nothing, draws no source model anew and reads no image before one is needed.

    Args:
        run: run folder, or its name in ``runs/``.
        method: name of a method of the run; None: the composed one.
        source_model: which source model, from 0.
        trial: which trial, from 0.
        round: after how many rounds; None: the round that the table shows where it is kept and was selected by
            validation images, else the last that is kept.

    Warns:
        UserWarning: the method is unfinished or diverged, so its last kept round is opened.

    Raises:
        UsageError: no such run, method, source model, trial or round.
        CheckpointError: its checkpoints were not kept, or the one that is asked for is damaged.
        FedwcaError: its files cannot be read.
    """
    path = find_run(run)
    about = read_configuration(path)
    config = locate_paths(restore_config(about["config"]), about, path)
    if not has_device(config.device):
        config = config.model_copy(update={"device": "auto"})
    if config.precision == "tf32" and not resolve_device(config.device).startswith("cuda"):
        config = config.model_copy(update={"precision": "fp32"})  # as models are kept
    unit = _unit(path, list(about["methods"]), config, method, source_model, trial)
    store = Checkpoints(path, run_identity(about))
    newest = _kept(store, path, unit, round)
    selected = newest.selected if round is None else None
    found = (store.at(unit, selected.round) if selected else None) or newest
    tensors = found.tensors()
    # Runs of earlier releases name their classes nowhere but beside their images.
    classes = tuple(about.get("classes", ())) or load_same_images(config, about, path)[0].classes
    built = architecture(config)
    network = build_network(config, len(classes), pretrained=False)
    parts = _trained_parts(about["methods"][unit.method])
    network = grow_network(network, parts, config.seed, sizes=len(built.variants))
    layout = Layout.of(network)
    layout.write(network, tensors["source"])
    extra = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    network.load_state_dict(extra, strict=False)
    network.eval()
    point, bank = read_round_state(found, trained_clients(about), layout.width, resolve_device(config.device))
    opened = OpenedRun(path, about, config, unit, point, bank, built, network, layout, classes, newest.round, selected)
    if not opened.finished and round is None:
        done, ended = newest.round + 1, read_run(path).diverged.get(unit.method, {}).get(TrialKey(source_model, trial))
        state = f"{done} of {opened.rounds} rounds are done" if done else "no round of it is done"
        why = describe_divergence(ended) if ended else "is unfinished"
        warnings.warn(f"{path}: {opened.label} {why}; {state}, and these are opened", UserWarning, stacklevel=2)
    return opened


def _trained_parts(about: Mapping[str, Any]) -> list[Adaptation | Objective]:
    """Adaptation and objectives among a method's components, as a run says them; `Method.trained` without composing."""
    found: list[Adaptation | Objective] = []
    for part in about["components"]:
        if part["kind"] == "adaptation":
            found.append(registry_of("adaptation").build({key: value for key, value in part.items() if key != "kind"}))
        elif part["kind"] == "objective":
            # One that is not installed any more trained nothing beside the model, or the model does not fit, which is
            # said where it is read.
            with suppress(UnknownComponent, InvalidConfig):
                found.append(registry_of("objective").build({k: value for k, value in part.items() if k != "kind"}))
    return found


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


def _kept(store: Checkpoints, path: Path, unit: Unit, round: int | None) -> SavedCheckpoint:
    """A unit's checkpoint after so many rounds, or its newest one."""
    if round is not None:
        file = store.path_of(unit, round - 1)
        if not file.is_file():
            kept = ", ".join(str(int(other.stem)) for other in reversed(store.files(unit))) or "none"
            raise UsageError(f"{path}: no checkpoint of {unit.method} after round {round}; those that are kept: {kept}")
        return store.read(file, unit)
    try:
        saved, damaged = store.latest(unit)
    except NoWholeCheckpoint as error:
        raise CheckpointError(f"{error}; run {unit.method} again in another folder") from None
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
