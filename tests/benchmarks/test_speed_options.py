"""Options of pytest-benchmark in benchmarks/, where pyproject.toml disables it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from .scripts import script

conftest = script("conftest")


def config(**options: Any) -> Any:
    return SimpleNamespace(getoption=lambda name, default: options.get(name, default))


@pytest.mark.parametrize("name", ["save", "autosave", "compare", "compare_fail", "json"])
def test_times_are_kept_and_compared_only_where_they_are_measured(name: str) -> None:
    message = rf"^--benchmark-{name.replace('_', '-')} needs --benchmark-enable: nothing is timed$"
    with pytest.raises(pytest.UsageError, match=message):
        conftest.pytest_configure(config(benchmark_enable=False, **{f"benchmark_{name}": True}))
    conftest.pytest_configure(config(benchmark_enable=True, **{f"benchmark_{name}": True}))
    conftest.pytest_configure(config(benchmark_enable=False))
