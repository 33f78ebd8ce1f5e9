"""How ranks set out together: rank 0 says what is to be done, and each sees that it would do the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedwca._version import __version__
from fedwca.engine.precision import products
from fedwca.engine.ranks import World
from fedwca.errors import DataError, FedwcaError
from fedwca.experiments.bench import bench
from fedwca.experiments.checkpoint import Kept, finished
from fedwca.experiments.compose import compose
from fedwca.experiments.config import RunConfig, validate
from fedwca.experiments.setup import load, resolve_device
from fedwca.experiments.teams import TeamShare
from fedwca.results.checkpoints import Saved, Unit
from fedwca.round import Method


@dataclass(frozen=True)
class Sent(Saved):
    """A checkpoint whose tensors came with it."""

    values: Mapping[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, on the CPU."""
        return dict(self.values)


VERSIONS = {"fedwca": __version__, "torch": torch.__version__}


def left(
    config: RunConfig, methods: Sequence[tuple[Method, int]], begun: Mapping[Unit, Saved | None]
) -> dict[Unit, int]:
    """Units that no earlier process finished, with their rounds, in the order in which a bench does them."""
    units = {
        Unit(index, trial, method.name): rounds
        for index in range(config.source_models)
        for trial in range(config.trials)
        for method, rounds in methods
    }
    return {unit: rounds for unit, rounds in units.items() if not finished(begun, unit, rounds)}


def lead(world: World, config: RunConfig, methods: Sequence[tuple[Method, int]], keeper: Kept, digest: str,
         asked: int | None) -> TeamShare:  # fmt: skip
    """Rank 0's share; tells the others what to do.

    Args:
        world: all ranks.
        config: what is to be run.
        methods: with their rounds.
        keeper: knows what an earlier process did, and keeps what this one does.
        digest: of the images.
        asked: ranks that share a trial's clients.
    """
    units = left(config, methods, keeper.begun)
    begun = {
        unit: Sent(saved.path, saved.round, saved.facts, saved.tensors()) if saved and unit in units else saved
        for unit, saved in keeper.begun.items()
    }
    opening = {"config": config.model_dump(mode="json"), "begun": begun, "asked": asked}
    world.everyone.give({**opening, "digest": digest, "versions": VERSIONS})
    return TeamShare(world, units, asked, keeper.checkpoints)


def follow(world: World) -> None:
    """Any other rank's share, from beginning to end.

    Raises:
        FedwcaError: it would not do the same as rank 0.
        RankFailed: another rank cannot go on.
    """
    opening: dict[str, Any] = world.everyone.give(None)
    if not opening:  # the run is finished
        return
    for name, version in opening["versions"].items():
        if VERSIONS[name] != version:
            here = f"{name} {VERSIONS[name]} is installed here"
            raise FedwcaError(f"{here}, {version} on rank 0; all ranks need the same")
    config = validate(opening["config"])
    methods = compose(config)
    dataset, source = load(config)
    if dataset.digest() != opening["digest"]:
        raise DataError(f"the images of {dataset.name} here are not those of rank 0; all ranks need the same")
    units = left(config, methods, opening["begun"])
    share = TeamShare(world, units, opening["asked"])
    with products(config.precision, resolve_device(config.device)):
        share.followed(bench(config, methods, dataset, source, share.told(), Kept(share, opening["begun"]), share))
