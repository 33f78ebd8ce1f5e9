"""The tables of `paper_size.py` in docs/benchmarks.md and docs/internals/measured-reproductions.md; no script."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from paper_size_numbers import (
    DIGITS,
    MOMENTS,
    MOMENTS_PACS,
    ONE_HOT_BY_MOMENTS,
    OWN,
    PACS,
    PAPER_DIGITS,
    RIVALS,
    SOURCE_ADA_BN,
    by_run,
    by_target,
    finished,
    finished_by_moments,
    finished_with,
    label_of,
    means,
    methods,
    methods_of_any,
)
from paper_size_pieces import KINDS, Kind
from readings import PAIR_NOTE, gains_by_right, mean_by_pair, name_machine, noted

from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, mean_cell, sample_cell


def command(kind: Kind) -> str:
    """The command that measures a kind, as Markdown."""
    return f"`python benchmarks/paper_size.py{' --device cuda' if kind.device == 'cuda' else ''}`"


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
        lost = sum(piece["methods"].get(method, {}).get("diverged", 0) for piece in pieces)
        trials = lost + sum(len(entry["accuracy"]) for entry in entries.values())
        lines.append(
            [
                label_of(pieces, method) + (f" (diverged in {lost} of {trials} trials)" if lost else ""),
                *cells,
                # Over some of the sources alone it would be no mean to compare with those of other rows.
                mean_cell(statistics.fmean(map(statistics.fmean, by_source))) if all(by_source) else Cell(MISSING),
                *map(difference_cell, differences),
                Cell(f"{statistics.fmean(ari):.2f}") if ari else Cell(""),
                Cell(f"{len(values)}"),
            ]
        )
    minus = [f"{label_of(pieces, method)} minus it" for method in compared]
    heads = ("method", *(f"source {source}" for source in sources), "mean", *minus, "ARI", "n")
    return Table("", heads, lines, notes(pieces)).markdown()


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
    # Over all source models, so that a pair is in one row even where a rival was not run from each.
    pairs = mean_by_pair([((source, domain), value, 0.0) for (source, _, domain), value in source_accuracy.items()])
    lines = gains_by_right(
        [
            [
                (
                    (target[0], target[2]),
                    pairs[target[0], target[2]][0],
                    method_accuracy[target] - rival_accuracy[target],
                )
                for target in rival_accuracy
                if target in source_accuracy and target in method_accuracy
            ]
            for rival_accuracy in rival_accuracies
        ]
    )
    name, *labels = (label_of(pieces, key) for key in (method, *rivals))
    sentences = [
        f"{name} minus the method of each column, {PAIR_NOTE}, with its 95 %",
        "interval over pairs (Student's t) and n; **bold** where it excludes 0.",
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
    "paper_size-moments_pacs": partial(table, MOMENTS_PACS, (MOMENTS,), partial(finished_with, PACS, SOURCE_ADA_BN)),
    "paper_size-paper_digits-rounds": partial(curves, PAPER_DIGITS, 20),
    "paper_size-paper_digits-targets": partial(targets, PAPER_DIGITS, ("source_only", "source_ada_bn", "one_hot", OWN)),
    "paper_size-digits-right": partial(gains_by_source_model, DIGITS),
    "paper_size-digits-targets": partial(targets, DIGITS),
    "paper_size-pacs-right": partial(
        gains_by_source_model,
        PACS,
        MOMENTS,
        ("source_ada_bn", "local", "fedavg", ONE_HOT_BY_MOMENTS, "fedscal"),
        partial(finished_with, MOMENTS_PACS, ONE_HOT_BY_MOMENTS),
    ),
    "paper_size-pacs-targets": partial(
        targets, PACS, ("source_only", "source_ada_bn", "local", "fedavg", OWN, MOMENTS, "fedscal")
    ),
}
