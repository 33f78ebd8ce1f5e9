"""`fedwca join`: a model for a client that took no part in training and has no labels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedwca.cli.shared_options import OneMethod, PlainJson, SourceModel, Trial
from fedwca.cli.terminal import say
from fedwca.core.count_of import count_of
from fedwca.errors import DataError, UsageError

if TYPE_CHECKING:
    from fedwca.core.adaptation import Adaptation
    from fedwca.engine.test_time_adaptation import AdaptedModel
    from fedwca.newcomers.join import JoinedClient
    from fedwca.results.json_output.printed_join import PrintedJoin

FILES = ("model.safetensors", "model.safetensors.md", "predictions.csv")


def command(
    run: Annotated[Path, typer.Argument(help="Run folder; only read.")],
    data: Annotated[Path, typer.Option("--data", help="The client's images: a folder of them, or an .npz archive.")],
    method: OneMethod = None,
    by: Annotated[
        Literal["update", "alignment"],
        typer.Option("--by", help="How its cluster is found: by its first local update, or by features alone."),
    ] = "update",
    adapt: Annotated[
        str | None,
        typer.Option(
            "--adapt",
            help="What it does on its own images: E epochs of training (0: none), or an adaptation's steps, such as "
            "entropy:steps=10,patience=3. Default: the method's adaptation, if it has one.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write; default joined/<name of data>.")] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            min=0,
            help="Which of the sizes that models of the run have, from 0, the smallest. Default: drawn.",
            show_default=False,
        ),
    ] = None,
    source_model: SourceModel = 0,
    trial: Trial = 0,
    as_json: PlainJson = False,
) -> None:
    """Give a new client without labels its cluster and its model; no other client's model changes.

    For example: fedwca join runs/first --data photos/ --adapt 5 --out joined
    """
    from fedwca.cli.predict import write_answers
    from fedwca.cli.printing import name_saved_results
    from fedwca.cli.progress_bars import show_progress
    from fedwca.core.files import check_writable
    from fedwca.datasets import stretches_images
    from fedwca.engine.randomness import fold_key, permutation
    from fedwca.export.load_model import serve_model
    from fedwca.export.model_from_run import newcomer_note
    from fedwca.export.predict import predict
    from fedwca.export.read_images import find_images, load_pictures, stack_images
    from fedwca.export.write_model import export
    from fedwca.newcomers.join import join
    from fedwca.newcomers.load_federation import load_federation
    from fedwca.results.find_runs import find_run
    from fedwca.results.low_trust import own_low_trust_note
    from fedwca.runs.open_run import open_run

    epochs, adaptation = parse_adapt(adapt)
    path = find_run(run)
    folder = out or usual_folder(data)
    if existing_names := [name for name in FILES if (folder / name).exists()]:
        raise UsageError(f"--out {folder}: holds a {existing_names[0]} already; name another folder or remove it")
    files = find_images([data])
    if folder.resolve().is_relative_to(path.resolve()):
        raise UsageError(f"--out {folder}: lies in the run folder, which is only read; name another")
    opened = open_run(run, method, source_model, trial)
    if opened.choice:
        say(opened.choice, err=True)
    stretch = stretches_images(opened.config.dataset)
    pictures = list(load_pictures(files, opened.architecture.stored_side, stretch))
    pixels = [picture.pixels for picture in pictures if picture.pixels is not None]
    if not pixels:
        raise DataError(f"--data {data}: no image could be read ({pictures[0].error})")
    if len(pixels) < len(pictures):
        say(f"Warning: {len(pictures) - len(pixels)} of {len(pictures)} images could not be read", err=True)
    federation, counter = load_federation(opened), count(1)
    check_writable(folder)
    # Files are often sorted by class, and an adaptation's loss may be a mean over batches of consecutive images.
    images = stack_images(pixels)[permutation(fold_key(["join"]), len(pixels))]
    with show_progress("clients whose round 0 is repeated") as on_progress:
        joined = join(
            *(federation, images, by, epochs),
            done=lambda client: on_progress(next(counter), len(federation.clients)),
            adaptation=adaptation,
            size=size,
        )
    if joined.trust is not None and (note := own_low_trust_note(joined.trust)):
        say(f"Warning: {note}", err=True)
    description = newcomer_note(opened, joined, len(pixels))
    answers = list(predict(serve_model(joined.network, description), pictures))
    with all_or_none(folder):
        card = export(folder / FILES[0], "safetensors", joined.network, description)
        write_answers(folder / FILES[2], answers, 1)
    classes = [answer.best[0][0] for batch in answers for answer in batch if answer.best]
    with name_saved_results(f"the model, its card and its predictions are whole, in {folder}"):
        if as_json:
            printed = printed_join(joined, {name: classes.count(name) for name in description.classes}, folder)
            say(json.dumps(printed.model_dump(mode="json")))
            return
        print_joined(joined)
        say(
            "Labels: " + ", ".join(f"{classes.count(name)} × {name}" for name in description.classes if name in classes)
        )
        say(f"wrote {folder / FILES[0]}, {card} and {folder / FILES[2]}")


@contextmanager
def all_or_none(folder: Path) -> Iterator[None]:
    """Keep all of a client's files that are written inside, or none: after an error, a retry finds the folder free."""
    existed = folder.exists()
    try:
        yield
    except BaseException:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        if not existed:
            with suppress(OSError):  # not created yet, or another process writes there
                folder.rmdir()
        raise


def print_joined(joined: JoinedClient) -> None:
    """Print the chosen cluster, the margin to the runner-up, and the mixture that the model started from."""
    choice = joined.choice
    unit = {"update": "distance", "alignment": "alignment (cosine)", "loss": "loss (nats)"}.get(choice.by, "")
    if joined.size is not None:
        say(f"Cluster {choice.cluster}, its own: models stay with their clients")
        say(f"Start: a model that nobody trained (size {joined.size}), and what clients say of public images")
    elif choice.by == "alone":
        say("Cluster 0: there is no other")
    else:
        nearest = f"; nearest client {choice.member}" if choice.by == "update" else ""
        say(f"Cluster {choice.cluster}, by {choice.by}: {unit} {format_score(choice.scores[choice.cluster])}{nearest}")
        if (runner_up := choice.runner_up) is not None and choice.margin is not None:
            margin = f"{format_score(choice.margin)} {'less' if choice.by == 'alignment' else 'more'}"
            say(f"Runner-up cluster {runner_up}: {unit} {format_score(choice.scores[runner_up])}, {margin}")
    if joined.size is None:
        # After the clusters' models, the server may hold further rows, such as teachers.
        shares = [
            f"{'cluster' if row < len(choice.scores) else 'row'} {row} {weight:.3f}"
            for row, weight in enumerate(joined.weights.tolist())
            if row < len(choice.scores) or weight
        ]
        say(f"Start: {', '.join(shares)}")
    for name, values in joined.report.items():
        say(f"{name}: {', '.join(f'{value:.3f}' for value in values.flatten().tolist())}")
    if joined.epochs:
        say(f"Adapted for {count_of(joined.epochs, 'epoch')}")
    if joined.adaptation is not None and joined.steps is not None:
        if joined.adaptation.generates_models:
            say(f"Its model was generated from its images ({joined.adaptation.name}); it took no steps")
        else:
            say("\n".join(describe_steps(joined.adaptation.name, joined.steps)))


def describe_steps(name: str, adapted: AdaptedModel) -> list[str]:
    """Lines about an adaptation: its steps, the model taken, the entropy by step, and a caution if the entropy rose."""
    entropy_by_step = ", ".join(f"{step}: {entropy:.4f}" for step, entropy in enumerate(adapted.entropies))
    lines = [
        f"Adapted by {count_of(adapted.steps, 'step')} on {name}; taken: the model after step {adapted.taken}",
        f"Entropy of the outputs, in nats, by step: {entropy_by_step}",
    ]
    if adapted.taken and adapted.entropies[adapted.taken] > adapted.entropies[0]:
        lines.append(
            "Caution: the entropy rose; the steps may be too long (lr=…), or the model as it was sent the better one"
        )
    return lines


def parse_adapt(text: str | None) -> tuple[int | None, Adaptation | None]:
    """The value of ``--adapt`` as epochs of training and an adaptation, of which at most one is not None.

    Raises:
        UsageError: too many epochs, or there is no such adaptation.
    """
    if text is None:
        return None, None
    if re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        if not 0 <= (epochs := int(text)) <= 1_000_000:
            raise UsageError(f"--adapt {text}: epochs are 0 to 1000000")
        return epochs, None
    from fedwca.adaptations import adaptations

    return None, adaptations.build(text)


def printed_join(joined: JoinedClient, labels: dict[str, int], folder: Path) -> PrintedJoin:
    """The joined client as ``--json`` prints it; scores and entropies that are not finite become None."""
    from fedwca.results.json_output.printed_join import AdaptationSteps, PrintedJoin

    choice, steps = joined.choice, None
    if joined.adaptation is not None and joined.steps is not None:
        fields = joined.adaptation.model_dump(mode="json")
        adapted = joined.steps
        steps = AdaptationSteps(
            name=joined.adaptation.name,
            fields=fields,
            steps=adapted.steps,
            taken=adapted.taken,
            entropies=[value if math.isfinite(value) else None for value in adapted.entropies],
        )
    return PrintedJoin(
        cluster=choice.cluster,
        by=choice.by,
        scores=[value if math.isfinite(value) else None for value in choice.scores.tolist()],
        weights=joined.weights.tolist(),
        report={name: value.flatten().tolist() for name, value in joined.report.items()},
        epochs=joined.epochs,
        adaptation=steps,
        size=joined.size,
        trust=joined.trust,
        labels=labels,
        files=[str(folder / name) for name in FILES],
    )


def format_score(value: Any) -> str:
    """A score with four significant digits."""
    return f"{float(value):.4g}"


def usual_folder(data: Path) -> Path:
    """The default output folder of a newcomer: below ``joined``, named after its images.

    >>> usual_folder(Path("photos/site.tar.gz")).as_posix(), usual_folder(Path("/tmp/..")).as_posix()
    ('joined/site.tar', 'joined')
    """
    resolved = data.resolve() if data.name in ("", "..") else data
    return Path("joined") / (resolved.name if resolved.is_dir() else resolved.stem)
