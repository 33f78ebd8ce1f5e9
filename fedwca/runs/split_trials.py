"""Which images each client has in a trial: split anew for each source model and trial, by a seed of its own."""

from __future__ import annotations

from fedwca.config.compose_methods import component
from fedwca.config.run_config import RunConfig
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import Federation
from fedwca.engine.randomness import fold_key
from fedwca.partitions import ClientSettings


def split_trial(config: RunConfig, dataset: FederatedDataset, domain: str | None, index: int, trial: int) -> Federation:
    """The clients of one trial; the same for every method.

    Raises:
        UsageError: more clients than images.
    """
    seed = fold_key([config.seed + index, trial, "partition"]) >> 1
    published = config.split == "published"
    asked = ClientSettings(
        config.clients, config.samples, seed, published, new_clients=config.new_clients, validation=config.validation
    )
    found: Federation = component("partition", config.partition, config.components)(dataset, domain, asked)
    return found


class TrialSplits:
    """The clients of each trial of a run. Those of the first, which are looked at before round 1, are drawn once.

    Args:
        config: says how many clients and trials.
        dataset: see `fedwca.runs.load_data.load`.
        domain: name of the one domain that is unlike the others, the source or the target; None: there is none.
    """

    def __init__(self, config: RunConfig, dataset: FederatedDataset, domain: str | None) -> None:
        self.config, self.dataset, self.domain = config, dataset, domain
        self._first: Federation | None = None

    def first(self) -> Federation:
        """Source model 0, trial 0; kept until its rounds take it.

        Raises:
            UsageError: more clients than images.
        """
        if self._first is None:
            self._first = split_trial(self.config, self.dataset, self.domain, 0, 0)
        return self._first

    def take(self, index: int, trial: int) -> Federation:
        """Any of them, for its rounds: it is not kept here, so that its images go when they are done."""
        if (index, trial) != (0, 0):
            return split_trial(self.config, self.dataset, self.domain, index, trial)
        found, self._first = self.first(), None
        return found

    def forget(self) -> None:
        """Let the first one go: nothing is left to do on it."""
        self._first = None
