"""The paper's figures, drawn from the runs of a table."""

from __future__ import annotations

from typing import Any

from fedwca.reproduce.plan_jobs import Job
from fedwca.results.pictures import NotDrawn, clusters, draw_bars, draw_weights
from fedwca.results.pictures.accuracy import draw_curves
from fedwca.results.pictures.bars import describe_accuracy
from fedwca.results.table_rows import summarise
from fedwca.results.trial_key import TrialKey
from fedwca.runs.load_data import load
from fedwca.runs.resuming.reuse_runs import CollectedRuns
from fedwca.runs.split_trials import split_trial


def draw_figure(job: Job, domain: str, collected: CollectedRuns) -> Any:
    """Draw one figure from the runs of one source or target; figures of a single run show the first.

    Raises:
        NotDrawn: there are too few rounds for it, or the runs it shows diverged.
    """
    methods, quick_note = job.methods, " (--quick)" if job.quick else ""
    title = f"{job.dataset}, {job.domain_role or 'partition'} {domain}{quick_note}"
    if job.found.shows == "curves":
        curves = {name: (row, collected.runs[name].lines_of(name)) for row, name in methods.items()}
        _, accuracy_text = describe_accuracy(next(iter(collected.runs.values())).results)
        return draw_curves(curves, f"{job.table}: {title}", accuracy_text)
    if job.found.shows == "domains":
        entries = summarise(collected.table)
        bars = {name: {**entries[name], "label": row} for row, name in methods.items()}
        return draw_bars(bars, f"Accuracy by target domain: {title}")
    first = {
        row: {r["round"]: r for r in collected.runs[name].rounds(name, TrialKey())} for row, name in methods.items()
    }
    domains = collected.runs[next(iter(methods.values()))].domains
    if job.found.shows == "weights":
        last = collected.config.rounds - 1
        if last < 1:
            raise NotDrawn("clients weigh clusters from round 1 on, so it needs --rounds 2 or more")
        rounds = sorted({min(2, last), min(50, last)})
        complete = {row: records for row, records in first.items() if last in records}
        chosen = {row: [records[number] for number in rounds] for row, records in complete.items()}
        if not chosen:
            raise NotDrawn("the first run of every row diverged, so there are no weights to show")
        return draw_weights(chosen, domains, f"Weights of cluster models, first run: {title}")
    dataset, name = load(collected.config)
    images = [c.train.permute(0, 2, 3, 1).numpy() for c in split_trial(collected.config, dataset, name, 0, 0).clients]
    (records,) = first.values()
    if 0 not in records:
        raise NotDrawn("the first run diverged in round 0, so there are no clusters to show")
    return clusters(records[0]["labels"], images, domains, f"First run: {title}")
