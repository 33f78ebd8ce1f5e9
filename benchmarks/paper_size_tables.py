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
"""A source, and the seed of a source model."""


def finished(kind: Kind) -> list[dict[str, Any]]:
    """A kind's pieces that have the methods that tables wait for, so that means are over the same; where there are none
    yet, all by now.
    """
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{kind.name}-*.json"))]
    needed = {parse_method(method).name for method in kind.methods} - set(kind.may_lack)
    return [piece for piece in found if piece["complete"] or needed <= piece["methods"].keys()] or found


def with_one_hot_by_moments(kind: Kind) -> list[dict[str, Any]]:
    """Pieces, with One-hot in clusters by moments in those whose source model it was run from on PACS, too."""
    found = {(piece["source"], piece["seed"]): piece for piece in finished(kind)}
    for piece in finished(MOMENTS_PACS):
        own = found.get((piece["source"], piece["seed"]), {"methods": {}})["methods"]
        one_hot = piece["methods"].get(ONE_HOT_BY_MOMENTS)
        if one_hot and MOMENTS in own and own[MOMENTS]["source_weights"] == one_hot["source_weights"]:
            own[ONE_HOT_BY_MOMENTS] = one_hot
    return list(found.values())


def finished_by_moments(kind: Kind) -> list[dict[str, Any]]:
    """The pieces in which FedWCA and One-hot have the clusters by moments, with those of kind ``digits`` that are the
    same runs, where first layers lead to these clusters too.
    """
    own, repeats = finished(kind), []
    for piece in finished(DIGITS) if own else []:
        if (piece["source"], piece["seed"]) in kind.known:
            both = {MOMENTS: piece["methods"][MOMENTS], ONE_HOT_BY_MOMENTS: piece["methods"]["one_hot"]}
            if len({tuple(entry["labels"]) for entry in both.values()}) > 1:
                raise ValueError(f"digits-{piece['source']}-{piece['seed']} has other clusters by moments than One-hot")
            repeats.append(piece | {"methods": both})
    return own + repeats


def command(kind: Kind) -> str:
    """What measures a table."""
    return f"`python benchmarks/paper_size.py{' --device cuda' if kind.device == 'cuda' else ''}`"


def by_run(found: Sequence[Mapping[str, Any]], method: str) -> dict[Run, Mapping[str, Any]]:
    """What a method found; a piece in which no trial of it came to the end is left out."""
    own = {(piece["source"], piece["seed"]): piece["methods"].get(method) for piece in found}
    return {run: entry for run, entry in own.items() if entry and entry["accuracy"]}


def means(entries: Mapping[Run, Mapping[str, Any]]) -> dict[Run, float]:
    """Mean over clients with test images and trials, percent."""
    return {run: statistics.fmean(map(mean_of_known, entry["accuracy"])) for run, entry in entries.items()}


def table(kind: Kind, compared: Sequence[str] = (OWN,), read: Callable[[Kind], list[dict[str, Any]]] = finished) -> str:
    """A row a method, a column a source; some of them minus each, paired by source and source model."""
    found = read(kind)
    runs = {method: by_run(found, method) for method in methods(found)}
    if not any(runs.values()):
        return f"Not measured yet: {command(kind)}."
    sources = [name for name in kind.sources if any(name == run[0] for entries in runs.values() for run in entries)]
    lines, minuends = [], {method: means(runs.get(method, {})) for method in compared}
    for method, entries in runs.items():
        if not entries:
            continue
        values, label = means(entries), next(iter(entries.values()))["label"]
        by_source = [[v for run, v in values.items() if run[0] == source] for source in sources]
        cells = [sample_cell(sample_of(some)) for some in by_source]
        apart = [None if method == own else paired_difference(theirs, values) for own, theirs in minuends.items()]
        index = [cluster["ari"] for entry in entries.values() for cluster in entry["clusters"]]
        lines.append(
            [
                label,
                *cells,
                mean_cell(statistics.fmean(statistics.fmean(some) for some in by_source if some)),
                *map(difference_cell, apart),
                Cell(f"{statistics.fmean(index):.2f}") if index else Cell(""),
                Cell(f"{len(values)}"),
            ]
        )
    names = [next(iter(runs[method].values()))["label"] if runs.get(method) else "FedWCA" for method in compared]
    minus = [f"{name} minus it" for name in names]
    heads = ("method", *(f"source {source}" for source in sources), "mean", *minus, "ARI", "n")
    return Table("", heads, lines, notes(found)).markdown()


def by_target(found: Sequence[Mapping[str, Any]], method: str) -> dict[tuple[str, int, str], float]:
    """Mean over the clients of each source, source model and target domain, and over trials, percent."""
    means_by_place = {}
    for piece in found:
        entry = piece["methods"].get(method) or {"accuracy": []}
        trials = [mean_by_domain(piece["domains"], accuracy) for accuracy in entry["accuracy"]]
        for domain in trials[0] if trials else ():
            mean = statistics.fmean(trial[domain] for trial in trials)
            means_by_place[piece["source"], piece["seed"], domain] = mean
    return means_by_place


def label_of(found: Sequence[Mapping[str, Any]], method: str) -> str:
    """What a method is called in the pieces that have it."""
    return next((str(piece["methods"][method]["label"]) for piece in found if method in piece["methods"]), method)


def gains_by_source_model(
    kind: Kind,
    method: str = OWN,
    rivals: Sequence[str] = RIVALS,
    read: Callable[[Kind], list[dict[str, Any]]] = finished,
) -> str:
    """A method minus its rivals, over how often the untouched source model is right in a target domain."""
    found = read(kind)
    if not found:
        return f"Not measured yet: {command(kind)}."
    right, own = by_target(found, "source_only"), by_target(found, method)
    others = [by_target(found, rival) for rival in rivals]
    lines = gains_by_right([[(right[place], own[place] - theirs[place]) for place in theirs] for theirs in others])
    name, *labels = (label_of(found, key) for key in (method, *rivals))
    said = [
        f"{name} minus the method of each column, a value for each target domain, source and source model, with its 95",
        "% interval (Student's t; values of one run share its source model) and n; **bold** where it excludes 0.",
    ]
    heads = ("the source model is right", *(f"minus {label}" for label in labels))
    # What is bold in a cell is so on purpose.
    return noted(Table("", heads, lines), [*said, notes(found)[-1]]).replace(r"\*\*", "**")


def targets(kind: Kind, shown: Sequence[str] = ("source_only", *RIVALS, OWN)) -> str:
    """A row a source and target domain: means of methods over source models."""
    found = finished(kind)
    if not found:
        return f"Not measured yet: {command(kind)}."
    values = {method: by_target(found, method) for method in shown}
    pairs = dict.fromkeys((source, domain) for source, _, domain in values[OWN])
    lines = [
        [
            *pair,
            *(
                mean_cell(statistics.fmean(v for (s, _, d), v in own.items() if (s, d) == pair))
                for own in values.values()
            ),
        ]
        for pair in pairs
    ]
    labels = [found[0]["methods"][method]["label"] for method in shown]
    return Table(
        "",
        ("source", "target", *labels),
        lines,
        ["Percent, means over clients and source models.", notes(found)[-1]],
        heads=2,
    ).markdown()


def methods(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Methods that some piece has, in the order of the list of methods."""
    order = [parse_method(method).name for method in (*TABLE2, *BY_MOMENTS)]
    return sorted({name for piece in found for name in piece["methods"]}, key=order.index)


def source_models_and_trials(found: Sequence[Mapping[str, Any]]) -> str:
    """What numbers of pieces are means over, for a note."""
    seeds, trials = sorted({piece["seed"] for piece in found}), found[0]["config"]["trials"]
    which = (
        f"source models (seeds {', '.join(map(str, seeds))})"
        if len(seeds) > 1
        else f"one source model (seed {seeds[0]})"
    )
    return f"{which}, {trials} {'trial' if trials == 1 else 'trials'} each"


def notes(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was run and on what, under a table."""
    config = found[0]["config"]
    training = config["training"]
    every = [piece["environment"] | entry for piece in found for entry in piece["methods"].values()]
    machines = "; ".join(sorted(set(map(name_machine, every))))
    lowered = {
        "bf16": " in bfloat16, evidence and evaluation in float32",
        "tf32": " in TensorFloat-32",
    }.get(config.get("precision"), "")
    return [
        "Percent of the clients' test images after the last round: mean ± std (ddof 1) over "
        f"{source_models_and_trials(found)}; n: runs, a source and a source model "
        "each; mean: of the sources. Differences are paired by run, with Student's t interval at 95 %. ARI: clusters "
        "after round 1 against the true domains; where two methods that differ in their clusterer alone have the same, "
        "they are one run.",
        f"Preset paper, {config['clients']} clients per target domain with all their images, {config['rounds']} rounds "
        f"of {training['epochs']} epochs{lowered}, learning rate {training['lr']:g}. On {machines}.",
    ]


def curves(kind: Kind, apart: int = 10) -> str:
    """Mean accuracy after every so many rounds, over trials and source models: where curves lead."""
    found = finished(kind)
    rows: list[Sequence[str]] = []
    rounds = list(range(apart, 1 + max((piece["config"]["rounds"] for piece in found), default=0), apart))
    for method in methods(found):
        entries = by_run(found, method)
        # One without training has a single round, and stays where it leads.
        every = [path for entry in entries.values() for path in entry["curve"]]
        paths = [path if len(path) > 2 else path + path[-1:] * max(rounds) for path in every if len(path) > 1]
        paths = [path for path in paths if len(path) > max(rounds)]
        if paths:
            label = next(iter(entries.values()))["label"]
            rows.append([label, *(mean_cell(statistics.fmean(path[r] for path in paths)) for r in (0, *rounds))])
    if not rows:
        return f"Not measured yet: {command(kind)}."
    heads = ("method", "source model", *(f"round {number}" for number in rounds))
    sources = ", ".join(dict.fromkeys(piece["source"] for piece in found))
    note = f"Percent, mean over clients; source {sources}, {source_models_and_trials(found)}."
    return Table("", heads, rows, [note, notes(found)[-1]]).markdown()


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
