"""A cache of its own for each test of central training."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of central models; the cache is empty."""
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "centrals"
