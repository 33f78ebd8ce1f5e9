"""Warnings for readers of a run's numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from fedwca.core.count_of import count_of
from fedwca.core.mean import is_lower, mean
from fedwca.results.diverged_runs import divergence_notes, whole_runs
from fedwca.results.last_phase_notes import last_phase_notes
from fedwca.results.low_trust import LABELLED_MODEL, low_trust_note, name_clients
from fedwca.results.read_run import Run
from fedwca.results.shown_records import Record, accuracy_of_all, shown_records
from fedwca.results.table_rows import CLOSE
from fedwca.results.trial_key import TrialKey

FEW_IMAGES = 10
"""Up to so many training images of a client, that all of them get one label says nothing."""


def run_warnings(run: Run) -> list[str]:
    """Warnings about a run in sentences, the most serious first; empty if there is nothing to doubt."""
    warnings = []
    if not run.complete:
        warnings.append("The run is not complete: the last round of an unfinished method is an early one.")
    if run.complete and run.records and not run.has_all_rounds:
        warnings.append(
            "rounds.jsonl lacks rounds that were run, so the table is that of summary.json, and curves end early."
        )
    if not run.records and run.results:
        warnings.append(
            "rounds.jsonl is not in the folder, or holds no whole line, so there is nothing here about single rounds "
            "or clients."
        )
    divergences = {str(method["label"]): run.diverged.get(name, {}) for name, method in run.methods.items()}
    warnings += [f"{sentence}. No number of the table is of it." for sentence in divergence_notes(divergences)]
    warnings += [f"{sentence}." for sentence in last_phase_notes(run.records, run.labels)]
    finishing = {name for name, method in run.methods.items() if "finish" in method}
    # All other methods query the same source models about the same images, so one note covers them.
    trust = _mean_trust([record for record in run.records if record["method"] not in finishing])
    if note := low_trust_note(trust, domains=run.domains):
        warnings.append(f"{note[0].upper()}{note[1:]}.")
    if untested := _untested(run):
        pronoun = "it" if len(untested) == 1 else "them"
        warnings.append(f"Without test images: {name_clients(untested)}. No mean counts {pronoun}.")
    for name, label in run.labels.items():
        records, whole = run.rounds(name), whole_runs(run.lines_of(name))
        if name in finishing and (note := low_trust_note(_mean_trust(records), LABELLED_MODEL, run.domains)):
            warnings.append(f"{label}: {note}.")
        warnings += [f"{label}: {text}" for text in _of(records, whole, run.first_model_of(name))]
    if run.records and len(run.runs) == 1:
        runs_text = f"one {run.first_model}, one trial"
        warnings.append(f"There is one run only ({runs_text}), so nothing says how much differs by chance.")
    return warnings


def _untested(run: Run) -> list[int]:
    """Clients without test images in all runs; where there are new clients, only those are meant to be measured."""
    shown = [record for trials in shown_records(whole_runs(run.lines)).values() for record in trials.values()]
    tested = {k for record in shown for k, accuracy in enumerate(accuracy_of_all(record)) if not math.isnan(accuracy)}
    newcomers, clients = run.about.get("newcomers", 0), len(run.domains)
    return [k for k in range(clients - newcomers if newcomers else 0, clients) if k not in tested] if shown else []


def _mean_trust(records: Sequence[Record]) -> list[float]:
    """Mean trust of each client over source models and trials; empty if no record has it."""
    trust_by_run = {TrialKey.of(record): record["trust"] for record in records if "trust" in record}
    return [mean(values) for values in zip(*trust_by_run.values(), strict=True)]


def _of(records: Sequence[Record], whole: Sequence[Record], first_model: str) -> Iterator[str]:
    yield from _collapsed(records)
    yield from _worse(whole, first_model)
    yield from _divided(records)
    yield from _alone(records)
    yield from _tied(records)
    yield from _dropped(records)


def _where(record: Record) -> str:
    return f"round {record['round'] + 1} of model {record['source_model']}, trial {record['trial']}"


def _train_images(records: Sequence[Record]) -> dict[TrialKey, list[int]]:
    """Number of training images of each client by trial; earlier releases did not record it."""
    return {TrialKey.of(record): record["train_images"] for record in records if record.get("train_images")}


def _collapsed(records: Sequence[Record]) -> Iterator[str]:
    """Clients with label entropy 0: all their images, which are not few, have the same label."""
    sizes = _train_images(records)
    hits = [
        (record, k)
        for record in records
        for k, h in enumerate(record.get("label_entropy", ()))
        if h == 0 and (TrialKey.of(record) not in sizes or sizes[TrialKey.of(record)][k] > FEW_IMAGES)
    ]
    if hits:
        clients = sorted({k for _, k in hits})
        yield (
            f"{name_clients(clients)} gave all images one label (collapsed classes), first in {_where(hits[0][0])}. "
            "Training on such labels cannot help."
        )


def _worse(records: Sequence[Record], first_model: str) -> Iterator[str]:
    """A method that is worse than the model it started from, in the round that tables show."""
    starts = {TrialKey.of(record): record for record in records if record["round"] < 0}
    ends = {
        trial: record
        for trials in shown_records(records).values()
        for trial, record in trials.items()
        if record["round"] >= 0
    }
    trials = [trial for trial in ends if trial in starts]
    accuracy_before, accuracy_after = (
        mean(mean(group[trial]["accuracy"]) for trial in trials) for group in (starts, ends)
    )
    if trials and is_lower(accuracy_after, accuracy_before):
        yield (
            f"ends below the {first_model} it began from "
            f"({accuracy_before:.1f} % before, {accuracy_after:.1f} % after)."
        )


def _divided(records: Sequence[Record]) -> Iterator[str]:
    """Divisors of similarities that are not above 0."""
    hits = [(record, k) for record in records for k, d in enumerate(record.get("divisor", ())) if d <= 0]
    if hits:
        clients = sorted({k for _, k in hits})
        yield (
            f"similarities of {name_clients(clients)} were divided by a number that is not above 0, first in "
            f"{_where(hits[0][0])}: the rule may then prefer the worse label (decisions, A13)."
        )


def _alone(records: Sequence[Record]) -> Iterator[str]:
    """Clusters with a single client, or a single cluster of all clients, where a clusterer formed them."""
    # The last clustering of each run, which its models belong to: some methods cluster anew in each round.
    grouped = list({TrialKey.of(record): record for record in records if "clustering" in record}.values())
    sizes = [size for record in grouped for size in record["clustering"]["sizes"]]
    if grouped and max(sizes) == 1 < len(sizes):
        yield "every client is a cluster of its own, so cluster models are single clients' models."
    elif grouped and (number := sizes.count(1)):
        verb = "has" if number == 1 else "have"
        yield f"{number} of {len(sizes)} clusters {verb} a single client, whose model is handed on as it is."
    elif grouped and (number := sum(len(record["clustering"]["sizes"]) == 1 for record in grouped)):
        yield f"all clients are in one cluster in {number} of {len(grouped)} runs: there it averages everybody."
    affected_rounds = 0
    for record in (record for record in records if grouped and record.get("weights")):
        rows = record["weights"]
        contributors = Counter(c for c, row in zip(record.get("labels", ()), rows, strict=True) if not _missing(row))
        affected_rounds += any(contributors[c] == 1 < record["labels"].count(c) for c in contributors)
    if affected_rounds:
        yield (
            f"in {count_of(affected_rounds, 'round')} some cluster had a single contributor, the others being absent."
        )


def _missing(row: object) -> bool:
    return not isinstance(row, list) or any(v is None or math.isnan(v) for v in row)


def _tied(records: Sequence[Record]) -> Iterator[str]:
    """First neighbours that are nearly tied with the second."""
    for record in records:
        margins = record.get("clustering", {}).get("margins", ())
        close = [k for k, margin in enumerate(margins) if margin is not None and margin <= CLOSE]
        if close:
            yield (
                f"the second neighbour of {name_clients(close)} is at most {100 * (CLOSE - 1):.0f} % farther than the "
                f"first ({_where(record)}): a small change may group them otherwise."
            )
            return


def _dropped(records: Sequence[Record]) -> Iterator[str]:
    """Images that lost their label because no partner for mixing was found."""
    sizes, hits = _train_images(records), []
    for record in records:
        for k, (lost, mixed) in enumerate(zip(record.get("dropped", ()), record.get("mixed", ()), strict=True)):
            disagreement = 1 - record["agreement"][k]
            if disagreement <= 0:  # other pseudo-labelers drop images too, but of a single model
                continue
            trial = TrialKey.of(record)
            # Without sizes: images without agreement were either mixed or dropped, unless mu is 0.
            images = sizes[trial][k] if trial in sizes else (lost + mixed) / disagreement
            if lost > 0.5 * disagreement * images and lost > 0.1 * images:
                hits.append((record, k))
    if hits:
        clients = sorted({k for _, k in hits})
        yield (
            f"{name_clients(clients)} found no partner to mix with for most images the models disagree on "
            f"and dropped more than a tenth of all, first in {_where(hits[0][0])}."
        )
