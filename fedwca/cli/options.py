"""The options of a run, shared by every command that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fedwca.cli import complete
from fedwca.errors import UsageError

WHAT, HOW, RUN, KEEP = "Data and model", "Method", "Run", "Configuration and results"


class Format(StrEnum):
    """How a table is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


Form = Annotated[Format, typer.Option("--format", help="How tables are printed.", rich_help_panel=KEEP)]


@dataclass(frozen=True)
class RunOptions:
    """What the run options of a command line said."""

    layer: dict[str, Any] = field(default_factory=dict)
    """Values as fields of a run's configuration; what nobody named is not in it."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """``--set`` taken apart."""
    preset: str = "default"
    file: Path | None = None


def option(*names: str, text: str, panel: str, **more: Any) -> Any:
    """What typer is told of an option that has no default to show."""
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


def _kind(kind: Any, *names: str, **more: Any) -> Any:
    """The annotation of a shared option that is None unless given."""
    return Annotated[kind | None, option(*names, **more)]


def folder(of: str) -> Any:
    """What typer is told of the ``--out`` of commands that keep many runs."""
    return typer.Option("--out", help=f"Folder of the {of}.", rich_help_panel=KEEP)


SHARED: dict[str, Any] = {
    "dataset": _kind(
        str,
        "--dataset",
        text="Data set; default digits-mini, which needs no download.",
        panel=WHAT,
        autocompletion=complete.names("dataset"),
    ),
    "data": _kind(
        Path,
        "--data",
        text="Folder with data sets as <data>/<dataset>/<domain>…; without --dataset the folder of domains itself.",
        panel=WHAT,
    ),
    "source": _kind(
        str, "--source", text="Domain of the server's labelled images; the others are the clients'.", panel=WHAT
    ),
    "checkpoint": _kind(
        Path,
        "--checkpoint",
        text="Source model of your own (.safetensors or .pt state dict) instead of pre-training.",
        panel=WHAT,
    ),
    "model": _kind(
        str, "--model", text="Architecture; default lenet.", panel=WHAT, autocompletion=complete.names("model")
    ),
    "clients": _kind(int, "--clients", text="Clients per target domain.", panel=WHAT),
    "samples": _kind(
        int, "--samples", text="At most so many images per client, before the 64/16/20 split.", panel=WHAT
    ),
    "rounds": _kind(int, "--rounds", text="Communication rounds R.", panel=RUN),
    "epochs": _kind(int, "--epochs", text="Local epochs E in a round.", panel=RUN),
    "lr": _kind(float, "--lr", text="Clients' learning rate.", panel=RUN),
    "batch_size": _kind(int, "--batch-size", text="Images per step.", panel=RUN),
    "trials": _kind(int, "--trials", text="Trials per source model, each with its own split.", panel=RUN),
    "participation": _kind(
        float, "--participation", text="Share of the clients in each round after the first; default 1.", panel=RUN
    ),
    "batch_norm": _kind(
        str,
        "--batch-norm",
        text="Running statistics in mixtures: mixed (default), pooled, local or recalibrated.",
        panel=RUN,
    ),
    "source_models": _kind(int, "--source-models", text="Source models, each from its own seed.", panel=RUN),
    "seed": _kind(int, "--seed", text="Seed of everything; default 0.", panel=RUN),
    "device": _kind(str, "--device", text="cpu, cuda, cuda:1; default: a GPU where there is one.", panel=RUN),
    "engine": _kind(str, "--engine", text="auto (loop on a CPU, stacked on a GPU), loop or stacked.", panel=RUN),
    "precision": _kind(
        str,
        "--precision",
        text="fp32 (default), tf32 (on a GPU), bf16 (training in bfloat16) or bf16-all (evidence too).",
        panel=RUN,
    ),
    "kernels": _kind(
        str,
        "--kernels",
        text="Of stacked steps: auto (default), eager, channels-last; graphs or measure, both unmeasured on a GPU.",
        panel=RUN,
    ),
    "workers": _kind(int, "--workers", text="Clients at the same time; never changes the numbers.", panel=RUN),
    "trials_at_once": _kind(
        int, "--trials-at-once", text="Trials in one step of the stacked engine; default: all that fit.", panel=RUN
    ),
    "preset": Annotated[
        str,
        typer.Option(
            "--preset",
            help="Values below the command line and --config: default, or paper (Table 9 by data set and source).",
            rich_help_panel=KEEP,
            autocompletion=complete.presets,
        ),
    ],
    "config": _kind(Path, "--config", text="TOML or JSON file with values; a run's config.json is one.", panel=KEEP),
    "set_": _kind(
        list[str],
        "--set",
        text="kind.field=value, such as aggregator.ta=0.05 or training.momentum=0.8; repeat.",
        panel=KEEP,
    ),
}
"""Options by the name of their parameter; all default to None but ``preset``, whose default is ``default``."""
TRAINING = ("epochs", "lr", "batch_size")


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run; those that it does not take itself arrive as one `RunOptions`.

    The command's parameter called ``parse_run_options`` is filled; every other one is an option or argument of its own.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "asked"]
    mine = {parameter.name for parameter in own}
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default="default" if name == "preset" else None,
            annotation=annotation,
        )
        for name, annotation in SHARED.items()
        if name not in mine
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(
            asked=parse_run_options({p.name: values[p.name] for p in shared}), **{name: values[name] for name in mine}
        )

    order = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    del wrapper.__wrapped__
    wrapper.__signature__ = inspect.Signature([*order, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*order, *shared]}
    return wrapper


def parse_run_options(values: dict[str, Any]) -> RunOptions:
    """Values of the shared options as what they say of a run."""
    given = {key: value for key, value in values.items() if value is not None}
    training = {key: given.pop(key) for key in TRAINING if key in given}
    pairs, preset, file = given.pop("set_", []), given.pop("preset", "default"), given.pop("config", None)
    layer = {**given, **({"training": training} if training else {})}
    return RunOptions(layer, [pair(text) for text in pairs], preset, file)


def pair(text: str) -> tuple[str, str]:
    """``kind.field=value`` taken apart."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise UsageError(
            f"--set {text}: not of the form kind.field=value, such as aggregator.ta=0.05; "
            "the run's own values have options, such as --rounds 20"
        )
    return key.strip(), value.strip()
