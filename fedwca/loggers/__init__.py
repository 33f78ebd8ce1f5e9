"""Loggers by name: where a run's numbers go besides its folder; each file beside this one is one of them."""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.registry import Component, Registry

Record = Mapping[str, Any]
Log = Callable[[Record], None]
"""Takes one line of ``rounds.jsonl`` as it comes."""


@dataclass(frozen=True)
class RunEnd:
    """What a run came to."""

    accuracies: Mapping[str, Mapping[str, float]]
    """By method: percent by `title`, for each of its runs that came to an end."""
    pictures: Mapping[str, Any]
    """By name, uint8 arrays ``[H, W, 3]``: the overview, and the confusion of the composed method where its models are
    kept."""

    @property
    def means(self) -> dict[str, float]:
        """Each method's mean over its runs."""
        return {name: sum(found.values()) / len(found) for name, found in self.accuracies.items() if found}


@dataclass(frozen=True)
class LogSession:
    """What a logger does with a run."""

    record: Log
    end: Callable[[RunEnd], None] = lambda end: None
    """Called once, before the session is left, where the run came to its end."""


class Logger(Component):
    """Sends a run's numbers to a tracking library, while it goes on."""

    library: ClassVar[str] = ""
    """Module it needs; empty: none."""
    extra: ClassVar[str] = ""
    """The extra of fedwca that installs it."""

    def ready(self) -> None:
        """Find out before any work whether the library is there.

        Raises:
            UsageError: it is not; names the extra.
        """
        try:
            importlib.import_module(self.library or __name__)
        except ImportError:
            how = f"pip install 'fedwca[{self.extra}]'" if self.extra else f"install {self.library}"
            raise UsageError(f"--logger {self.name} needs {self.library}: {how}") from None

    @abstractmethod
    def open(self, run: Path, config: Mapping[str, Any]) -> AbstractContextManager[Log | LogSession]:
        """A session: entered before the first round, left after the last or when the run stops.

        Args:
            run: the run folder; a continued run comes with the same one.
            config: the resolved configuration as plain values.

        Returns:
            A context manager that gives a function to be called with every record, or a `LogSession`, which is told of
            the end too.
        """


def series(record: Record) -> dict[str, float]:
    """A record's numbers by name: means over clients, and values of the whole round; what is not finite is left out.

    >>> series({"method": "wca", "source_model": 0, "trial": 0, "round": 1, "accuracy": [50.0, 70.0], "passes": 8})
    {'accuracy': 60.0, 'passes': 8.0}
    """
    found: dict[str, float] = {}
    for name, value in record.items():
        if name in ("schema", "method", "source_model", "trial", "round", "labels"):
            continue
        if isinstance(value, Mapping):  # in which such names are others: the seconds of a round
            found |= series({f"{name}/{part}": number for part, number in value.items()})
            continue
        values = [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, int | float)]
        if known := [v for v in values if math.isfinite(v)]:
            found[name] = float(sum(known) / len(known))
    return found


def title(record: Record) -> str:
    """Whose numbers a record holds: the method, and source model and trial.

    >>> title({"method": "wca", "source_model": 0, "trial": 1})
    'wca/0-1'
    """
    return f"{record['method']}/{record['source_model']}-{record['trial']}"


def plain_settings(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """A configuration as one table of plain values by dotted key, for libraries that take no others.

    >>> plain_settings({"seed": 3, "source": None, "training": {"lr": 0.1}, "baselines": ["local", "fedavg"]})
    {'seed': 3, 'training.lr': 0.1, 'baselines': 'local, fedavg'}
    """
    found: dict[str, bool | int | float | str] = {}
    for key, value in flatten_keys(config):
        if isinstance(value, list | tuple):
            found[key] = ", ".join(map(str, value))
        elif value is not None:
            found[key] = value if isinstance(value, bool | int | float) else str(value)
    return found


loggers: Registry[Logger] = Registry("logger", __name__, requires=("open",))
register = loggers
