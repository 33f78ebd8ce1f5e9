"""The part of a bench that one process runs: all of it, or a rank's share."""

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
from fedwca.results.unit import Unit
from fedwca.runs.reporter import Progress
from fedwca.runs.resources.clients_at_once import trials_at_once
from fedwca.runs.resources.select_engine import choose_engines
from fedwca.runs.source_models import Tell, source_models

Record = dict[str, Any]


class Schedule:
    """Schedule of a single process, which runs everything."""

    ranks: Mapping[str, int] | None = None
    """Number of ranks, and how many share a trial; None: this is the only process."""

    def mine(self, bundles: Sequence[Mapping[Unit, int]]) -> set[Unit]:
        """The units that this process runs, of the remaining ones with their rounds; a bundle is never divided."""
        return {unit for bundle in bundles for unit in bundle}

    def models(
        self, config: RunConfig, dataset: FederatedDataset, domain: str | None, progress: Tell
    ) -> list[StartModel]:
        """Train or load all source models."""
        return source_models(config, dataset, domain, progress)

    def trials_at_once(self, config: RunConfig, networks: Sequence[Network], clients: Sequence[ClientImages]) -> int:
        """Federations that go through each round together, see `fedwca.runs.resources.clients_at_once.trials_at_once`.

        Args:
            config: the run's configuration.
            networks: all source models.
            clients: images of the clients of one federation.
        """
        number = trials_at_once(config, clients)
        return number if can_share_step(networks) else 1

    def engines(self, config: RunConfig, given: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
        """Engines for federations that run together, each given by a source model and its clients' images."""
        return choose_engines(config, given)

    def merged(self, records: Iterable[Record], keep: Callable[[Record], None], progress: Progress) -> Iterator[Record]:
        """Yield all records of the run, each after ``keep`` has written it."""
        for record in records:
            keep(record)
            yield record
