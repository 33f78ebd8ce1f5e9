"""Assigns images to the clients of a trial; each source model and trial has its own seed and split."""

from __future__ import annotations

from fedwca.config.build_component import build_partition
from fedwca.config.run_config import RunConfig
from fedwca.core.component_answers import describe_value
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import Federation
from fedwca.engine.randomness import fold_key
from fedwca.errors import UsageError
from fedwca.partitions import ClientSettings
from fedwca.runs.watch_draws import watch_draws


def split_trial(
    config: RunConfig,
    dataset: FederatedDataset,
    domain: str | None,
    index: int,
    trial: int,
    warned: set[str] | None = None,
) -> Federation:
    """The clients of trial ``trial`` with source model ``index``; the same for every method.

    Args:
        config: number of clients and trials.
        dataset: see `fedwca.runs.load_data.load`.
        domain: name of the source or target domain; None: the partition has neither.
        index: of the source model.
        trial: number of the trial.
        warned: partitions that were already warned of; extended in place.

    Raises:
        UsageError: more clients than images, or the partition gives no federation.

    Warns:
        UserWarning: the partition draws from a global random generator.
    """
    seed = fold_key([config.seed + index, trial, "partition"]) >> 1
    published = config.split == "published"
    settings = ClientSettings(
        config.clients, config.samples, seed, published, new_clients=config.new_clients, validation=config.validation
    )
    partition = build_partition(config)
    with watch_draws(f"partition {partition.name!r}", warned):
        federation: object = partition(dataset, domain, settings)
    if not isinstance(federation, Federation):
        raise UsageError(f"partition {partition.name!r} gave {describe_value(federation)}; right is a Federation")
    return federation


class TrialSplits:
    """The clients of each trial of a run; those of the first trial, which are needed before round 1, are cached.

    Args:
        config: number of clients and trials.
        dataset: see `fedwca.runs.load_data.load`.
        domain: name of the source or target domain; None: the partition has neither.
    """

    def __init__(self, config: RunConfig, dataset: FederatedDataset, domain: str | None) -> None:
        self.config, self.dataset, self.domain = config, dataset, domain
        self._first: Federation | None = None
        self._warned: set[str] = set()

    def first(self) -> Federation:
        """The clients of source model 0, trial 0; cached until `take` returns them.

        Raises:
            UsageError: more clients than images.
        """
        if self._first is None:
            self._first = split_trial(self.config, self.dataset, self.domain, 0, 0, self._warned)
        return self._first

    def take(self, index: int, trial: int) -> Federation:
        """The clients of a trial for its rounds; not cached, so that the images are freed after the rounds."""
        if (index, trial) != (0, 0):
            return split_trial(self.config, self.dataset, self.domain, index, trial, self._warned)
        federation, self._first = self.first(), None
        return federation

    def forget(self) -> None:
        """Drop the cached first trial, which has nothing left to do."""
        self._first = None
