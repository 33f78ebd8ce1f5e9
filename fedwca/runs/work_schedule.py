"""What one process does of a bench: all of it, or its share beside other ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.stacked import can_share_step
from fedwca.federated.source_model import StartModel
from fedwca.results.checkpoints import Unit
from fedwca.runs.clients_at_once import trials_at_once
from fedwca.runs.reporter import Progress
from fedwca.runs.select_engine import choose_engines
from fedwca.runs.source_models import Tell, source_models

Record = dict[str, Any]


class Schedule:
    """Everything, for a process on its own."""

    ranks: Mapping[str, int] | None = None
    """How many ranks there are and how many do a trial; None: this process is alone."""

    def mine(self, bundles: Sequence[Mapping[Unit, int]]) -> set[Unit]:
        """Which of the units that are left, each with its rounds, this process does; a bundle goes together."""
        return {unit for bundle in bundles for unit in bundle}

    def models(
        self, config: RunConfig, dataset: FederatedDataset, domain: str | None, progress: Tell
    ) -> list[StartModel]:
        """All source models."""
        return source_models(config, dataset, domain, progress)

    def trials_at_once(self, config: RunConfig, networks: Sequence[Network], clients: Sequence[ClientImages]) -> int:
        """Federations that go through each round together, see `fedwca.runs.clients_at_once.trials_at_once`.

        Args:
            config: of the run.
            networks: all source models.
            clients: of one federation.
        """
        number = trials_at_once(config, clients)
        return number if can_share_step(networks) else 1

    def engines(self, config: RunConfig, given: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
        """Engines for federations that go together, each of a source model and clients."""
        return choose_engines(config, given)

    def merged(self, records: Iterable[Record], keep: Callable[[Record], None], progress: Progress) -> Iterator[Record]:
        """All records of the run, each after it was kept."""
        for record in records:
            keep(record)
            yield record
