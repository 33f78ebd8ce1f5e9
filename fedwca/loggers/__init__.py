"""Loggers by name: where a run's numbers go besides its folder; each file beside this one is one of them."""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from fedwca.errors import UsageError
from fedwca.registry import Component, Registry

Record = Mapping[str, Any]
Log = Callable[[Record], None]
"""Takes one line of ``rounds.jsonl`` as it comes."""


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
    def open(self, run: Path, config: Mapping[str, Any]) -> AbstractContextManager[Log]:
        """A session: entered before the first round, left after the last or when the run stops.

        Args:
            run: the run folder; a continued run comes with the same one.
            config: the resolved configuration as plain values.

        Returns:
            A context manager that gives a function to be called with every record.
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
        if isinstance(value, Mapping):
            found |= {f"{name}/{part}": number for part, number in series(value).items()}
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


loggers: Registry[Logger] = Registry("logger", __name__, requires=("open",))
register = loggers
