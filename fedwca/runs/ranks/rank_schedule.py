"""A bench on several ranks: the work of each rank, and how records and checkpoints get to rank 0."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.core.plain_values import to_plain
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages
from fedwca.engine.distributed.process_group import RankWorld, RankZeroChannel
from fedwca.engine.distributed.sharded_engine import ShardedEngine, without_other_images
from fedwca.engine.interface import TrialsInTurn
from fedwca.federated.source_model import StartModel
from fedwca.results.unit import Unit
from fedwca.runs.load_data import build_network
from fedwca.runs.reporter import Progress
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.select_engine import choose_engine
from fedwca.runs.resuming.checkpointer import CheckpointStore
from fedwca.runs.source_models import Tell, source_models
from fedwca.runs.work_schedule import Record, Schedule


class RankSchedule(Schedule):
    """The share of one rank: the units of its subgroup, and its part of their clients.

    A subgroup is a range of consecutive ranks. Its first rank sends records and checkpoints to rank 0, the only rank
    that writes files. All ranks must construct their schedule at the same time.

    Args:
        world: all ranks.
        per_trial: number of ranks that share a trial's clients, a divisor of the world's.
        keep: store where rank 0 saves checkpoints that other subgroups send.
    """

    def __init__(self, world: RankWorld, per_trial: int, keep: CheckpointStore | None = None) -> None:
        self.world, self.size, self._keep = world, per_trial, keep
        self.ranks = {"world": world.size, "per_trial": self.size}
        starts = range(0, world.size, self.size)
        subgroups = [world.subgroup(range(start, start + self.size)) for start in starts]
        self.subgroup = next(subgroup for subgroup in subgroups if subgroup is not None)
        self.leaders = [start for start in starts if start]
        self.leads = self.subgroup.index == 0
        self.channel = RankZeroChannel(world)
        self._stop: Exception | None = None
        self._warned = set[str]()

    def mine(self, bundles: Sequence[Mapping[Unit, int]]) -> set[Unit]:
        """See `Schedule.mine`; the units of this rank's subgroup."""
        return set(assign_trials(bundles, self.world.size // self.size)[self.world.rank // self.size])

    def models(
        self, config: RunConfig, dataset: FederatedDataset, domain: str | None, progress: Tell
    ) -> list[StartModel]:
        """See `Schedule.models`; ranks train the models in turn, and each is broadcast to all ranks."""
        all_ranks = self.world.everyone
        indices = range(self.world.rank, config.source_models, self.world.size)
        trained_models = dict(zip(indices, source_models(config, dataset, domain, progress, indices), strict=True))
        models = []
        for index in range(config.source_models):
            root, model = index % self.world.size, trained_models.get(index)
            payload = None if model is None else (model.network.state_dict(), model.accuracy, model.digest)
            state, accuracy, digest = all_ranks.broadcast_object(payload, root)
            if model is None:
                network = build_network(config, len(dataset.classes), pretrained=False)
                network.load_state_dict(state)
                model = StartModel(network.eval().to(resolve_device(config.device)), accuracy, digest)
            models.append(model)
        epochs = config.source_models * config.source_training.epochs
        progress(epochs, epochs, models[-1].accuracy)
        return models

    def trials_at_once(self, config: RunConfig, networks: Sequence[Network], clients: Sequence[ClientImages]) -> int:
        """See `Schedule.trials_at_once`; one if ranks share a trial's clients."""
        return super().trials_at_once(config, networks, clients) if self.size == 1 else 1

    def engines(self, config: RunConfig, given: Sequence[tuple[Network, Sequence[ClientImages]]]) -> TrialsInTurn:
        """See `Schedule.engines`; each engine holds this rank's part of the clients."""
        if self.size == 1:
            return super().engines(config, given)
        return TrialsInTurn(
            [
                ShardedEngine(
                    choose_engine(config, network, without_other_images(clients, self.subgroup)),
                    self.subgroup,
                    clients,
                )
                for network, clients in given
            ]
        )

    def end(self, unit: Unit) -> None:
        """Tell rank 0 that a unit has ended, for `Checkpoints.end`."""
        if self.leads:
            self.channel.send(("settled", unit))

    # --- messages to rank 0

    def save(self, unit: Unit, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], last: bool) -> None:
        """Send a checkpoint to rank 0, for `Checkpoints.save`."""
        if self.leads:
            self.channel.send(("point", (unit, round, dict(tensors), dict(facts), last)))

    def send_records(self, records: Iterable[Record]) -> None:
        """Iterate over this rank's records, which does the work; the first rank of a subgroup sends them to rank 0."""
        for record in records:
            if self.leads:
                self.channel.send(("record", to_plain(record)))
        if self.leads:
            self.channel.send(("end", None))

    def send_warning(self, text: str) -> None:
        """Send a Python warning to rank 0, which issues it; those of ranks that lead no subgroup are left out."""
        if self.leads:
            self.channel.send(("python warning", text))

    def sending_progress(self) -> Progress:
        """A progress object that sends ends of methods and warnings to rank 0."""
        if not self.leads:
            return Progress()
        return Progress(
            method_end=lambda label, accuracy: self.channel.send(("ended", (label, accuracy))),
            warn=lambda message: self.channel.send(("warning", message)),
        )

    def merged(self, records: Iterable[Record], keep: Callable[[Record], None], progress: Progress) -> Iterator[Record]:
        """See `Schedule.merged`; records of other subgroups come in between, in the order in which they arrive."""
        messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        lock = threading.Lock()

        def keep_locked(record: Record) -> None:
            with lock:
                keep(record)

        threads = [
            threading.Thread(target=self._take, args=(r, keep_locked, messages), daemon=True) for r in self.leaders
        ]
        for thread in threads:
            thread.start()
        for record in records:
            keep_locked(record)
            yield record
            yield from self._news(messages, progress)
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.05)
            yield from self._news(messages, progress)
        yield from self._news(messages, progress)

    def _take(self, rank: int, keep: Callable[[Record], None], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
        """Thread body: receive what one rank sends, until it ends."""
        kind = ""
        try:
            while kind != "end":
                kind, value = self.channel.receive(rank)
                if kind == "point" and self._keep is not None:
                    self._keep.save(*value)
                elif kind == "settled" and self._keep is not None:
                    self._keep.end(value)
                elif kind == "record":
                    keep(value)
                messages.put((kind, value if kind != "point" else None))
        except Exception as error:  # raised again by the main thread, see `_news`
            self._stop = error

    def _news(self, messages: queue.SimpleQueue[tuple[str, Any]], progress: Progress) -> Iterator[Record]:
        while not messages.empty():
            match messages.get():
                case "record", record:
                    progress.other_rounds(record["round"] >= 0)
                    yield record
                case "ended", (label, accuracy):
                    progress.method_end(label, accuracy)
                case "python warning", text:
                    warnings.warn(text, stacklevel=1)
                case "warning", message if message not in self._warned:
                    self._warned.add(message)
                    progress.warn(message)
        if self._stop is not None:
            raise self._stop
        self.world.check()


def assign_trials(bundles: Sequence[Mapping[Unit, int]], subgroups: int) -> list[list[Unit]]:
    """Units of each subgroup: each bundle in turn goes to the subgroup with the fewest rounds so far.

    >>> a, b, c, d = (Unit(0, 0, name) for name in "abcd")
    >>> [[unit.method for unit in some] for some in assign_trials([{a: 5}, {b: 10}, {c: 2, d: 2}], 2)]
    [['a', 'c', 'd'], ['b']]
    """
    assigned: list[list[Unit]] = [[] for _ in range(subgroups)]
    rounds = [0] * subgroups
    for bundle in bundles:
        subgroup = rounds.index(min(rounds))
        assigned[subgroup].extend(bundle)
        rounds[subgroup] += sum(bundle.values())
    return assigned
