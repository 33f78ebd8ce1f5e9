"""Command lines with something wrong in them, each drawn from a seed: the same seed gives the same case."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from ..fork_server import CommandLine
from .damage import change_json_file, odd_bytes, odd_text, toml_of, write_archive, write_model
from .materials import SMALL, Materials

OPTIONS = [
    "dataset", "data", "source", "checkpoint", "model", "clients", "samples", "rounds", "epochs", "lr",
    "batch-size", "trials", "participation", "batch-norm", "source-models", "seed", "device", "engine", "precision",
    "kernels", "workers", "trials-at-once", "aggregator", "clusterer", "pseudo-labeler", "objective", "preset",
    "config", "set", "baseline", "backend", "name", "out", "keep", "logger", "ranks-per-trial"
]  # fmt: skip
"""Of ``fedwca bench``."""
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "compare": (["METHOD"], ["reference", "source", "out", "format", "set", "clients"]),
    "sweep": (["METHOD"], ["param", "grid", "criterion", "tries", "out", "format"]),
    "reproduce": (["TABLE", "--dry-run"], ["dataset", "source", "row", "preset", "out", "format"]),
    "resume": (["RUN"], ["ranks-per-trial"]),
    "plot": (["RUN", "bars"], ["to", "format", "method", "source-model", "trial", "how", "dpi"]),
    "report": (["RUN"], ["out", "format"]),
    "runs show": (["RUN"], []),
    "runs diff": (["RUN", "RUN"], []),
    "runs export": (["RUN"], ["to", "out"]),
    "runs rm": (["RUN"], []),
    "runs": ([], ["root"]),
    "list": (["KIND"], []),
    "show": (["KIND", "NAME"], []),
    "data check": (["DATASET"], ["data"]),
    "data show": (["DATASET"], ["data", "out"]),
    "export": (
        ["RUN", "--client", "0"],
        ["out", "client", "cluster", "method", "to", "round", "trial", "source-model"],
    ),
    "predict": (["MODEL", "IMAGES"], ["out", "batch-size", "top", "device", "client", "method", "round"]),
    "join": (["RUN", "--data", "IMAGES"], ["method", "by", "adapt", "out", "source-model", "trial"]),
    "deploy init": (["DIR"], ["clients", "baseline", "deal", "rule", "top", "deadline", "wait", "host"]),
    "deploy run": (["DIR"], ["server", "timeout"]),
    "deploy key": (["DIR"], []),
    "server": (["DIR"], ["host", "port"]),
    "client": (["DIR", "--data", "IMAGES"], ["server", "number", "device", "clip", "noise", "tries"]),
}
"""Arguments and options of every other command."""
READ_ONLY = ("runs", "runs show", "runs diff", "data check", "predict", "export", "join", "list", "show")
"""Commands that leave a run folder as it is."""


@dataclass(frozen=True)
class Case:
    """A command line, and which files it must not change."""

    family: str
    command: CommandLine
    kept: tuple[str, ...] = ()
    """Files and folders, relative to the working directory, in which nothing may be changed."""


def make_case(seed: int, folder: Path, good: Materials) -> Case:
    """Write what the case needs into a new folder, and say what is run there."""
    random = Random(seed)
    folder.mkdir()
    family = random.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
    case = FAMILIES[family][1](random, folder, good)
    return replace(case, family=family)


def _line(words: list[str], folder: Path, good: Materials, **options: object) -> CommandLine:
    # The system allows no zero byte in a command line.
    words = [word.replace("\0", "") for word in words]
    return CommandLine(words, str(folder), good.environment, **options)  # type: ignore[arg-type]


def _bench(random: Random, good: Materials, *options: str) -> list[str]:
    return ["bench", "--data", str(good.shades), *SMALL, "--quiet", *options]


def _options(random: Random, folder: Path, good: Materials) -> Case:
    """One or two options of a bench with odd values."""
    arguments: list[str] = []
    for name in random.sample(OPTIONS, random.choice([1, 1, 2])):
        value = odd_text(random)
        if name == "set":
            kind = random.choice(["aggregator", "training", "model", "objective", "dataset", odd_text(random)])
            field = random.choice(["ta", "lr", "bottleneck", "root", "momentum", "nesterov", odd_text(random)])
            value = f"{kind}.{field}={value}"
        arguments += random.choice([[f"--{name}", value], [f"--{name}={value}"]])
    return Case("", _line(_bench(random, good, *arguments), folder, good))


def _place(random: Random, word: str, folder: Path, good: Materials) -> str:
    """An argument for a placeholder such as ``RUN``: one that fits, or an odd text."""
    if random.random() < 0.35:
        return odd_text(random)
    run_folder = folder / "run"
    if word == "RUN" and not run_folder.exists():
        shutil.copytree(good.run, run_folder)
    values = {
        "RUN": "run",
        "METHOD": random.choice(["fedavg", "local", "fedwca:ta=0.1"]),
        "TABLE": "table2",
        "KIND": random.choice(["aggregator", "baseline", "preset", "model"]),
        "NAME": random.choice(["wca", "fedwca", "paper", "lenet"]),
        "DATASET": random.choice(["folder", "shades", "digit-five"]),
        "MODEL": str(good.model),
        "IMAGES": str(good.pictures / "one"),
        "DIR": "made",
    }
    return values.get(word, word)


def _arguments(random: Random, folder: Path, good: Materials) -> Case:
    """Any other command with odd arguments and options."""
    name = random.choice(list(COMMANDS))
    arguments, options = COMMANDS[name]
    words = [*name.split(), *(_place(random, word, folder, good) for word in arguments)]
    if name in ("compare", "sweep"):
        small = [word for word in SMALL if word not in ("--baseline", "none")]
        words += ["--data", str(good.shades), *small]
        words += ["--param", f"training.lr={odd_text(random)}", "--tries", "1"] if name == "sweep" else []
    if name == "reproduce":
        words += ["--dataset", "digits-mini"]
    if name == "runs rm":
        words += ["--yes"]
    if name == "export":
        words += ["--out", "model.safetensors"]
    for option in random.sample(options, min(len(options), random.choice([0, 1, 2]))):
        words += [f"--{option}", odd_text(random)]
    if random.random() < 0.1:
        words.append(odd_text(random))
    return Case("", _line(words, folder, good), ("run",) if name in READ_ONLY else ())


def _config(random: Random, folder: Path, good: Materials) -> Case:
    """A configuration file that is wrong."""
    if random.random() < 0.5:
        file = folder / "settings.toml"
        file.write_text(toml_of(random), errors="backslashreplace")
    else:
        file = folder / "settings.json"
        shutil.copy(good.run / "config.json", file)
        change_json_file(random, file)
    if random.random() < 0.1:
        file.write_bytes(odd_bytes(random, file.read_bytes()))
    words = ["bench", "--config", file.name, "--data", str(good.shades), *SMALL, "--quiet"]
    return Case("", _line(words, folder, good), (file.name,))


def _archives(random: Random, folder: Path, good: Materials) -> Case:
    """Archives that are wrong, wherever data are read."""
    shutil.copytree(good.shades, folder / "data")
    for file in random.sample(sorted((folder / "data").iterdir()), random.choice([1, 1, 2])):
        write_archive(random, file)
    words = random.choice(
        [
            ["data", "check", "folder", "--data", "data"],
            ["data", "show", "folder", "--data", "data", "--out", "x.png"],
            ["bench", "--data", "data", *SMALL, "--quiet"],
            ["predict", str(good.model), "data"],
        ]
    )
    return Case("", _line(words, folder, good), ("data",))


def _pictures(random: Random, folder: Path, good: Materials) -> Case:
    """Folders of images with odd files and names."""
    root = folder / "data"
    shutil.copytree(good.pictures, root)
    for _ in range(random.choice([1, 2, 4])):
        with contextlib.suppress(OSError):  # an earlier change may have removed the file
            _change_pictures(random, root)
    words = random.choice(
        [
            ["data", "check", "folder", "--data", "data"],
            ["data", "show", "folder", "--data", "data", "--out", "x.png"],
            ["predict", str(good.model), "data"],
            ["predict", str(good.model), "data", "--out", "x.csv"],
            ["bench", "--data", "data", *SMALL, "--quiet"],
        ]
    )
    return Case("", _line(words, folder, good), ("data",))


def _change_pictures(random: Random, root: Path) -> None:
    chosen = random.choice(sorted(path for path in root.rglob("*.png") if path.is_file()) or [root / "x.png"])
    match random.randrange(8):
        case 0:
            chosen.write_bytes(odd_bytes(random, chosen.read_bytes()))
        case 1:
            name = os.fsdecode(b"a\xe7") + random.choice(["\x1b[31m", "\u202e", "=1", ""])
            chosen.with_name(f"{name}.png").touch()
        case 2:
            chosen.unlink()
            chosen.symlink_to(random.choice([chosen.name, "/dev/zero", "/etc/passwd", "nosuch"]))
        case 3:
            name = random.choice(["[b]", "=cmd", "a\nb", "$x^{$", "é", ".x", "x"])
            (chosen.parent.parent / name).mkdir()
        case 4:
            shutil.rmtree(chosen.parent)
        case 5:
            chosen.parent.rename(chosen.parent.with_name(random.choice(["\x1b[31m", "a b", "x" * 200, "[red]"])))
        case 6:
            suffix = random.choice([".jpg", ".gif", ".npz", ".PNG", ".webp"])
            chosen.with_suffix(suffix).write_bytes(chosen.read_bytes())
        case _:
            shutil.rmtree(root / random.choice(["one", "two"]))


def _runs(random: Random, folder: Path, good: Materials) -> Case:
    """Run folders that were edited or damaged."""
    run = folder / "runs" / "edited"
    shutil.copytree(good.run, run)
    for _ in range(random.choice([1, 1, 2])):
        files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
        weights = [4 if path.suffix in (".json", ".jsonl") else 1 for path in files]
        file = random.choices(files, weights)[0]
        draw = random.random()
        if draw < 0.1:
            file.unlink()
        elif draw < 0.15:
            file.unlink()
            file.mkdir()
        elif file.suffix in (".json", ".jsonl"):
            change_json_file(random, file)
        elif file.suffix == ".safetensors":
            write_model(random, file, file.read_bytes())
        else:
            file.write_bytes(odd_bytes(random, file.read_bytes()))
    edited = "runs/edited"
    shutil.copytree(good.run, folder / "runs" / "fine")
    words = random.choice(
        [
            ["runs"],
            ["runs", "--json"],
            ["runs", "show", edited],
            ["runs", "diff", edited, "runs/fine"],
            ["runs", "export", edited, "--out", "x.csv"],
            ["runs", "rm", edited, "--yes"],
            ["report", edited, "--out", "x.html"],
            ["report", edited, "runs/fine", "--format", random.choice(["md", "latex"])],
            [
                "plot",
                edited,
                random.choice(["bars", "accuracy", "overview", "weights", "cost", "neighbours"]),
                "--to",
                "x",
            ],
            ["plot", edited, random.choice(["clusters", "confusion", "mistakes"]), "--to", "x"],
            ["resume", edited, "--quiet"],
            ["join", edited, "--data", str(good.pictures / "one"), "--out", "x"],
            ["export", edited, "--client", "0", "--out", "x.safetensors"],
            ["predict", edited, str(good.pictures / "one"), "--client", "0"],
        ]
    )
    kept = ("runs/fine",) if words[0] == "resume" or words[1:2] == ["rm"] else ("runs",)
    if words[0] == "plot":
        kept = ("runs/fine", "runs/edited/rounds.jsonl", "runs/edited/config.json")
    return Case("", _line(words, folder, good), kept)


def _models(random: Random, folder: Path, good: Materials) -> Case:
    """Model files and checkpoints that are wrong, or would run something."""
    file = folder / f"model{random.choice(['.safetensors'] * 4 + ['.pt', '.pth', '.onnx', '.pt2', '.bin', ''])}"
    write_model(random, file, good.model.read_bytes())
    words = random.choice(
        [
            ["predict", file.name, str(good.pictures / "one")],
            ["predict", file.name, str(good.pictures / "one"), "--out", "x.csv"],
            _bench(random, good, "--checkpoint", file.name),
            [
                "bench",
                "--data",
                str(good.shades),
                *SMALL[:-4],
                "--model",
                f"resnet18:weights={file.name},side=32",
                "--quiet",
            ],
        ]
    )
    return Case("", _line(words, folder, good), (file.name,))


VARIABLES = [
    "FEDWCA_CACHE", "FEDWCA_DATA", "HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLBACKEND", "MPLCONFIGDIR", "WORLD_SIZE",
    "RANK", "LOCAL_RANK", "MASTER_ADDR", "COLUMNS", "TERM", "LANG", "LC_ALL", "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES", "PYTHONIOENCODING", "NO_COLOR", "FORCE_COLOR", "LINES", "TZ"
]  # fmt: skip


def _surroundings(random: Random, folder: Path, good: Materials) -> Case:
    """A correct command in an odd environment: variables, closed streams, encodings, limits."""
    shutil.copytree(good.run, folder / "runs" / "fine")
    words = random.choice(
        [
            _bench(random, good, "--out", random.choice(["x", "x", "/proc/x", "/sys/x", "/dev/null/x"])),
            ["runs"],
            ["runs", "show", "fine"],
            ["list"],
            ["show", "aggregator", "wca"],
            ["report", "runs/fine", "--out", "x.html"],
            ["report", "runs/fine", "--format", "md"],
            ["plot", "fine", "bars", "--to", "x"],
            ["predict", str(good.model), str(good.pictures / "one")],
            ["predict", str(good.model), str(good.pictures / "one"), "--out", "x.csv"],
            ["export", "runs/fine", "--client", "0", "--out", "x.safetensors"],
            ["join", "runs/fine", "--data", str(good.pictures / "one"), "--out", "x"],
            ["data", "check", "folder", "--data", str(good.pictures)],
            ["resume", "fine"],
        ]
    )
    line = _line(words, folder, good)
    environment = dict(line.environment)
    match random.randrange(6):
        case 0 | 1:
            for name in random.sample(VARIABLES, random.choice([1, 2])):
                environment[name] = odd_text(random).encode("utf-8", "replace").decode()
        case 2:
            for name in random.sample(["HOME", "PATH", "LANG", "TMPDIR", "FEDWCA_CACHE"], 2):
                environment.pop(name, None)
            environment.setdefault("FEDWCA_CACHE", "cache")
        case 3:
            line = replace(line, closed=tuple(random.sample([0, 1, 2], random.choice([1, 2]))))
        case 4:
            line = replace(
                line, encoding=random.choice(["ascii", "latin-1", "utf-16", "cp1252"]), full=random.random() < 0.3
            )
        case _:
            size = random.choice([0, 100, 5000, 100_000])
            line = (
                replace(line, file_size=size)
                if random.random() < 0.7
                else replace(line, files=random.choice([8, 12, 20]))
            )
    kept = () if words[0] == "resume" else ("runs",)
    return Case("", replace(line, environment=environment), kept)


FAMILIES: dict[str, tuple[int, Callable[[Random, Path, Materials], Case]]] = {
    "options": (20, _options),
    "arguments": (20, _arguments),
    "configurations": (10, _config),
    "archives": (10, _archives),
    "pictures": (8, _pictures),
    "runs": (16, _runs),
    "models": (8, _models),
    "surroundings": (8, _surroundings),
}
"""Weight and maker of each kind of case."""
