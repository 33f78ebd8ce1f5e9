"""Old names that still work; using one warns of its new name and of the version that removes the old one."""

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
"""The version that removes the old names: two minor versions after the last one that renamed any."""


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that an old name was used; ``stacklevel`` as of ``warnings.warn``, by default the caller's caller."""
    message = f"{old} is now {new}; the old name goes in fedwca {GONE_IN}"
    warnings.warn(message, FutureWarning, stacklevel=stacklevel)


def forward_names(module: str, renamed: Mapping[str, str], stacklevel: int = 3) -> Callable[[str], Any]:
    """Make a module's ``__getattr__`` that forwards names which were renamed or have moved.

    Args:
        module: dotted name of the module that gets the ``__getattr__``.
        renamed: old name to the new one, dotted, starting with the package.
        stacklevel: of the warning; one more where the module's ``__getattr__`` calls the function.

    Returns:
        The function; it raises ``AttributeError`` for a name that is not in ``renamed``.
    """

    def get(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new_module, _, new_name = renamed[name].rpartition(".")
        warn_renamed(f"{module}.{name}", renamed[name], stacklevel)
        return getattr(importlib.import_module(new_module), new_name)

    return get


MODULES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "fedwca.cli.reporter": ("fedwca.cli.console_reporter", {}),
    "fedwca.checkpoints": ("fedwca.core.tensor_files", {"fill": "fill_module"}),
    "fedwca.export.load": ("fedwca.export.load_model", {}),
    "fedwca.kinds": ("fedwca.core.interfaces", {}),
    "fedwca.network": ("fedwca.core.network", {"Architecture": "fedwca.core.architecture.Architecture"}),
    "fedwca.newcomers.federation": (
        "fedwca.newcomers.load_federation",
        {"ClusterAssignment": "fedwca.newcomers.choose_cluster.ClusterAssignment"},
    ),
    "fedwca.results.run_folder": (
        "fedwca.results.write_run",
        {"read_records": "fedwca.results.read_run_files.read_records"},
    ),
    "fedwca.round": (
        "fedwca.federated.round",
        {
            "Turn": "fedwca.federated.open_round.OpenRound",
            "begin": "init_server",
            "prepare": "fedwca.federated.open_round.open_round",
            "conclude": "fedwca.federated.close_round.close_round",
            "play": "run_round",
            "attendance": "fedwca.federated.participation.sample_clients",
            "source_for": "fedwca.federated.server.offer_source",
        },
    ),
    "fedwca.source": (
        "fedwca.federated.source_model",
        {"split": "split_source", "digest": "source_digest", "checkpoint": "load_source", "Source": "StartModel"},
    ),
    "fedwca.types": ("fedwca.core.messages", {}),
}
"""Old module to its new module, and to the new names of what was renamed (a dotted name is in another module)."""


class OldModules(MetaPathFinder, Loader):
    """Import hook that makes the moved modules under their old names; all public names are forwarded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The import spec of an old module, None for any other; called by ``importlib``."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the old module a forwarding ``__getattr__``; the new module is imported on first access."""
        old_module = module.__name__
        new_module, renamed = MODULES[old_module]

        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {old_module!r} has no attribute {name!r}")
            other_module, _, new_name = renamed.get(name, name).rpartition(".")
            value = getattr(importlib.import_module(other_module or new_module), new_name)
            warn_renamed(old_module, other_module or new_module)
            return value

        module.__doc__ = f"Old name of `{new_module}`."
        module.__getattr__ = get  # type: ignore[method-assign]


def forward_modules() -> None:
    """Make the moved modules importable under their old names."""
    sys.meta_path.append(OldModules())


MEMBERS: Mapping[str, Mapping[str, str]] = {
    "Aggregator": {
        "travels": "sends_models",
        "expected": "expected_reports",
        "first": "first_groups",
        "learn": "next_state",
    },
    "Objective": {"declares": "upload_bounds"},
    "DatasetSource": {
        "counts": "image_counts",
        "where": "origin",
        "default_source": "default_domain",
        "there": "available_domains",
        "missing": "missing_files_error",
        "folder": "root_folder",
        "first_domain": "find_default_domain",
        "place": "locate",
        "compare": "compare_with_published",
        "verify": "verify_checksums",
    },
    "Architecture": {"stored": "stored_side"},
    "Backbone": {"width": "out_features", "together": "forward_stacked"},
    "Logger": {"ready": "check_installed"},
}
"""By base class: old name of what a component may override, to its name since 0.2."""


def describe_old_member(cls: type) -> str:
    """What a class defines under its old name, where nothing would read it, and the new name; empty: nothing.

    >>> class Aggregator: ...
    >>> Aggregator.__module__ = "fedwca.core.aggregator"
    >>> class Mine(Aggregator):
    ...     learn = None
    >>> describe_old_member(Mine)
    'Mine.learn has been called next_state since fedwca 0.2; rename it'
    """
    bases = (base.__name__ for base in cls.__mro__[1:] if base.__module__.startswith("fedwca."))
    renamed = {old: new for base in bases for old, new in MEMBERS.get(base, {}).items()}
    old = min(renamed.keys() & vars(cls).keys(), default="")
    return f"{cls.__name__}.{old} has been called {renamed[old]} since fedwca 0.2; rename it" if old else ""
