"""The tables of `paper_size.py` in docs/benchmarks.md and docs/internals/measured-reproductions.md; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from paper_size_pieces import BY_MOMENTS, KINDS, TABLE2, Kind
from readings import gains_by_right, name_machine, noted

from fedwca.config.method_spec import parse_method
from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.tables import Cell, Table, difference_cell, mean_cell, sample_cell

RESULTS = Path(__file__).resolve().parent / "results" / "paper_size"
DIGITS, PACS, MOMENTS_PACS, PAPER_DIGITS = (
    next(kind for kind in KINDS if kind.name == name) for name in ("digits", "pacs", "moments_pacs", "paper_digits")
)
OWN = "fedwca"
MOMENTS, ONE_HOT_BY_MOMENTS = (parse_method(method).name for method in BY_MOMENTS)
RIVALS = ("source_ada_bn", "local", "fedavg", "one_hot")
"""What FedWCA is compared with by target domain."""
Run = tuple[str, int]
"""A source domain, and the seed of a source model."""


def finished(kind: Kind) -> list[dict[str, Any]]:
    """The pieces of a kind that have all methods except those they may lack; all pieces if there are none yet.

    Without unfinished pieces the means of all methods are over the same runs.
    """
    pieces = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{kind.name}-*.json"))]
    needed = {parse_method(method).name for method in kind.methods} - set(kind.may_lack)
    return [piece for piece in pieces if piece["complete"] or needed <= piece["methods"].keys()] or pieces


def with_one_hot_by_moments(kind: Kind) -> list[dict[str, Any]]:
    """The finished pieces of a kind, with One-hot by moments where it was run from the same source model.

    One-hot by moments is taken from the pieces of kind ``moments_pacs``.
    """
    pieces = {(piece["source"], piece["seed"]): piece for piece in finished(kind)}
    for piece in finished(MOMENTS_PACS):
        entries = pieces.get((piece["source"], piece["seed"]), {"methods": {}})["methods"]
        one_hot = piece["methods"].get(ONE_HOT_BY_MOMENTS)
        if one_hot and MOMENTS in entries and entries[MOMENTS]["source_weights"] == one_hot["source_weights"]:
            entries[ONE_HOT_BY_MOMENTS] = one_hot
    return list(pieces.values())


def finished_by_moments(kind: Kind) -> list[dict[str, Any]]:
    """The pieces in which FedWCA and One-hot have the clusters by moments, of this kind and of kind ``digits``.

    Those of kind ``digits`` are the runs in ``kind.known``: their clusters by first layers equal those by moments.

    Raises:
        ValueError: such a piece of kind ``digits`` has One-hot in other clusters.
    """
    pieces, repeats = finished(kind), []
    for piece in finished(DIGITS) if pieces else []:
        if (piece["source"], piece["seed"]) in kind.known:
            methods_by_moments = {MOMENTS: piece["methods"][MOMENTS], ONE_HOT_BY_MOMENTS: piece["methods"]["one_hot"]}
            if len({tuple(entry["labels"]) for entry in methods_by_moments.values()}) > 1:
                raise ValueError(f"digits-{piece['source']}-{piece['seed']} has other clusters by moments than One-hot")
            repeats.append(piece | {"methods": methods_by_moments})
    return pieces + repeats


def command(kind: Kind) -> str:
    """The command that measures a kind, as Markdown."""
    return f"`python benchmarks/paper_size.py{' --device cuda' if kind.device == 'cuda' else ''}`"


def by_run(pieces: Sequence[Mapping[str, Any]], method: str) -> dict[Run, Mapping[str, Any]]:
    """Results of a method by run, without pieces in which none of its trials finished."""
    entries = {(piece["source"], piece["seed"]): piece["methods"].get(method) for piece in pieces}
    return {run: entry for run, entry in entries.items() if entry and entry["accuracy"]}


def means(entries: Mapping[Run, Mapping[str, Any]]) -> dict[Run, float]:
    """Mean accuracy in percent by run, over trials and over clients with test images."""
    return {run: statistics.fmean(map(mean_of_known, entry["accuracy"])) for run, entry in entries.items()}


def table(
    kind: Kind, compared: Sequence[str] = (OWN,), read_pieces: Callable[[Kind], list[dict[str, Any]]] = finished
) -> str:
    """One row per method, one column per source, and the compared methods minus the row's, paired by run.

    Args:
        kind: whose pieces.
        compared: methods that have a column of differences.
        read_pieces: reads the pieces of a kind.
    """
    pieces = read_pieces(kind)
    runs = {method: by_run(pieces, method) for method in methods(pieces)}
    if not any(runs.values()):
        return f"Not measured yet: {command(kind)}."
    sources = [name for name in kind.sources if any(name == run[0] for entries in runs.values() for run in entries)]
    lines, minuends = [], {method: means(runs.get(method, {})) for method in compared}
    for method, entries in runs.items():
        if not entries:
            continue
        values = means(entries)
        by_source = [[v for run, v in values.items() if run[0] == source] for source in sources]
        cells = [sample_cell(sample_of(sample)) for sample in by_source]
        differences = [
            None if method == minuend else paired_difference(minuend_means, values)
            for minuend, minuend_means in minuends.items()
        ]
        ari = [cluster["ari"] for entry in entries.values() for cluster in entry["clusters"]]
        lines.append(
            [
                label_of(pieces, method),
                *cells,
                mean_cell(statistics.fmean(statistics.fmean(sample) for sample in by_source if sample)),
                *map(difference_cell, differences),
                Cell(f"{statistics.fmean(ari):.2f}") if ari else Cell(""),
                Cell(f"{len(values)}"),
            ]
        )
    minus = [f"{label_of(pieces, method)} minus it" for method in compared]
    heads = ("method", *(f"source {source}" for source in sources), "mean", *minus, "ARI", "n")
    return Table("", heads, lines, notes(pieces)).markdown()


def by_target(pieces: Sequence[Mapping[str, Any]], method: str) -> dict[tuple[str, int, str], float]:
    """Mean accuracy in percent over clients and trials, by source, seed of the source model and target domain."""
    means_by_place = {}
    for piece in pieces:
        entry = piece["methods"].get(method) or {"accuracy": []}
        trials = [mean_by_domain(piece["domains"], accuracy) for accuracy in entry["accuracy"]]
        for domain in trials[0] if trials else ():
            mean = statistics.fmean(trial[domain] for trial in trials)
            means_by_place[piece["source"], piece["seed"], domain] = mean
    return means_by_place


def label_of(pieces: Sequence[Mapping[str, Any]], method: str) -> str:
    """Label of a method in most of the pieces that have it (the oldest may say it otherwise); its name if none does."""
    labels = [str(piece["methods"][method]["label"]) for piece in pieces if method in piece["methods"]]
    return statistics.mode(labels or [method])


def methods_of_any(pieces: Sequence[Mapping[str, Any]]) -> set[str]:
    """Methods that some piece has."""
    return {method for piece in pieces for method in piece["methods"]}


def gains_by_source_model(
    kind: Kind,
    method: str = OWN,
    rivals: Sequence[str] = RIVALS,
    read_pieces: Callable[[Kind], list[dict[str, Any]]] = finished,
) -> str:
    """A method minus its rivals, over the accuracy of the untouched source model in a target domain."""
    pieces = read_pieces(kind)
    present = methods_of_any(pieces)
    if not {"source_only", method} <= present:
        return f"Not measured yet: {command(kind)}."
    rivals = [rival for rival in rivals if rival in present]
    source_accuracy, method_accuracy = by_target(pieces, "source_only"), by_target(pieces, method)
    rival_accuracies = [by_target(pieces, rival) for rival in rivals]
    lines = gains_by_right(
        [
            [
                (source_accuracy[target], method_accuracy[target] - rival_accuracy[target])
                for target in rival_accuracy
                if target in source_accuracy and target in method_accuracy
            ]
            for rival_accuracy in rival_accuracies
        ]
    )
    name, *labels = (label_of(pieces, key) for key in (method, *rivals))
    sentences = [
        f"{name} minus the method of each column, a value for each target domain, source and source model, with its 95",
        "% interval (Student's t; values of one run share its source model) and n; **bold** where it excludes 0.",
    ]
    heads = ("the source model is right", *(f"minus {label}" for label in labels))
    return noted(Table("", heads, lines), [*sentences, notes(pieces)[-1]])


def targets(kind: Kind, method_names: Sequence[str] = ("source_only", *RIVALS, OWN)) -> str:
    """One row per source and target domain: mean accuracy of each method over clients, trials and source models."""
    pieces = finished(kind)
    present = methods_of_any(pieces)
    if OWN not in present:
        return f"Not measured yet: {command(kind)}."
    method_names = [method for method in method_names if method in present]
    values = {method: by_target(pieces, method) for method in method_names}
    source_targets = dict.fromkeys((source, domain) for source, _, domain in values[OWN])

    def mean_in(accuracy: Mapping[tuple[str, int, str], float], source_target: tuple[str, str]) -> str:
        samples = [value for (source, _, domain), value in accuracy.items() if (source, domain) == source_target]
        return mean_cell(statistics.fmean(samples) if samples else None)

    lines = [
        [*source_target, *(mean_in(accuracy, source_target) for accuracy in values.values())]
        for source_target in source_targets
    ]
    labels = [label_of(pieces, method) for method in method_names]
    return Table(
        "",
        ("source", "target", *labels),
        lines,
        ["Percent, means over clients and source models.", notes(pieces)[-1]],
        heads=2,
    ).markdown()


def methods(pieces: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the methods that any piece has, in the order of `TABLE2` and `BY_MOMENTS`."""
    order = [parse_method(method).name for method in (*TABLE2, *BY_MOMENTS)]
    return sorted({name for piece in pieces for name in piece["methods"]}, key=order.index)


def source_models_and_trials(pieces: Sequence[Mapping[str, Any]]) -> str:
    """The source models and trials that means are over, for a note."""
    seeds, trials = sorted({piece["seed"] for piece in pieces}), pieces[0]["config"]["trials"]
    source_models = (
        f"source models (seeds {', '.join(map(str, seeds))})"
        if len(seeds) > 1
        else f"one source model (seed {seeds[0]})"
    )
    return f"{source_models}, {trials} {'trial' if trials == 1 else 'trials'} each"


def notes(pieces: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes under a table: how to read it, settings and hardware."""
    config = pieces[0]["config"]
    training = config["training"]
    environments = [piece["environment"] | entry for piece in pieces for entry in piece["methods"].values()]
    machines = "; ".join(sorted(set(map(name_machine, environments))))
    precision_note = {
        "bf16": " in bfloat16, evidence and evaluation in float32",
        "tf32": " in TensorFloat-32",
    }.get(config.get("precision"), "")
    return [
        "Percent of the clients' test images after the last round: mean ± std (ddof 1) over "
        f"{source_models_and_trials(pieces)}; n: runs, a source and a source model "
        "each; mean: of the sources. Differences are paired by run, with Student's t interval at 95 %. ARI: clusters "
        "after round 1 against the true domains; where two methods that differ in their clusterer alone have the same, "
        "they are one run.",
        f"Preset paper, {config['clients']} clients per target domain with all their images, {config['rounds']} rounds "
        f"of {training['epochs']} epochs{precision_note}, learning rate {training['lr']:g}. On {machines}.",
    ]


def curves(kind: Kind, spacing: int = 10) -> str:
    """Mean accuracy every ``spacing`` rounds, over clients, trials and source models."""
    pieces = finished(kind)
    rows: list[Sequence[str]] = []
    rounds = list(range(spacing, 1 + max((piece["config"]["rounds"] for piece in pieces), default=0), spacing))
    for method in methods(pieces):
        entries = by_run(pieces, method)
        # A method without training has one round after round -1, and keeps its accuracy.
        recorded = [curve for entry in entries.values() for curve in entry["curve"]]
        method_curves = [
            curve if len(curve) > 2 else curve + curve[-1:] * max(rounds) for curve in recorded if len(curve) > 1
        ]
        method_curves = [curve for curve in method_curves if len(curve) > max(rounds)]
        if method_curves:
            rows.append(
                [
                    label_of(pieces, method),
                    *(mean_cell(statistics.fmean(curve[r] for curve in method_curves)) for r in (0, *rounds)),
                ]
            )
    if not rows:
        return f"Not measured yet: {command(kind)}."
    heads = ("method", "source model", *(f"round {number}" for number in rounds))
    sources = ", ".join(dict.fromkeys(piece["source"] for piece in pieces))
    note = f"Percent, mean over clients; source {sources}, {source_models_and_trials(pieces)}."
    return Table("", heads, rows, [note, notes(pieces)[-1]]).markdown()


BLOCKS: dict[str, Callable[[], str]] = {
    f"paper_size-{kind.name}": partial(curves if kind.name == "digits40" else table, kind) for kind in KINDS
} | {
    "paper_size-moments": partial(
        table, next(kind for kind in KINDS if kind.name == "moments"), (MOMENTS,), finished_by_moments
    ),
    "paper_size-pacs": partial(table, PACS, (OWN, MOMENTS)),
    "paper_size-moments_pacs": partial(table, MOMENTS_PACS, (MOMENTS,)),
    "paper_size-paper_digits-rounds": partial(curves, PAPER_DIGITS, 20),
    "paper_size-paper_digits-targets": partial(targets, PAPER_DIGITS, ("source_only", "source_ada_bn", "one_hot", OWN)),
    "paper_size-digits-right": partial(gains_by_source_model, DIGITS),
    "paper_size-digits-targets": partial(targets, DIGITS),
    "paper_size-pacs-right": partial(
        gains_by_source_model,
        PACS,
        MOMENTS,
        ("source_ada_bn", "local", "fedavg", ONE_HOT_BY_MOMENTS, "fedscal"),
        with_one_hot_by_moments,
    ),
    "paper_size-pacs-targets": partial(
        targets, PACS, ("source_only", "source_ada_bn", "local", "fedavg", OWN, MOMENTS, "fedscal")
    ),
}
