"""Scripts in benchmarks/ as modules; that folder is not a package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    """Import ``benchmarks/<name>.py`` and return the module."""
    key = f"benchmark_{name.replace('/', '_')}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[key] = module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(BENCHMARKS))  # as when a script is run, since some scripts import others
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(BENCHMARKS))
    return sys.modules[key]
