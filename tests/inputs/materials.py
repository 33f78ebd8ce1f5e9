"""Valid data, runs, models and settings that faulty ones are made from; created once."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..fork_server import CommandLine, ForkServer
from ..shades import write_shades

SMALL = [
    "--clients", "1", "--samples", "20", "--rounds", "1", "--epochs", "1", "--batch-size", "16", "--device", "cpu",
    "--baseline", "none", "--set", "source_training.epochs=0", "--set", "model.bottleneck=4"
]  # fmt: skip
"""Options of a run that takes a second."""


@dataclass(frozen=True)
class Materials:
    """Folders and files that are not changed; cases copy them."""

    root: Path
    environment: dict[str, str]

    @property
    def shades(self) -> Path:
        """Three archives."""
        return self.root / "shades"

    @property
    def pictures(self) -> Path:
        """``<domain>/<class>/<image>``."""
        return self.root / "pictures"

    @property
    def run(self) -> Path:
        """A finished run of one method with two clients."""
        return self.root / "run"

    @property
    def model(self) -> Path:
        """An exported model."""
        return self.root / "model.safetensors"


def make_materials(root: Path, server: ForkServer) -> Materials:
    """Create all of them below a folder."""
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
        **{"FEDWCA_CACHE": str(root / "cache"), "COLUMNS": "200", "OMP_NUM_THREADS": "1", "TMPDIR": str(root)},
    }
    materials = Materials(root, environment)
    write_shades(materials.shades, images=24, side=16)
    random = np.random.default_rng(0)
    for domain in ("one", "two"):
        for label in ("circle", "square"):
            folder = materials.pictures / domain / label
            folder.mkdir(parents=True)
            for number in range(6):
                Image.fromarray(random.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    commands = [
        [
            "bench",
            "--data",
            str(materials.shades),
            *SMALL[:-2],
            "--set",
            "model.bottleneck=4",
            "--out",
            str(materials.run),
        ],
        ["export", str(materials.run), "--client", "0", "--out", str(materials.model)],
    ]
    (root / "made").mkdir()
    for words in commands:
        ended = server.run(CommandLine(words, str(root / "made"), environment))
        assert ended.code == 0, ended.err
    assert json.loads((materials.run / "summary.json").read_text())["complete"]
    return materials
