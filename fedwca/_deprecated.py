"""Old names that still work: each says once what it is called now, and in which version it goes."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

GONE_IN = "0.4"
"""The version that drops the old names: two minor versions after the last one that renamed some."""


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that a name is an old one."""
    message = f"{old} is now {new}; the old name goes in fedwca {GONE_IN}"
    warnings.warn(message, FutureWarning, stacklevel=stacklevel)


def forward_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` for names that have moved.

    Args:
        module: dotted name of the module that asks.
        renamed: old name to its new one, dotted, from the package down.

    Returns:
        The function; it raises ``AttributeError`` for a name that never was.
    """

    def get(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = renamed[name].rpartition(".")
        warn_renamed(f"{module}.{name}", renamed[name])
        return getattr(importlib.import_module(home), new)

    return get


MODULES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "fedwca.cli.reporter": ("fedwca.cli.console_reporter", {}),
    "fedwca.checkpoints": ("fedwca.core.tensor_files", {"fill": "fill_module"}),
    "fedwca.kinds": ("fedwca.core.interfaces", {}),
    "fedwca.network": ("fedwca.core.network", {}),
    "fedwca.newcomers.federation": (
        "fedwca.newcomers.load_federation",
        {"ClusterAssignment": "fedwca.newcomers.choose_cluster.ClusterAssignment"},
    ),
    "fedwca.round": (
        "fedwca.federated.round",
        {
            "Turn": "OpenRound",
            "begin": "init_server",
            "prepare": "open_round",
            "conclude": "close_round",
            "play": "run_round",
            "attendance": "sample_clients",
            "source_for": "fedwca.federated.server.offer_source",
        },
    ),
    "fedwca.source": (
        "fedwca.federated.source_model",
        {"split": "split_source", "digest": "source_digest", "checkpoint": "load_source", "Source": "StartModel"},
    ),
    "fedwca.types": ("fedwca.core.messages", {}),
}
"""Module that has moved to where its content is, and what is called otherwise there (dotted: in another module)."""


class OldModules(MetaPathFinder, Loader):
    """Makes the modules that have moved when one is imported: everything public is where it went."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The old modules' alone; ``importlib`` asks."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module a ``__getattr__`` that forwards; its content is imported when first asked for."""
        old = module.__name__
        new, renamed = MODULES[old]

        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {old!r} has no attribute {name!r}")
            home, _, now = renamed.get(name, name).rpartition(".")
            found = getattr(importlib.import_module(home or new), now)
            warn_renamed(old, home or new)
            return found

        module.__doc__ = f"Old name of `{new}`."
        module.__getattr__ = get  # type: ignore[method-assign]


def forward_modules() -> None:
    """Let the modules that have moved be imported by their old names."""
    sys.meta_path.append(OldModules())
