"""The cases of same_numbers.py: commands, and functions that stop, share or deploy a run; no script."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from forked_commands import run_command, start_command, wait_for
from recorded_numbers import differences

ENGINES = ("loop", "stacked")
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
    run_command(bench + " --out unbroken", Path("unbroken.log"))
    process = start_command(bench + " --out resumed", Path("killed.log"))
    rounds = Path("resumed/rounds.jsonl")
    while process.is_alive() and not (rounds.exists() and rounds.read_text().count("\n") >= lines):
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    if process.exitcode != -signal.SIGKILL or Path("resumed/summary.json").exists():
        raise SystemExit(f"{Path.cwd()}: the run had ended before it could be killed")
    run_command("resume resumed --json", Path("resumed.log"))
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
        start_command(bench, Path(f"rank-{environment['RANK']}.log"), environment) for environment in environments
    ]:
        wait_for(process, bench)


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


def write_images(folder: Path) -> None:
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
