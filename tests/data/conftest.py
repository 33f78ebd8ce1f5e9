from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test its own folders for cache and data, instead of the user's."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("FEDWCA_CACHE", str(home / "cache"))
    monkeypatch.setenv("FEDWCA_DATA", str(home / "data"))
    return home
