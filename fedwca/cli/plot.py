"""`fedwca plot`: pictures of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli import complete
from fedwca.cli.terminal import say
from fedwca.errors import FedwcaError, UsageError
from fedwca.results.trial_key import TrialKey


class PictureFormat(StrEnum):
    """File formats of pictures."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


class How(StrEnum):
    """How features are projected to two dimensions."""

    TSNE = "tsne"
    PCA = "pca"


def command(
    run: Annotated[str | None, typer.Argument(help="Run folder, or its name in runs/.")] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Pictures; without any, all that can be drawn.", autocompletion=complete.pictures
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder for the files; default: pictures/ in the run folder.")
    ] = None,
    format_: Annotated[
        PictureFormat, typer.Option("--format", help="Format of the files; animations are GIF.")
    ] = PictureFormat.PNG,
    method: Annotated[
        str | None, typer.Option("--method", help="For pictures of one method: which; default: the composed one.")
    ] = None,
    source_model: Annotated[int, typer.Option("--source-model", min=0, help="For pictures of one trial, from 0.")] = 0,
    trial: Annotated[int, typer.Option("--trial", min=0, help="For pictures of one trial, from 0.")] = 0,
    how: Annotated[How, typer.Option("--how", help="For the embedding: t-SNE or principal components.")] = How.TSNE,
    dpi: Annotated[int, typer.Option("--dpi", min=20, max=600, help="Pixels per inch of PNG and GIF files.")] = 120,
    list_: Annotated[bool, typer.Option("--list", help="List the pictures and stop.")] = False,
) -> None:
    """Draw pictures of a run; says which cannot be drawn, and why.

    For example: fedwca plot runs/first bars weights --format svg
    """
    from fedwca.core.files import name_unwritable
    from fedwca.results.find_runs import find_run
    from fedwca.results.pictures.catalogue import PICTURES, PictureRequest, find_method, find_pictures
    from fedwca.results.pictures.style import save
    from fedwca.results.read_run import read_run
    from fedwca.runs.final_model_predictions import lazy_predictions

    if list_:
        for name, picture in PICTURES.items():
            say(f"{name:<18}  {picture.about}")
        return
    if run is None:
        raise UsageError("name a run folder; --list lists the pictures without one")
    picture_names = find_pictures(names or [])
    results = read_run(find_run(run))
    trial_key = TrialKey(source_model, trial)
    method_name = find_method(results, method, trial_key)
    request = PictureRequest(
        results, lazy_predictions(results.path, method_name, trial_key), method_name, trial_key, how.value
    )
    folder = to or results.path / "pictures"
    errors: list[FedwcaError] = []
    for name in picture_names:
        picture = PICTURES[name]
        try:
            figure = picture.draw(request)
        except FedwcaError as error:
            if names:
                raise
            errors.append(error)
            say(f"not drawn: {name}: {error}")
            continue
        file = folder / f"{name}.{picture.suffix or format_.value}"
        with name_unwritable(f"--to {folder}"):
            save(figure, file, dpi)
        say(str(file))
    if len(errors) == len(picture_names):
        raise FedwcaError(f"{run}: nothing could be drawn")
