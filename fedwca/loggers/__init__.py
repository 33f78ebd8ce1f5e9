"""Loggers by name, which send a run's numbers to tracking libraries; each other file of this folder is one logger."""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from fedwca.component import Component
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.registry import Registry

Record = Mapping[str, Any]
Log = Callable[[Record], None]
"""Called with each record of ``rounds.jsonl`` as soon as it is made."""


@dataclass(frozen=True)
class RunEnd:
    """The results of a finished run."""

    accuracies: Mapping[str, Mapping[str, float]]
    """By method, then by `curve_name` of each finished source model and trial: the final accuracy in percent."""
    pictures: Mapping[str, Any]
    """By name, uint8 arrays ``[H, W, 3]``: the overview, and the confusion matrix of the composed method if its models
    are kept."""

    @property
    def mean_accuracies(self) -> dict[str, float]:
        """Final accuracy of each method in percent, averaged over its source models and trials."""
        return {name: sum(by_run.values()) / len(by_run) for name, by_run in self.accuracies.items() if by_run}


@dataclass(frozen=True)
class LogSession:
    """The callbacks of a logger for one run."""

    on_record: Log
    on_end: Callable[[RunEnd], None] = lambda end: None
    """Called once if the run finishes, before the session is left."""


class Logger(Component):
    """Sends a run's numbers to a tracking library during the run."""

    library: ClassVar[str] = ""
    """Name of the module that the logger needs; empty: none."""
    extra: ClassVar[str] = ""
    """The extra of fedwca that installs the library."""

    def check_installed(self) -> None:
        """Check that the library is installed; called before a run starts.

        Raises:
            UsageError: it is not; names the extra.
        """
        try:
            importlib.import_module(self.library or __name__)
        except ImportError:
            command = f"pip install 'fedwca[{self.extra}]'" if self.extra else f"install {self.library}"
            raise UsageError(f"--logger {self.name} needs {self.library}: {command}") from None

    @abstractmethod
    def open(self, run: Path, config: Mapping[str, Any]) -> AbstractContextManager[Log | LogSession]:
        """Open a session, which is entered before the first round and left after the last or when the run stops.

        Args:
            run: the run folder; a continued run has the same one.
            config: the resolved configuration as plain values.

        Returns:
            A context manager whose value is a function that is called with every record, or a `LogSession`, whose
            ``on_end`` is called too.
        """


IDENTITY = ("schema", "method", "source_model", "trial", "round")
"""Fields of a record that say which one it is."""
MEANINGLESS = ("labels", "clustering/nearest", "probes/*/labels", "shift/before/*", "shift/after/*")
"""Names, as patterns, of lists whose mean says nothing: numbers of clusters or clients, and images by class."""


def scalars(record: Record) -> dict[str, float]:
    """Return a record's numbers by name: means over clients, and values of the round; non-finite ones are left out.

    ``adaptation/accuracy_before`` is of the clients that ``accuracy`` is of, so that the two can be compared.

    >>> scalars({"method": "wca", "source_model": 0, "trial": 0, "round": 1, "accuracy": [50.0, 70.0], "passes": 8})
    {'accuracy': 60.0, 'passes': 8.0}
    """
    if "accuracy" in record and "accuracy_before" in (adaptation := record.get("adaptation") or {}):
        pairs = zip(adaptation["accuracy_before"], record["accuracy"], strict=False)
        before = [value for value, after in pairs if after is not None and not math.isnan(after)]
        record = {**record, "adaptation": {**adaptation, "accuracy_before": before}}
    numbers: dict[str, float] = {}
    for name, value in record.items():
        if name in IDENTITY or any(fnmatchcase(name, pattern) for pattern in MEANINGLESS):
            continue
        if isinstance(value, Mapping):  # such as the seconds of a round; the prefix keeps names such as "round" in it
            numbers |= scalars({f"{name}/{part}": number for part, number in value.items()})
            continue
        values = [x for x in (value if isinstance(value, list | tuple) else [value]) if isinstance(x, int | float)]
        if finite := [x for x in values if math.isfinite(x)]:
            numbers[name] = float(sum(finite) / len(finite))
    return numbers


def curve_name(record: Record) -> str:
    """Return which curve a record belongs to: its method, source model and trial.

    >>> curve_name({"method": "wca", "source_model": 0, "trial": 1})
    'wca/0-1'
    """
    return f"{record['method']}/{record['source_model']}-{record['trial']}"


def plain_settings(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return a configuration as a flat table of plain values by dotted key, for libraries that take no nested values.

    >>> plain_settings({"seed": 3, "source": None, "training": {"lr": 0.1}, "baselines": ["local", "fedavg"]})
    {'seed': 3, 'training.lr': 0.1, 'baselines': 'local, fedavg'}
    """
    settings: dict[str, bool | int | float | str] = {}
    for key, value in flatten_keys(config):
        if isinstance(value, list | tuple):
            settings[key] = ", ".join(map(str, value))
        elif value is not None:
            settings[key] = value if isinstance(value, bool | int | float) else str(value)
    return settings


loggers: Registry[Logger] = Registry("logger", __name__, requires=("open",), base="fedwca.loggers.Logger")
register = loggers
