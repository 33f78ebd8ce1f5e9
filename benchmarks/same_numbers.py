"""Whether a change left all numbers as they were, to the bit.

``python benchmarks/same_numbers.py record BEFORE`` runs small cases of all commands with the checkout that this file is
in and keeps what they write; this takes about six minutes on one core and one gigabyte. After the change, ``record
AFTER`` runs them again, and ``compare BEFORE AFTER`` prints a line per case, with the first number that differs, and
fails if any does. Both recordings must come from the same machine with the same libraries, since otherwise last digits
differ. Times, paths and versions are not compared. ``--only CASE`` selects cases, for both commands.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import multiprocessing
import os
import re
import runpy
import shlex
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("loop", "stacked")
LIBRARIES = ("faiss", "matplotlib.figure", "pydantic", "rich.console", "sklearn.metrics", "torchvision", "typer")
"""Imported once, because every command runs in a process forked from this one."""
IMAGES = "../images"
"""Folder of three domains of images, relative to a case's folder."""
SHORT = "--rounds 2 --epochs 1 --batch-size 16 --device cpu --seed 1"
SIZE = "--rounds 2 --epochs 1 --lr 0.05 --batch-size 16 --device cpu --set source_training.epochs=1"
# Signatures are updates, because after so little training raw first layers are too alike for several clusters. With
# these temperatures mixing weights are not one-hot.
DIGITS = (
    f"{SIZE} --clients 2 --samples 30 --seed 1 --set model.bottleneck=16 --set clusterer.reference=source "
    "--set aggregator.ta=0.2 --set aggregator.tb=0.2"
)
BENCH = f"bench {DIGITS} --clusterer finch --quiet --json"
RESIDUAL = f"bench {SIZE} --clusterer finch --data {IMAGES} --source day --clients 1 --baseline none --quiet --json"
PARTS = [
    *("ladd:start=1", "ifca:clusters=3", "fedavg:weighting=uniform", "fedwca:direction=row"),
    *(f"fedwca/clusterer={name}" for name in ("kmeans", "true", "each")),
    "fedwca/pseudo_labeler=two_model:selection=ratio,fallback=keep",
    "fedwca/objectives=shot+proximal:mu=0.1,to=source",
]
PROBES = "probes = ['finch:signature=2', 'finch:signature=all', 'kmeans', 'ladd']\nevidence = true\n"

Step = str | Callable[[], None]
"""A command line without the program's name, or a function that is called in the case's folder."""


SEVERAL_SOURCES = f"bench {SHORT} --target neon --clients 1 --samples 30 --lr 0.05 --set model.bottleneck=16 --quiet"
NEW_CLIENTS = (
    f"bench {SHORT} --preset upfl --partition shards:public=0.1 --clients 8 --new-clients 4 --samples 30 --quiet"
)


def cases(listed: Mapping[str, Sequence[str]]) -> dict[str, list[Step]]:
    """The steps of each case, by name of the case, which is that of its folder.

    Args:
        listed: output of ``fedwca list --json``: names of baselines by setting.
    """
    baselines = listed["baselines"]
    steps_by_case: dict[str, list[Step]] = {"cache": []}
    for engine in ENGINES:
        # Generated models are trained by the loop alone.
        upfl = [name for name in listed["baselines_of_upfl"] if engine == "loop" or name != "odpfl_hn"]
        run, alone = f"{BENCH} --engine {engine}", f"{BENCH} --baseline none --engine {engine}"
        steps_by_case |= {
            f"baselines-{engine}": [f"{run} --rounds 3 {_named([*baselines, 'revised_fedwca:u=2'])} --out run"],
            f"several-sources-{engine}": [
                f"{SEVERAL_SOURCES} --engine {engine} {_named(listed['baselines_of_sfda'])} --out run"
            ],
            f"new-clients-{engine}": [f"{NEW_CLIENTS} --engine {engine} {_named(upfl)} --out run"],
            f"parts-{engine}": [
                partial(_write, "more.toml", PROBES),
                f"{run} --config more.toml {_named(PARTS)} --out run",
            ],
            f"participation-{engine}": [
                f"{run} --rounds 3 --participation 0.5 {_named(['fedavg', 'ifca', 'fedpcl_pl'])} --keep all --out run"
            ],
            f"batch-norm-{engine}": [
                f"{alone} --participation 0.5 --batch-norm {policy} --out {policy}"
                for policy in ("pooled", "local", "recalibrated")  # all other cases: mixed
            ],
            f"settings-{engine}": [
                f"{alone} --workers 2 --seed 3 --source neon --set training.nesterov=true --set training.clip=1 "
                "--set training.cosine=3 --set training.momentum=0.8 --set pseudo_labeler.mu=0.9 --out run"
            ],
            f"precision-{engine}": [f"{alone} --precision {name} --out {name}" for name in ("bf16", "bf16-all")],
            f"trials-{engine}": [f"{alone} --source-models 2 --trials 2 --out run"],
            f"paper-{engine}": [f"{run} --preset paper --trials 1 --source-models 1 {_named(['fedpcl_pl'])} --out run"],
            f"resnet18-{engine}": [
                f"{RESIDUAL} --engine {engine} --model resnet18:side=32,weights=none --out trained",
                f"{RESIDUAL} --engine {engine} --model resnet18:side=32,weights=none,frozen=true --out frozen",
            ],
            f"stopped-{engine}": [partial(_stopped, f"{run} --rounds 3 {_named(['fedavg'])}")],
        }
    stacked = f"{BENCH} --engine stacked"
    together = f"{stacked} --baseline none --source-models 2 --trials 2 --trials-at-once 2"
    return steps_by_case | {
        "trials-together": [partial(_stopped, together)],
        "kernels": [f"{stacked} --baseline none --kernels {name} --out {name}" for name in ("eager", "channels-last")],
        "ranks": [partial(_ranks, f"{BENCH} {_named(['fedavg'])} --ranks-per-trial 2 --out run")],
        "handover": [
            f"{BENCH} {_named(['fedavg', 'source_only'])} --trials 2 --keep all --out run",
            f"{BENCH} --baseline none --out other",
            "export run --client 1 --out client.safetensors",
            "export run --cluster 1 --trial 1 --out cluster.safetensors",
            f"predict client.safetensors {IMAGES}/fog --top 3 --out predictions.csv",
            f"predict run {IMAGES} --client 3",
            f"join run --data {IMAGES}/fog --out joined-by-update",
            f"join run --data {IMAGES}/fog --by alignment --adapt 2 --out joined-by-alignment",
            "report run --out report.html",
            "report run other --out report.md",
            "report run other --out report.tex",
            "plot run --to pictures",
            "runs --root . --json",
            "runs show run --json",
            "runs diff run other --json",
            "runs export run --out rounds.csv",
        ],
        "compare": [
            f"compare fedavg fedwca {DIGITS} --source neon --source handwritten --format {form} --out runs"
            for form in ("json", "latex")
        ],
        "sweep": [f"sweep fedwca --param aggregator.ta=0.01,1 {DIGITS} --format json --out runs"],
        "reproduce": [
            f"reproduce table10 {DIGITS} --quick --dataset digits-mini --source handwritten --format json --out runs"
        ],
        "catalogue": ["list --json", "data check digits-mini"],
        "deployment": [_deployed],
    }


def _named(names: Sequence[str]) -> str:
    return " ".join(f"--baseline {shlex.quote(name)}" for name in names)


def _write(name: str, text: str) -> None:
    Path(name).write_text(text)


def _stopped(bench: str, lines: int = 3) -> None:
    """Record a run, and the same run killed after some rounds and resumed.

    Args:
        bench: the command line, without --out.
        lines: records after which the run is killed.

    Raises:
        SystemExit: the two runs differ, or the run ended before it was killed.
    """
    _finished(bench + " --out unbroken", Path("unbroken.log"))
    process = _begun(bench + " --out resumed", Path("killed.log"))
    rounds = Path("resumed/rounds.jsonl")
    while process.is_alive() and not (rounds.exists() and rounds.read_text().count("\n") >= lines):
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    if process.exitcode != -signal.SIGKILL or Path("resumed/summary.json").exists():
        raise SystemExit(f"{Path.cwd()}: the run had ended before it could be killed")
    _finished("resume resumed --json", Path("resumed.log"))
    if message := next(differences(Path("unbroken"), Path("resumed")), None):
        raise SystemExit(f"{Path.cwd()}: the resumed run differs from the unbroken one: {message}")


def _ranks(bench: str) -> None:
    """Record a run shared by two processes that are started as torchrun does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environments = [{**ranks, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    for process in [
        _begun(bench, Path(f"rank-{environment['RANK']}.log"), environment) for environment in environments
    ]:
        _ended(process, bench)


def _deployed() -> None:
    """Record a deployment with server and clients in one process: the server's models and the clients' final ones.

    This is the only function that imports the package, because a deployment cannot be run from the command line without
    Flower. If modules of the package move, its imports must be adapted.
    """
    import torch
    from safetensors.torch import save_file

    from fedwca.aggregators import aggregators
    from fedwca.clusterers import clusterers
    from fedwca.core.training_settings import Training
    from fedwca.deploy.client import Client
    from fedwca.deploy.composition import Composition
    from fedwca.deploy.in_process import run_in_process
    from fedwca.deploy.server_rules import Rules
    from fedwca.deploy.session import Session
    from fedwca.errors import UsageError
    from fedwca.federated.method import Method
    from fedwca.models.lenet import LeNet
    from fedwca.objectives.shot import Shot
    from fedwca.pseudo_labelers.two_model import TwoModel

    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator) for n in (13, 20, 9, 16)]
    defaults: dict[str, Any] = {}
    variants: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        **{name: (name, defaults, defaults) for name in aggregators.names() if aggregators.get(name).sends_models},
        "pooled": ("fedavg", {"batch_norm": "pooled"}, defaults),
        "half": ("fedavg", {"transport": "half"}, defaults),
        "top": ("wca", {"top": 0.1, "feedback": True}, defaults),
        "median": ("fedavg", defaults, {"robust": "median", "norm_bound": 5.0}),
        "few": ("fedavg", defaults, {"participation": 0.5}),
    }
    for name, (aggregator, options, rules) in variants.items():
        built = aggregators.build(aggregator)
        clusterer = clusterers.build("finch:reference=source") if built.grouping.needs_clusterer else None
        method, model = Method(name, name, built, TwoModel(), (Shot(),), clusterer), LeNet(bottleneck=16)
        training = Training(epochs=1, lr=0.02, batch_size=8)
        composition = Composition.of(method, model, 3, training=training, seed=1, **options)
        try:
            session = Session(method, model.build(3, seed=1), composition, Rules(clients=4, alone="warn", **rules))
        except UsageError:  # not every method can be deployed
            continue
        clients = [Client(lambda side, stretch, client_images=client_images: client_images) for client_images in images]
        run_in_process(session, clients, 3)
        server = session.state.server
        finals = {f"client {k}": client.final for k, client in enumerate(clients) if client.final is not None}
        save_file({"rows": server.rows.clone(), **server.state, **finals}, f"{name}.safetensors")


def _images(folder: Path) -> None:
    """Write three domains of images that are not square, in two classes."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for shade, domain in enumerate(("day", "fog", "night")):
        for label, name in enumerate(("cat", "dog")):
            (folder / domain / name).mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(0, 256 >> shade, (40, 60, 3), dtype=np.uint8) // (1 + label)
                Image.fromarray(pixels).save(folder / domain / name / f"{number}.png")


def record(folder: Path, only: Sequence[str]) -> None:
    """Run the cases, each in a folder of its own.

    Args:
        folder: to be created.
        only: names of cases; empty: all.

    Raises:
        SystemExit: the folder exists already, a command failed, or there is no such case.
    """
    folder = folder.resolve()
    if folder.exists():
        raise SystemExit(f"{folder}: is there already; name another folder or remove it")
    (folder / "cache").mkdir(parents=True)
    # One thread, so that sums do not depend on the number of cores; an empty cache, so that source models are trained.
    os.environ |= {"OMP_NUM_THREADS": "1", "FEDWCA_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    os.environ.pop("FEDWCA_DATA", None)
    # Import this checkout's package, not an installed one, nor scripts of this folder.
    sys.path[0] = str(ROOT)
    for library in LIBRARIES:
        importlib.import_module(library)
    _images(folder / "images")
    _finished("list --json", folder / "cache" / "listed.json")
    steps_by_case = cases(json.loads((folder / "cache" / "listed.json").read_text()))
    for name in _chosen(list(steps_by_case), only):
        start_times = os.times()
        (folder / name).mkdir(exist_ok=True)
        os.chdir(folder / name)
        for number, step in enumerate(steps_by_case[name]):
            if isinstance(step, str):
                _finished(step, Path(f"{number}.{'json' if 'json' in step else 'txt'}"))
            else:
                _ended(_process(step, Path(f"{number}.log")), f"({name})")
        seconds = sum(os.times()[2:4]) - sum(start_times[2:4])
        print(f"{seconds:6.1f} CPU s  {name}", flush=True)
    print(f"recorded {ROOT.name} in {folder}")


def _chosen(names: Sequence[str], only: Sequence[str]) -> Sequence[str]:
    if unknown := set(only) - set(names):
        raise SystemExit(f"--only {min(unknown)}: there are {', '.join(names)}")
    return only or names


def _finished(words: str, out: Path) -> None:
    _ended(_begun(words, out), words)


def _begun(words: str, out: Path, environment: Mapping[str, str] | None = None) -> ForkProcess:
    """Start ``python -m fedwca`` with these arguments; stdout goes to a file, stderr to a ``.log`` file beside it."""

    def main() -> None:
        os.environ.update(environment or {})
        sys.argv = ["fedwca", *shlex.split(words)]
        runpy.run_module("fedwca", run_name="__main__", alter_sys=True)

    return _process(main, out)


def _process(work: Callable[[], None], out: Path) -> ForkProcess:
    def run_redirected() -> None:
        for stream, path in ((sys.stdout, out), (sys.stderr, out.with_suffix(".log"))):
            with path.open("a") as file:
                os.dup2(file.fileno(), stream.fileno())
        try:
            work()
        finally:
            sys.stdout.flush()

    process = multiprocessing.get_context("fork").Process(target=run_redirected)
    process.start()
    return process


def _ended(process: ForkProcess, words: str) -> None:
    process.join()
    if process.exitcode:
        raise SystemExit(f"fedwca {words}\nin {Path.cwd()}: failed with {process.exitcode}; see its .log there")


class Tensor(NamedTuple):
    """A tensor as stored in a file: type, shape and bytes."""

    kind: str
    shape: tuple[int, ...]
    content: bytes

    def at(self, byte: int) -> str:
        """The number that a byte belongs to, and its index in the flattened tensor."""
        formats = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "I64": ("q", 8), "I32": ("i", 4), "U8": ("B", 1)}
        letter, size = formats.get(self.kind, ("B", 1))
        index = byte // size
        return f"{struct.unpack_from('<' + letter, self.content, index * size)[0]!r} at {index}"


SKIPPED = re.compile(
    r"seconds|^(timing|time|path|places|command|commit|checksum|python|system|cpu|instructions|cores|versions|resumed)$"
)
"""Keys that are not compared: times, paths and commands with them, hardware, versions, and checksums of content that is
compared itself."""
HASHES = re.compile(r"^(identity|config_hash|identity_without)$")
"""Keys that identify a configuration; they may change when a value is only written differently."""
ADDED = re.compile(r"^(places|dataset_name|classes|test_images|delivery|resumed)$")
"""Keys that only later versions or resumed runs write, so that one recording may lack them."""
UNREAD = re.compile(r"^\.|^(memory\.json|cost\.png|study\.journal)$|\.(log|npy)$")
"""Names of files that are not compared: such information, and image caches, whose names depend on a path."""


def values(path: Path) -> Any:
    """Content of a file without what may differ: nested mappings and lists with numbers as written, or bytes."""
    if path.suffix == ".safetensors":
        return _tensors(path.read_bytes())
    if path.suffix not in (".json", ".jsonl", ".csv", ".txt", ".md", ".tex", ".html"):
        return path.read_bytes()
    text = path.read_text()
    if path.suffix == ".json":
        return _json(text)
    if path.suffix == ".html":  # the data of its charts; the text around it has versions and times
        return _json(text.partition('id="data">')[2].partition("</script>")[0])
    if path.suffix == ".csv":
        return _lines(csv.DictReader(text.splitlines()))
    if path.suffix == ".jsonl":
        return _lines(map(_json, text.splitlines()))
    text = re.sub(r"Ran \d+ s after \d+ s", "Ran", text)
    if path.stem == "report":  # the last column has seconds
        text = re.sub(r"[|&][^|&\n]*(\||\\\\)$", "", text, flags=re.MULTILINE)
    return _lines(text.splitlines())


def _json(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)


def _lines(records: Any) -> dict[str, Any]:
    return {f"line {number}": line for number, line in enumerate(records, 1)}


def _tensors(content: bytes) -> dict[str, Any]:
    """The tensors of a safetensors file by name, and its metadata under ``metadata``."""
    start = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:start])
    metadata = {
        key: _json(text) if text.startswith("{") else text for key, text in header.pop("__metadata__", {}).items()
    }

    def tensor(dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
        first, end = data_offsets
        return Tensor(dtype, tuple(shape), content[start + first : start + end])

    return {**{name: tensor(**entry) for name, entry in header.items()}, "metadata": metadata}


def without_hashes(content: Any) -> Any:
    """Content of a file without the keys of `HASHES`."""
    if isinstance(content, dict):
        return {key: without_hashes(value) for key, value in content.items() if not HASHES.search(key)}
    return [without_hashes(value) for value in content] if isinstance(content, list) else content


def difference(first: Any, second: Any, path: str = "", added: bool = False) -> str | None:
    """The first place where two values differ, with both values; None if there is none.

    Args:
        first: a value of `values`.
        second: the other recording's.
        path: where they are, for the answer.
        added: whether the second may have keys that the first lacks.
    """
    if type(first) is not type(second):
        return f"{path}: {_short(first)} and {_short(second)}"
    if isinstance(first, dict):
        keys = first if added else (*first, *second)
        missing_key = next((key for key in keys if (key in first) != (key in second) and not ADDED.search(key)), None)
        if missing_key is not None:
            return f"{path}: {missing_key!r} is in the {'first' if missing_key in first else 'second'} alone"
        shared_keys = [key for key in first if key in second and not SKIPPED.search(key)]
        pairs = ((f"{path}, {key}", first[key], second[key]) for key in shared_keys)
        return next(filter(None, (difference(a, b, key, added) for key, a, b in pairs)), None)
    if isinstance(first, list):
        if len(first) != len(second):
            return f"{path}: {len(first)} and {len(second)} values"
        pairs = ((f"{path}[{index}]", a, b) for index, (a, b) in enumerate(zip(first, second, strict=True)))
        return next(filter(None, (difference(a, b, key, added) for key, a, b in pairs)), None)
    if first == second:
        return None
    if isinstance(first, Tensor):
        if first[:2] != second[:2]:
            return f"{path}: {first.kind} {list(first.shape)} and {second.kind} {list(second.shape)}"
        byte = next(byte for byte, (a, b) in enumerate(zip(first.content, second.content, strict=True)) if a != b)
        return f"{path}: {first.at(byte)} and {second.at(byte)}"
    return f"{path}: {_short(first)} and {_short(second)}"


def _short(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)[:200]


def differences(first: Path, second: Path, hashes: bool = True, added: bool = False) -> Iterator[str]:
    """Yield a sentence for each file in which two folders differ, with the first difference.

    Args:
        first: folder.
        second: folder.
        hashes: whether keys that identify configurations are compared.
        added: whether the second may have files and keys that the first lacks.
    """
    read = values if hashes else lambda path: without_hashes(values(path))
    first_files, second_files = _files(first), _files(second)
    for name in sorted(first_files if added else first_files | second_files):
        if name not in first_files or name not in second_files:
            yield f"{name}: is in the {'first' if name in first_files else 'second'} alone"
        elif message := difference(read(first / name), read(second / name), name, added):
            yield message


def _files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not UNREAD.search(path.name))
    return {str(path.relative_to(folder)) for path in paths}


def compare(first: Path, second: Path, only: Sequence[str], hashes: bool = True, added: bool = False) -> bool:
    """Print a line per case; returns whether all are the same.

    Args:
        first: recording.
        second: recording.
        only: names of cases; empty: all.
        hashes: see `differences`.
        added: see `differences`.

    Raises:
        SystemExit: a folder does not exist, or there is no such case.
    """
    for folder in (first, second):
        if not folder.is_dir():
            raise SystemExit(f"{folder}: no such folder")
    names, same = sorted({path.name for folder in (first, second) for path in folder.iterdir()}), True
    for name in _chosen(names, only):
        messages = list(differences(first / name, second / name, hashes, added))
        same &= not messages
        suffix = f" (and {len(messages) - 1} other files)" if len(messages) > 1 else ""
        print(
            f"DIFFERS   {name}: {messages[0]}{suffix}"
            if messages
            else f"same      {name}, files: {len(_files(first / name))}"
        )
    return same


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, folders in (("record", ["folder"]), ("compare", ["one", "other"])):
        command = commands.add_parser(name)
        for folder in folders:
            command.add_argument(folder, type=Path)
        command.add_argument("--only", action="append", default=[], metavar="NAME", help="a case; repeat for more")
    command.add_argument("--without-hashes", action="store_true", help="leave out what tells configurations apart")
    command.add_argument("--added", action="store_true", help="leave out what the second recording has more of")
    options = parser.parse_args(arguments)
    if options.command == "record":
        record(options.folder, options.only)
        return 0
    return 0 if compare(options.one, options.other, options.only, not options.without_hashes, options.added) else 1


if __name__ == "__main__":
    sys.exit(main())
