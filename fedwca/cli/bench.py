"""`fedwca bench`: compose a method, run it beside baselines, watch, and read the table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedwca.cli import complete
from fedwca.errors import UsageError


def _option(*names: str, text: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


WHAT, HOW, RUN, KEEP = "Data and model", "Method", "Run", "Configuration and results"


def command(
    dataset: Annotated[
        str | None,
        _option(
            "--dataset",
            text="Data set; default digits-mini, which needs no download.",
            panel=WHAT,
            autocompletion=complete.names("dataset"),
        ),
    ] = None,
    data: Annotated[
        Path | None,
        _option(
            "--data",
            text="Folder with data sets as <data>/<dataset>/<domain>…; without --dataset the folder of domains itself.",
            panel=WHAT,
        ),
    ] = None,
    source: Annotated[
        str | None,
        _option("--source", text="Domain of the server's labelled images; the others are the clients'.", panel=WHAT),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        _option(
            "--checkpoint",
            text="Source model of your own (.safetensors or .pt state dict) instead of pre-training.",
            panel=WHAT,
        ),
    ] = None,
    model: Annotated[
        str | None,
        _option("--model", text="Architecture; default lenet.", panel=WHAT, autocompletion=complete.names("model")),
    ] = None,
    clients: Annotated[int | None, _option("--clients", text="Clients per target domain.", panel=WHAT)] = None,
    samples: Annotated[
        int | None,
        _option("--samples", text="At most so many images per client, before the 64/16/20 split.", panel=WHAT),
    ] = None,
    aggregator: Annotated[
        str | None,
        _option(
            "--aggregator",
            text="How models are combined; default wca. Fields as in wca:ta=0.05.",
            panel=HOW,
            autocompletion=complete.names("aggregator"),
        ),
    ] = None,
    clusterer: Annotated[
        str | None,
        _option(
            "--clusterer",
            text="How clients are grouped; default finch.",
            panel=HOW,
            autocompletion=complete.names("clusterer"),
        ),
    ] = None,
    pseudo_labeler: Annotated[
        str | None,
        _option(
            "--pseudo-labeler",
            text="How images get their targets; default two-model.",
            panel=HOW,
            autocompletion=complete.names("pseudo_labeler"),
        ),
    ] = None,
    objective: Annotated[
        list[str] | None,
        _option(
            "--objective",
            text="What clients minimise; repeat to add; default shot.",
            panel=HOW,
            autocompletion=complete.names("objective"),
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        _option(
            "--baseline",
            text="Method to compare with; repeat for more; default source-only, local, fedavg; 'none' for none.",
            panel=HOW,
            autocompletion=complete.baselines,
        ),
    ] = None,
    rounds: Annotated[int | None, _option("--rounds", text="Communication rounds R.", panel=RUN)] = None,
    epochs: Annotated[int | None, _option("--epochs", text="Local epochs E in a round.", panel=RUN)] = None,
    lr: Annotated[float | None, _option("--lr", text="Clients' learning rate.", panel=RUN)] = None,
    batch_size: Annotated[int | None, _option("--batch-size", text="Images per step.", panel=RUN)] = None,
    trials: Annotated[
        int | None, _option("--trials", text="Trials per source model, each with its own split.", panel=RUN)
    ] = None,
    participation: Annotated[
        float | None,
        _option("--participation", text="Share of the clients in each round after the first; default 1.", panel=RUN),
    ] = None,
    batch_norm: Annotated[
        str | None,
        _option(
            "--batch-norm",
            text="Running statistics in mixtures: mixed (default), pooled, local or recalibrated.",
            panel=RUN,
        ),
    ] = None,
    source_models: Annotated[
        int | None, _option("--source-models", text="Source models, each from its own seed.", panel=RUN)
    ] = None,
    seed: Annotated[int | None, _option("--seed", text="Seed of everything; default 0.", panel=RUN)] = None,
    device: Annotated[
        str | None, _option("--device", text="cpu, cuda, cuda:1; default: a GPU where there is one.", panel=RUN)
    ] = None,
    engine: Annotated[str | None, _option("--engine", text="auto or loop.", panel=RUN)] = None,
    workers: Annotated[
        int | None, _option("--workers", text="Clients at the same time; never changes the numbers.", panel=RUN)
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="Values below the command line and --config: default, or paper (Table 9 by data set and source).",
            rich_help_panel=KEEP,
            autocompletion=complete.presets,
        ),
    ] = "default",
    config: Annotated[
        Path | None, _option("--config", text="TOML or JSON file with values; a run's config.json is one.", panel=KEEP)
    ] = None,
    set_: Annotated[
        list[str] | None,
        _option(
            "--set", text="kind.field=value, such as aggregator.ta=0.05 or training.momentum=0.8; repeat.", panel=KEEP
        ),
    ] = None,
    name: Annotated[
        str | None, _option("--name", text="Name of the composed method; default: its aggregator.", panel=KEEP)
    ] = None,
    out: Annotated[Path | None, _option("--out", text="Run folder; default runs/<time>-<name>.", panel=KEEP)] = None,
    profile: Annotated[
        bool,
        _option("--profile", text="Say where the time went, and keep a trace of one round in the folder.", panel=KEEP),
    ] = False,
    as_json: Annotated[bool, _option("--json", text="Print the summary as JSON alone.", panel=KEEP)] = False,
) -> None:
    """Run a federation of unlabeled clients: the composed method beside its baselines.

    For example: fedwca bench --aggregator wca --clusterer finch
    """
    from fedwca.cli.execute import Request, execute

    given: dict[str, Any] = {
        "dataset": dataset,
        "data": data,
        "source": source,
        "checkpoint": checkpoint,
        "model": model,
        "clients": clients,
        "samples": samples,
        "aggregator": aggregator,
        "clusterer": clusterer,
        "pseudo_labeler": pseudo_labeler,
        "objectives": objective,
        "baselines": None if baseline is None else [b for b in baseline if b != "none"],
        "rounds": rounds,
        "trials": trials,
        "source_models": source_models,
        "participation": participation,
        "batch_norm": batch_norm,
        "seed": seed,
        "device": device,
        "engine": engine,
        "workers": workers,
        "name": name,
    }
    training = {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    layer = {key: value for key, value in given.items() if value is not None}
    if any(value is not None for value in training.values()):
        layer["training"] = {key: value for key, value in training.items() if value is not None}
    execute(Request(layer, [_pair(text) for text in set_ or []], preset, config, out, as_json, profile))


def _pair(text: str) -> tuple[str, str]:
    """``kind.field=value`` taken apart."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise UsageError(
            f"--set {text}: not of the form kind.field=value, such as aggregator.ta=0.05; "
            "the run's own values have options, such as --rounds 20"
        )
    return key.strip(), value.strip()
