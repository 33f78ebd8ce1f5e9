"""Opens a run's saved models, as they were after a round."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from fedwca.config.build_component import architecture
from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig, validate
from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Objective
from fedwca.core.network import Network
from fedwca.core.tensor_files import fill_module
from fedwca.describe_problems import describe_unknown
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, DataError, InvalidConfig, UnknownComponent, UsageError
from fedwca.federated.extra_networks import grow_network
from fedwca.results.checkpoints import Checkpoints, NoWholeCheckpoint
from fedwca.results.diverged_runs import describe_divergence
from fedwca.results.find_runs import find_run
from fedwca.results.method_names import find_spelling
from fedwca.results.read_run import read_run
from fedwca.results.read_run_files import read_configuration, trained_clients
from fedwca.results.run_identity import run_identity
from fedwca.results.saved_checkpoint import SavedCheckpoint
from fedwca.results.trial_key import TrialKey
from fedwca.results.unit import Unit
from fedwca.runs.load_data import build_network, load
from fedwca.runs.missing_plugins import naming_missing_plugins
from fedwca.runs.opened_run import OpenedRun
from fedwca.runs.resources.choose_device import has_device, resolve_device
from fedwca.runs.resources.select_kernels import restore_kernels
from fedwca.runs.resuming.checkpointer import OUTSIDE_ROW, read_round_state
from fedwca.runs.resuming.how_to_continue import say_how_to_continue
from fedwca.runs.run_images import check_same_digest, locate_paths
from fedwca.warn_caller import warn_caller


def open_run(
    run: str | Path,
    method: str | None = None,
    source_model: int = 0,
    trial: int = 0,
    round: int | None = None,
    *,
    download: bool = True,
) -> OpenedRun:
    """Open a run's saved models, without any training and without reading an image before one is needed.

    Args:
        run: run folder, or its name in ``runs/``.
        method: name of a method of the run; None: the composed one or, without one, the last.
        source_model: index of the source model, from 0.
        trial: index of the trial, from 0.
        round: number of rounds after which the models are taken; None: the round that was selected on validation images
            and is shown in the table, if it is saved, else the last saved one.
        download: whether images that are not on this machine may be downloaded; False for run folders of others, which
            may name any data set of the Hugging Face hub.

    Warns:
        UserWarning: the method is unfinished or diverged, so its last saved round is opened; or the run does not store
            its class names, as those of 0.1.0, and its images have changed.

    Raises:
        UsageError: no such run, method, source model, trial or round.
        CheckpointError: its checkpoints were not kept, or the requested one is damaged.
        FedwcaError: its files cannot be read.
    """
    path = find_run(run)
    about = read_configuration(path)
    with naming_missing_plugins(path):
        config = validate(about["config"])
    config = locate_paths(config, about, path)
    if not has_device(config.device):
        config = config.model_copy(update={"device": "auto"})
    device = resolve_device(config.device)
    if config.precision == "tf32" and not device.startswith("cuda"):
        config = config.model_copy(update={"precision": "fp32"})  # models are saved in fp32
    config = config.model_copy(update={"kernels": restore_kernels(config.kernels, device)})
    unit = _unit(path, list(about["methods"]), config, method, source_model, trial)
    store = Checkpoints(path, run_identity(about))
    newest, saved = _load_kept(store, path, unit, round)
    selected, tensors = newest.selected if round is None else None, saved.tensors()
    classes = tuple(about.get("classes", ())) or _classes_of_images(config, about, path, download)
    with naming_missing_plugins(path):
        model = architecture(config)
        network = build_network(config, len(classes), pretrained=False)
        parts = _trained_parts(about["methods"][unit.method])
    network = grow_network(network, parts, config.seed, sizes=len(model.size_variants))
    layout = Layout.of(network)
    layout.write(network, tensors["source"])
    _fill_outside_row(network, layout, tensors, saved.path)
    network.eval()
    point, bank = read_round_state(saved, trained_clients(about), layout.width, device)
    last = max(newest.round, *(store.round_of(file) for file in store.files(unit)))
    opened = OpenedRun(
        path, about, config, unit, point, bank, model, network, layout, classes, last, selected, download
    )
    if not opened.finished and round is None:
        finished_rounds = newest.round + 1
        divergence = read_run(path).diverged.get(unit.method, {}).get(TrialKey(source_model, trial))
        state = f"{finished_rounds} of {opened.rounds} rounds are done" if finished_rounds else "no round of it is done"
        reason = describe_divergence(divergence) if divergence else "is unfinished"
        warn_caller(f"{path}: {opened.label} {reason}; {state}, and these are opened")
    return opened


def _classes_of_images(config: RunConfig, about: Mapping[str, Any], path: Path, download: bool) -> tuple[str, ...]:
    """Class names of a run of 0.1.0, which does not store them: those of its data set as it is now.

    Where their number has changed, the checkpoint's classifier does not fit, and the run is refused.

    Warns:
        UserWarning: the images have changed since; 0.1.0 also read some files in other ways.
    """
    dataset, _ = load(config, pretrained=False, download=download)
    try:
        check_same_digest(dataset, about, path)
    except DataError:
        warn_caller(
            f"{path}: does not store its class names, and its images, or how they are read, are not as when it began; "
            f"the names are those of {dataset.name} as it is now",
        )
    return dataset.classes


def _fill_outside_row(network: Network, layout: Layout, saved: Mapping[str, Tensor], path: Path) -> None:
    """Copy a checkpoint's tensors that are in no row, such as a frozen backbone, into a network.

    Raises:
        CheckpointError: one is missing, has no place in the network, or does not fit, as with another version of the
            plugin that the architecture comes from.
    """
    state = network.state_dict()
    tensors = {slot.name: state[slot.name] for slot in layout.slots}
    tensors |= {
        name.removeprefix(OUTSIDE_ROW): tensor for name, tensor in saved.items() if name.startswith(OUTSIDE_ROW)
    }
    fill_module(network, tensors, path)


def _trained_parts(method_entry: Mapping[str, Any]) -> list[Adaptation | Objective]:
    """A method's adaptation and objectives, built from its entry in ``config.json``; see `Method.trained`."""
    parts: list[Adaptation | Objective] = []
    for component in method_entry["components"]:
        kind, spec = component["kind"], {key: value for key, value in component.items() if key != "kind"}
        if kind == "adaptation":
            parts.append(registry_of(kind).build(spec))
        elif kind == "objective":
            # An objective that is no longer installed is left out. If it had trained an extra network, reading the
            # checkpoint fails because the model does not fit.
            with suppress(UnknownComponent, InvalidConfig):
                parts.append(registry_of(kind).build(spec))
    return parts


def _unit(path: Path, names: list[str], config: RunConfig, method: str | None, source_model: int, trial: int) -> Unit:
    """The requested unit.

    Raises:
        UsageError: the run has no such method, source model or trial.
    """
    name = names[-1] if method is None else find_spelling(names, method)
    if name is None:
        raise UsageError(f"{path}: {describe_unknown('method', str(method), names)}")
    for kind, number, count in (
        ("source model", source_model, config.source_models),
        ("trial", trial, config.trials),
    ):
        if not 0 <= number < count:
            raise UsageError(f"{path}: no {kind} {number}; the run has {count}, counted from 0")
    return Unit(source_model, trial, name)


def _load_kept(
    store: Checkpoints, path: Path, unit: Unit, round: int | None
) -> tuple[SavedCheckpoint, SavedCheckpoint]:
    """As `_kept`, followed by the checkpoint that is opened, with its tensors, see `open_run`."""
    while True:
        files = store.files(unit)
        try:
            newest = _kept(store, path, unit, round)
            selected = newest.selected if round is None else None
            saved = (store.at(unit, selected.round) if selected else None) or newest
            return newest, saved.load()
        except CheckpointError:
            # A run that goes on removes files as it saves others, also such as are just being read. Each repeat needs
            # another round to have been saved, so there are at most as many as rounds.
            if store.files(unit) == files:
                raise


def _kept(store: Checkpoints, path: Path, unit: Unit, round: int | None) -> SavedCheckpoint:
    """A unit's checkpoint after a number of rounds; None: its newest one."""
    if round is not None:
        file = store.path_of(unit, round - 1)
        if not file.is_file():
            kept_rounds = ", ".join(str(int(kept_file.stem)) for kept_file in reversed(store.files(unit))) or "none"
            raise UsageError(
                f"{path}: no checkpoint of {unit.method} after round {round}; those that are kept: {kept_rounds}"
            )
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
        hint = "" if read_run(path).state == "done" else f", or {say_how_to_continue(path)}"
        raise CheckpointError(
            f"{path}: no checkpoint of {unit.method} (source model {unit.source_model}, trial {unit.trial}) is kept; "
            f"run it again with --keep last{hint}"
        )
    return saved
