"""What one process does of a bench: all of it, or its share beside other ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.partition import ClientImages
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.stacked import can_share_step
from fedwca.federated.source_model import TrainedSource
from fedwca.results.checkpoints import Unit
from fedwca.runs.reporter import Progress
from fedwca.runs.select_engine import choose_engines, trials_at_once
from fedwca.runs.source_models import Tell, source_models

Record = dict[str, Any]


class Schedule:
    """Everything, for a process on its own."""

    ranks: Mapping[str, int] | None = None
    """How many ranks there are and how many do a trial; None: this process is alone."""

    def mine(self, bundles: Sequence[Mapping[Unit, int]]) -> set[Unit]:
        """Which of the units that are left, each with its rounds, this process does; a bundle goes together."""
        return {unit for bundle in bundles for unit in bundle}

    def models(self, config: RunConfig, dataset: FederatedDataset, domain: str, progress: Tell) -> list[TrainedSource]:
        """All source models."""
        return source_models(config, dataset, domain, progress)

    def trials_at_once(self, config: RunConfig, networks: Sequence[Network], clients: Sequence[ClientImages]) -> int:
        """Federations that go through each round together, see `fedwca.runs.select_engine.trials_at_once`.

        Args:
            config: of the run.
            networks: all source models.
            clients: of one federation.
        """
        number = trials_at_once(config, networks[0], clients)
        return number if can_share_step(networks) else 1

    def engines(self, config: RunConfig, given: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
        """Engines for federations that go together, each of a source model and clients."""
        return choose_engines(config, given)

    def merged(self, records: Iterable[Record], keep: Callable[[Record], None], progress: Progress) -> Iterator[Record]:
        """All records of the run, each after it was kept."""
        for record in records:
            keep(record)
            yield record


def per_trial(ranks: int, units: int, asked: int | None) -> int:
    """Ranks that share the clients of one method on one federation: trials first, clients with what is left.

    Args:
        ranks: in the world.
        units: methods with rounds, times source models, times trials.
        asked: by the user; divides ``ranks``.

    >>> [per_trial(8, units, None) for units in (1, 3, 8, 20)]
    [8, 4, 1, 1]
    """
    return asked or next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= max(1, units))


def together_at_most(ranks: int, federations: int, methods: int, asked: int | None) -> int:
    """The most federations that can go through rounds together and leave every rank something to do.

    Args:
        ranks: in the world.
        federations: source models times trials.
        methods: those with rounds.
        asked: ranks that share a trial's clients, as the user wants it.

    >>> [together_at_most(ranks, 15, 2, None) for ranks in (1, 2, 4, 64)]
    [15, 15, 7, 1]
    """
    if per_trial(ranks, federations * methods, asked) > 1:
        return 1
    return min(federations, max(1, federations * methods // ranks))
