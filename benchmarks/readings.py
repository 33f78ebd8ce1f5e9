"""The table of `choices.py`: readings that the paper leaves open, each minus what it is compared with."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedwca.results.statistics import Difference, paired_difference
from fedwca.results.tables import MISSING, Table


def table(results: list[dict[str, Any]], environment: Mapping[str, Any]) -> str:
    """One row per reading, one column per source and one for all sources together; a dash where a value is missing."""
    accuracy: dict[str, dict[tuple[str, int], float]] = {}
    for entry in results:
        # Entries without the field are of an earlier version; none of their runs diverged.
        source_models = entry.get("source_models", range(len(entry["runs"])))
        by_run = {
            (entry["source"], entry["config"]["seed"] + source_model): mean
            for source_model, mean in zip(source_models, entry["runs"], strict=True)
        }
        accuracy.setdefault(entry["reading"], {}).update(by_run)
    sources = list(dict.fromkeys(entry["source"] for entry in results))
    columns = [[source] for source in sources] + ([sources] if len(sources) > 1 else [])
    names = [*(f"source {source}" for source in sources), "all"][: len(columns)]
    lines = []
    compared = {
        entry["reading"]: (entry["question"], entry["against"]) for entry in results if entry["against"] in accuracy
    }
    for reading, (question, base) in compared.items():
        cells = []
        for column in columns:
            reading_accuracy, base_accuracy = (
                {run: value for run, value in accuracy[r].items() if run[0] in column} for r in (reading, base)
            )
            cells.append(apart(paired_difference(reading_accuracy, base_accuracy)))
        lines.append([reading, base, question, *cells])
    config = results[0]["config"]
    bases = [reading for reading in accuracy if reading in {base for _, base in compared.values()}]
    means = [f"{base} {statistics.fmean(accuracy[base].values()):.1f}" for base in bases]
    size_by_base = {base: size(entry["config"]) for base in bases for entry in results if entry["reading"] == base}
    size_notes = [f"Minus {base}: {text}." for base, text in size_by_base.items() if text != size(config)]
    notes = [
        "Difference of mean accuracies over clients after the last round, in points, paired by source and seed,",
        "with its 95 % interval (Student's t) and n; **bold** where the interval excludes 0. Accuracies in percent",
        f"over all these runs: {', '.join(means)}. Digit-Five files (`benchmarks/choices.py`),",
        f"{size(config)}; {name_machines([environment])}.",
        *size_notes,
    ]
    return noted(Table("", ("reading", "minus", "question", *names), lines, heads=3), notes)


def environments(result: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What entries of a results file were measured on: each its own environment, or else the file's.

    >>> environments({"environment": {"cores": 1}}, [{}, {"environment": {"cores": 2}}])
    [{'cores': 1}, {'cores': 2}]
    """
    return [entry.get("environment", result["environment"]) for entry in entries]


def name_machine(environment: Mapping[str, Any]) -> str:
    """The hardware that a run was made on, its accelerator first.

    >>> name_machine({"cores": 1, "cpu": "a CPU"}), name_machine({"cores": 2, "cpu": "a CPU", "device": "a GPU"})
    ('1 core of a CPU', 'a GPU, 2 cores of a CPU')
    """
    device, cores = environment.get("device", "cpu"), environment["cores"]
    return ("" if device == "cpu" else f"{device}, ") + f"{cores} core{'s' * (cores > 1)} of {environment['cpu']}"


def name_machines(environments: Iterable[Mapping[str, Any]]) -> str:
    """The hardware that runs were made on, each machine once.

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


NOT_COMPARED = {"baselines", "source_models", "components", "data"}
"""Settings in which the runs of a table may differ: which methods, how many runs, and where the data are."""


def check_same_settings(configs: Mapping[str, Mapping[str, Any]], *apart: str) -> None:
    """Check that runs that are put into one table have the same settings.

    Args:
        configs: settings of a run by its name; a setting that an earlier version did not have is not compared.
        apart: settings in which they may differ besides `NOT_COMPARED`.

    Raises:
        ValueError: two runs differ in a setting.

    >>> check_same_settings({"a": {"samples": 9, "source": "x"}, "b": {"samples": 8, "source": "y"}}, "source")
    Traceback (most recent call last):
    ValueError: a and b cannot be in one table: samples is 9 and 8; keep runs of the same settings
    """
    first_with: dict[str, str] = {}
    for name, config in configs.items():
        for key in sorted(config.keys() - NOT_COMPARED - set(apart)):
            first = first_with.setdefault(key, name)
            if configs[first][key] != config[key]:
                raise ValueError(
                    f"{first} and {name} cannot be in one table: {key} is {configs[first][key]} and {config[key]}; "
                    "keep runs of the same settings"
                )


def size(config: dict[str, Any]) -> str:
    """A federation's size and its length of training, in words."""
    training = config["training"]
    return (
        f"{config['clients']} clients per target domain, at most {config['samples']} images each before the split, "
        f"{config['rounds']} rounds of {training['epochs']} epochs, learning rate {training['lr']}"
    )


def apart(difference: Difference | None) -> str:
    """A paired difference with its interval and number of pairs, bold where the interval excludes 0.

    An interval of two pairs says nothing, and is left out.
    """
    if difference is None:
        return "–"
    if difference.low is None or difference.high is None or difference.n < 3:
        return f"{difference.mean:+.2f}, n = {difference.n}"
    text = f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"
    return (f"**{text}**" if difference.low > 0 or difference.high < 0 else text) + f", n = {difference.n}"


BINS = (0.0, 40.0, 60.0, 80.0, 100.1)
"""Percent of rightly labelled images: bounds of the rows of `gains_by_right`."""
PAIR_NOTE = "a value for each pair of a source and a target domain, the mean over source models"
"""What a value of `gains_by_right` is, for notes."""


Pair = tuple[str, str]
"""A source and a target domain."""


def gains_by_right(columns: Sequence[Sequence[tuple[Pair, float, float]]]) -> list[list[str]]:
    """One row per bin of `BINS` that has pairs, with a cell per column: mean gain, its interval and number of pairs.

    Values of one pair are averaged first: source models of one source are no further pairs.

    Args:
        columns: values of each column, as (pair, percent that is right, gain in points).
    """
    lines = []
    means = [mean_by_pair(column) for column in columns]
    for low, high in pairwise(BINS):
        cells = []
        for column in means:
            gains = {pair: gain for pair, (right, gain) in column.items() if low <= right < high}
            cells.append(_gain_cell(list(gains.values())))
        if set(cells) != {MISSING}:
            lines.append([f"{low:.0f} to {high:.0f} %", *cells])
    return lines


def _gain_cell(gains: Sequence[float]) -> str:
    """Mean gain, its interval if there are three pairs or more (that of two says nothing), and their number."""
    if len(gains) < 3:
        return f"{statistics.fmean(gains):+.2f}, n = {len(gains)}" if gains else MISSING
    by_number = dict(enumerate(gains))
    return apart(paired_difference(by_number, dict.fromkeys(by_number, 0.0)))


def mean_by_pair(values: Sequence[tuple[Pair, float, float]]) -> dict[Pair, tuple[float, float]]:
    """Mean of both numbers over the values of each pair.

    >>> mean_by_pair([(("a", "b"), 40.0, 1.0), (("a", "b"), 50.0, 2.0), (("b", "a"), 10.0, 0.0)])
    {('a', 'b'): (45.0, 1.5), ('b', 'a'): (10.0, 0.0)}
    """
    numbers: dict[Pair, list[tuple[float, float]]] = defaultdict(list)
    for pair, right, gain in values:
        numbers[pair].append((right, gain))
    return {
        pair: (statistics.fmean(right for right, _ in both), statistics.fmean(gain for _, gain in both))
        for pair, both in numbers.items()
    }


def noted(table: Table, notes: Sequence[str]) -> str:
    """A table in Markdown with notes below it; the notes, and bold text in cells, are Markdown already."""
    return "\n".join([table.markdown().replace(r"\*\*", "**"), "", *notes])
