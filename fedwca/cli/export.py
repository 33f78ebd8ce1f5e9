"""`fedwca export`: a client's or a cluster's model as a file that others can run, with a card beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli.shared_options import OneMethod, SourceModel, Trial
from fedwca.cli.terminal import say
from fedwca.errors import UsageError


def command(
    run: Annotated[Path, typer.Argument(help="Run folder; a deployment's; or a .safetensors model, to rewrite it.")],
    out: Annotated[Path, typer.Option("--out", help="File to write: .safetensors, .onnx or .pt2 (torch-export).")],
    client: Annotated[int | None, typer.Option("--client", min=0, help="Whose model, counted from 0.")] = None,
    cluster: Annotated[
        int | None, typer.Option("--cluster", min=0, help="Or a cluster's model, counted from 0.")
    ] = None,
    method: OneMethod = None,
    to: Annotated[
        str | None, typer.Option("--to", help="safetensors, onnx or torch-export; default: by the file's suffix.")
    ] = None,
    source_model: SourceModel = 0,
    trial: Trial = 0,
    round_: Annotated[
        int | None,
        typer.Option("--round", min=0, help="After how many rounds, if kept; default: the table's."),
    ] = None,
) -> None:
    """Write a model of a run as a file of its own: pixels in, class scores out, checked against the original.

    For example: fedwca export runs/first --client 0 --out client0.onnx
    """
    from fedwca.core.deployment_files import is_deployment
    from fedwca.deploy.model_from_deployment import model_of_deployment, open_deployment
    from fedwca.export.load_model import read_exported
    from fedwca.export.model_from_run import model_of
    from fedwca.export.write_model import export, kind_of
    from fedwca.runs.open_run import open_run

    kind = kind_of(out, to)
    chooses_in_run = any(value is not None for value in (method, round_)) or bool(source_model or trial)
    if run.is_file():
        if chooses_in_run or client is not None or cluster is not None:
            raise UsageError(f"{run}: is one model already; options that choose one are for run folders")
        if run.suffix in (".onnx", ".pt2"):  # programs, in which the network that they were written from is gone
            raise UsageError(f"{run}: only .safetensors models can be written in other forms; take that of this model")
        network, description = read_exported(run)
    elif is_deployment(run):
        if chooses_in_run:
            raise UsageError(f"{run}: is a deployment; choose a model of it by --client or --cluster alone")
        network, description = model_of_deployment(open_deployment(run), client, cluster)
    else:
        opened = open_run(run, method, source_model, trial, round_, download=False)
        network, description = model_of(opened, client, cluster)
        if opened.choice:
            say(opened.choice, err=True)
    card = export(out, kind, network, description)
    accuracy_text = (
        "accuracy not measured"
        if description.accuracy is None
        else f"{description.accuracy:.1f} % of {description.images} images kept out of training"
    )
    say(f"{', '.join(filter(None, (description.label, description.holder, description.domain)))}: {accuracy_text}")
    say(f"wrote {out} ({kind}; its outputs were compared with the model's) and {card}")
