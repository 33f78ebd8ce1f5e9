"""The table of `choices.py`: readings that the paper leaves open, each minus what it is compared with."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedwca.results.statistics import Difference, paired_difference
from fedwca.results.tables import MISSING, Table


def table(results: list[dict[str, Any]], environment: Mapping[str, Any]) -> str:
    """A row a reading, a column a source and one for all sources together; what is not there is a dash."""
    accuracy: dict[str, dict[tuple[str, int], float]] = {}
    for entry in results:
        seeds = range(entry["config"]["seed"], entry["config"]["seed"] + len(entry["runs"]))
        by_run = {(entry["source"], seed): mean for seed, mean in zip(seeds, entry["runs"], strict=True)}
        accuracy.setdefault(entry["reading"], {}).update(by_run)
    sources = list(dict.fromkeys(entry["source"] for entry in results))
    columns = [[source] for source in sources] + ([sources] if len(sources) > 1 else [])
    names = [*(f"source {source}" for source in sources), "all"][: len(columns)]
    lines = []
    compared = {e["reading"]: (e["question"], e["against"]) for e in results if e["against"] in accuracy}
    for reading, (question, base) in compared.items():
        cells = []
        for column in columns:
            ours, theirs = ({run: v for run, v in accuracy[r].items() if run[0] in column} for r in (reading, base))
            cells.append(apart(paired_difference(ours, theirs)))
        lines.append([reading, base, question, *cells])
    config = results[0]["config"]
    bases = [reading for reading in accuracy if reading in {base for _, base in compared.values()}]
    means = [f"{base} {statistics.fmean(accuracy[base].values()):.1f}" for base in bases]
    others = {base: size(entry["config"]) for base in bases for entry in results if entry["reading"] == base}
    differing = [f"Minus {base}: {text}." for base, text in others.items() if text != size(config)]
    notes = [
        "Difference of mean accuracies over clients after the last round, in points, paired by source and seed,",
        "with its 95 % interval (Student's t) and n; **bold** where the interval excludes 0. Accuracies in percent",
        f"over all these runs: {', '.join(means)}. Digit-Five files (`benchmarks/choices.py`),",
        f"{size(config)}; {name_machines([environment])}.",
        *differing,
    ]
    written = noted(Table("", ("reading", "minus", "question", *names), lines, heads=3), notes)
    return written.replace(r"\*\*", "**")  # what is bold in a cell is so on purpose


def name_machine(environment: Mapping[str, Any]) -> str:
    """On what a run was made, its accelerator first.

    >>> name_machine({"cores": 1, "cpu": "a CPU"}), name_machine({"cores": 2, "cpu": "a CPU", "device": "a GPU"})
    ('1 core of a CPU', 'a GPU, 2 cores of a CPU')
    """
    device, cores = environment.get("device", "cpu"), environment["cores"]
    return ("" if device == "cpu" else f"{device}, ") + f"{cores} core{'s' * (cores > 1)} of {environment['cpu']}"


def name_machines(environments: Iterable[Mapping[str, Any]]) -> str:
    """On what runs were made, each machine once.

    >>> name_machines([{"cores": 1, "cpu": "a CPU"}, {"cores": 2, "cpu": "another"}, {"cores": 1, "cpu": "a CPU"}])
    '1 core of a CPU; 2 cores of another'
    """
    return "; ".join(dict.fromkeys(map(name_machine, environments)))


def on_machines(environments: Iterable[Mapping[str, Any]]) -> str:
    """The same as a sentence, for the notes under a table.

    >>> on_machines([{"cores": 1, "cpu": "a CPU"}])
    'On 1 core of a CPU.'
    """
    return f"On {name_machines(environments)}."


def size(config: dict[str, Any]) -> str:
    """How large a federation is and how long it trains."""
    training = config["training"]
    return (
        f"{config['clients']} clients per target domain, at most {config['samples']} images each before the split, "
        f"{config['rounds']} rounds of {training['epochs']} epochs, learning rate {training['lr']}"
    )


def apart(found: Difference | None) -> str:
    """A paired difference with its interval and number of pairs, bold where the interval excludes 0."""
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.mean:+.2f}, n = {found.n}"
    text = f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
    return (f"**{text}**" if found.low > 0 or found.high < 0 else text) + f", n = {found.n}"


BINS = (0.0, 40.0, 60.0, 80.0, 100.1)
"""Percent of images, labelled rightly, between which rows of `gains_by_right` are."""


def gains_by_right(columns: Sequence[Sequence[tuple[float, float]]]) -> list[list[str]]:
    """A row a bin of how much is right that something is in, a cell a column: mean of gains, interval and number.

    Args:
        columns: of each, (percent that is right, gain in points).
    """
    lines = []
    for low, high in pairwise(BINS):
        cells = []
        for own in columns:
            gains = {place: gain for place, (right, gain) in enumerate(own) if low <= right < high}
            cells.append(apart(paired_difference(gains, dict.fromkeys(gains, 0.0))) if gains else MISSING)
        if set(cells) != {MISSING}:
            lines.append([f"{low:.0f} to {high:.0f} %", *cells])
    return lines


def noted(table: Table, notes: Sequence[str]) -> str:
    """A table in Markdown with notes below it to the letter: they are Markdown of our own, which it would escape."""
    return "\n".join([table.markdown(), "", *notes])
