"""What a reader has who types the commands of a page (images, runs, plugins), and a folder where the commands run."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from fedwca.datasets.digits_mini import draw_domain
from fedwca.datasets.pacs import Pacs

from ..cli.conftest import call
from .pages import ROOT, commands, plugin_files

LOG = ROOT / "tests/docs/commands.json"
STOPPED = "runs/20260101-120000-000-wca"
RUNS = ("RUN", "runs/first", "runs/second", "runs/short", "runs/long", "runs/one", "runs/another", STOPPED)
PICTURES = {"README", "models", "tutorial"}
"""Pages whose photos/ holds pictures without domains and classes."""
SMALL = {"--rounds": "2", "--epochs": "1", "--clients": "2", "--samples": "60"}
BENCHES = {"bench", "compare", "reproduce", "sweep"}
NEEDS = {
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    ".onnx": "onnxruntime",
    "parquet": "pyarrow",
    "hub:": "datasets",
}
"""Parts of a command's words, and the module of the extra that the command then needs."""


@dataclass(frozen=True)
class Command:
    """A command line of the docs."""

    page: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(("fedwca", *self.words[:9]))

    @property
    def line(self) -> str:
        return shlex.join(("fedwca", *self.words))

    @property
    def where(self) -> str:
        """The page, relative to the repository."""
        return self.page.relative_to(ROOT).as_posix()

    @property
    def out(self) -> str | None:
        """The output that ``--out`` names."""
        return self.words[self.words.index("--out") + 1] if "--out" in self.words else None

    @property
    def missing(self) -> list[str]:
        """Modules of extras that are not installed here."""
        modules = {module for sign, module in NEEDS.items() if any(sign in word for word in self.words)}
        modules |= {"optuna"} if self.words[0] == "sweep" else set()
        return [module for module in sorted(modules) if importlib.util.find_spec(module) is None]

    @property
    def appended(self) -> list[str]:
        """Options that make the run small, or that answer its question.

        Sizes in the command line are kept, except the tries and rounds of a search; the device is always the CPU.
        """
        if self.words[:2] == ("runs", "rm"):
            return ["--yes"]
        if self.words[0] not in BENCHES or "sfda-table4" in self.words:  # for that table nothing is run
            return []
        new_clients = any(word.startswith("upfl") for word in self.words)
        sizes = {name: value for name, value in SMALL.items() if name != "--clients" or not new_clients}
        extra = [part for name, value in sizes.items() if name not in self.words for part in (name, value)]
        if new_clients:  # nothing is trained before the rounds, and every class needs a shard
            extra += [] if self.words[0] != "sweep" else ["--tries", "2", "--rounds", "2"]
            return [*extra, "--source-models", "1", "--clients", "5", "--device", "cpu"]
        if "--target" not in self.words:
            extra += ["--set", "source_training.epochs=1", "--device", "cpu"]
        else:
            extra += ["--device", "cpu"]
            named_methods = self.words[0] == "compare" or "--baseline" in self.words  # none that trains at one place
            extra += [] if named_methods else ["--set", "central_training.epochs=1"]
            extra += [] if "finish_training" in " ".join(self.words) else ["--set", "finish_training.epochs=1"]
        if "sfda" in self.words and "--preset" in self.words:
            extra += ["--model", "lenet"]
        if {"paper", "sfda"} & set(self.words) or self.words[0] == "reproduce":
            extra += ["--source-models", "1", "--trials", "1"]
        if self.words[0] == "sweep":
            extra += ["--tries", "2"]
        text = " ".join(self.words)
        if "pacs" in self.words or self.words[:2] in (("reproduce", "table11"), ("reproduce", "figure5")):
            extra += [] if "side=" in text else ["--set", "model.resnet18.side=32"]
            extra += [] if "weights=" in text else ["--set", "model.resnet18.weights=none"]
        return extra

    @property
    def short(self) -> bool:
        """Whether it takes seconds at most if the runs are there already."""
        if self.page.stem == "models" or "lean" in self.words:  # test_models.py runs that page; plugins need a process
            return False
        if self.words[0] in {"export", "predict", "join", "plot"} and "--list" not in self.words:
            return False
        return self.words[0] not in BENCHES or "--dry-run" in self.words


# Commands of deployments are processes that do not end: tests/deploy runs them, with Flower in its own environment.
DEPLOYMENT = {"deploy", "operate", "security"}
ALL = [Command(page, tuple(words)) for page, words in commands() if page.stem not in DEPLOYMENT]


@dataclass
class Done:
    """Result of a command."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass
class Place:
    """A folder in which the commands of one page run, each in a process of its own."""

    folder: Path
    results: dict[Command, Done] = field(default_factory=dict)

    def run(self, command: Command) -> Done:
        """Run a command once, after the earlier commands of its page that make what it names."""
        if command not in self.results:
            for earlier in ALL[: ALL.index(command)]:
                if earlier.page == command.page and earlier.out and earlier.out in command.words:
                    self.run(earlier)
            self.results[command] = self.process([*command.words, *command.appended])
        return self.results[command]

    def process(self, words: list[str]) -> Done:
        start = time.perf_counter()
        line = [sys.executable, "-m", "fedwca", *words]
        result = subprocess.run(
            line, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=280, check=False
        )
        return Done(result.returncode, result.stdout, result.stderr, time.perf_counter() - start)

    def environment(self) -> dict[str, str]:
        """Environment variables of a command: plugins are installed, no browser opens, and absent servers fail fast."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder / "plugins"), str(ROOT)]),
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")]),
            "COLUMNS": "120",
            "FEDWCA_DATA": str(self.folder / "DATA"),
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        }

    def anonymous(self, text: str) -> str:
        """The text with the paths of this machine replaced."""
        for path, name in ((self.folder, "."), (Path(os.environ["FEDWCA_CACHE"]), "CACHE"), (ROOT, "fedwca")):
            text = text.replace(str(path), name)
        return text

    def entry(self, command: Command) -> dict[str, object]:
        """A command and its result, for the log."""
        result = self.results[command]
        lines = self.anonymous(result.out + result.err).splitlines()
        return {
            "page": command.where,
            "command": command.line,
            "appended": shlex.join(command.appended),
            "exit_code": result.code,
            "seconds": round(result.seconds, 1),
            "output": [line.rstrip()[:160] for line in lines if line.strip()][-4:],
        }


def prepare(folder: Path, page: Path | None) -> None:
    """Fill a folder with what the pages refer to.

    Args:
        folder: an empty folder.
        page: the page whose commands will run; runs that they make themselves are left out. None: all runs are there.
    """
    images(folder)
    if page is not None and page.stem in PICTURES:
        shutil.rmtree(folder / "photos")
        (folder / "photos").mkdir()
        for index, pixels in enumerate(draw_domain("photo", 2).images):
            Image.fromarray(pixels).save(folder / "photos" / f"{index}.png")
    plugins(folder / "plugins")
    (folder / "bin").mkdir()
    for opener in ("xdg-open", "open"):
        (folder / "bin" / opener).write_text("#!/bin/sh\n")
        (folder / "bin" / opener).chmod(0o755)
    outputs = {command.out for command in ALL if command.page == page}
    words = {word for command in ALL if command.page == page for word in command.words}
    names = [name for name in RUNS if page is None or (name not in outputs and {name, Path(name).name} & words)]
    if names:
        runs(folder, names)


def images(folder: Path) -> None:
    """Write domains as archives and as folders, and two single files."""
    random = np.random.default_rng(0)

    def archive(path: Path, number: int, classes: int, names: list[str] | None = None, parts: bool = False) -> None:
        """Noise; the class decides which rows are brighter, the domain which channel."""
        pixels = random.integers(0, 60, (number, 32, 32, 3), dtype=np.uint8)
        labels = np.arange(number, dtype=np.int64) % classes
        pixels[..., len(path.stem) % 3] += 60
        for index, label in enumerate(labels):
            pixels[index, 3 * label : 3 * label + 3] += 100
        path.parent.mkdir(parents=True, exist_ok=True)
        published = {"part": np.arange(number, dtype=np.int64) % 4 // 3} if parts else {}
        np.savez(path, images=pixels, labels=labels, **({"classes": names} if names else {}), **published)

    for domain in ("day", "fog", "night"):
        archive(folder / "photos" / f"{domain}.npz", 60, 3, ["cat", "dog", "fox"])
    shutil.copytree(folder / "photos", folder / "collections/photos")
    for domain in ("photos", "drawings"):
        archive(folder / "my_domains" / f"{domain}.npz", 60, 3)
    for domain in ("mnist", "mnistm", "svhn", "synth", "usps"):
        archive(folder / "DATA/digit_five" / f"{domain}.npz", 120, 10, parts=True)
    for domain in Pacs.domains:
        for name in Pacs.classes:
            (folder / "DATA/pacs" / domain / name).mkdir(parents=True)
            for index in range(6):
                pixels = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "DATA/pacs" / domain / name / f"{index}.png")
    for alone in ("fashion_mnist", "mnist", "cifar10"):
        archive(folder / "DATA" / f"{alone}.npz", 240, 10)
    (folder / "data").symlink_to("DATA")
    digits = draw_domain("photo", 1).images
    np.savez(folder / "more.npz", images=digits)
    Image.fromarray(digits[0]).convert("L").resize((90, 60)).save(folder / "scan.png")


def plugins(folder: Path) -> None:
    """Install the plugins of the pages for authors."""
    info = folder / "docs_plugins-1.0.dist-info"
    info.mkdir(parents=True)
    for block in plugin_files(".py"):
        (folder / block.title).write_text(block.text)
    points: dict[str, dict[str, str]] = {"fedwca.models": {"mobilenet": "own_backbone:MobileNet"}}
    for block in plugin_files(".toml"):
        for group, entries in tomllib.loads(block.text)["project"]["entry-points"].items():
            points.setdefault(group, {}).update(entries)
    text = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in points.items()]
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: docs-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(text))


def runs(folder: Path, names: list[str]) -> None:
    """Make finished runs of these names: copies of one run but for a learning rate; the stopped one lacks a round."""
    small = "--source day --rounds 2 --epochs 1 --clients 4 --device cpu --keep all --baseline fedavg --json"
    size = ["--data", str(folder / "collections/photos"), *small.split(), "--set", "source_training.epochs=1"]
    for name in names:
        is_copy = name not in (names[0], "runs/another")
        if is_copy:
            shutil.copytree(folder / names[0], folder / name)
        else:
            result = call(
                "bench", *size, "--lr", "0.002" if name == "runs/another" else "0.003", "--out", str(folder / name)
            )
            assert result.code == 0, result.err
    if STOPPED in names:
        stopped = folder / STOPPED
        (stopped / "summary.json").unlink()
        lines = (stopped / "rounds.jsonl").read_text().splitlines(keepends=True)
        assert json.loads(lines[-1])["method"] == "wca"
        (stopped / "rounds.jsonl").write_text("".join(lines[:-1]))
        sorted((stopped / "checkpoints").glob("*-wca/*.safetensors"))[-1].unlink()
