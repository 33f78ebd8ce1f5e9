"""Runs what a job of `fedwca reproduce` lacks, and makes its table: accuracies, groups, phases or clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwca.datasets import datasets
from fedwca.reproduce.definitions import layer_clusterer
from fedwca.reproduce.draw_figure import draw_figure
from fedwca.reproduce.groups_table import groups_beside
from fedwca.reproduce.phases_table import phases_apart
from fedwca.reproduce.plan_jobs import Job
from fedwca.reproduce.side_by_side import AVERAGE, accuracies_beside, clusters_beside, find_printed
from fedwca.results.comparison import Comparison
from fedwca.results.pictures import NotDrawn, save
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table
from fedwca.runs.reporter import RunReporter
from fedwca.runs.resuming.reuse_runs import CollectedRuns, collect_runs, warn_of_other_environments


@dataclass(frozen=True)
class JobResult:
    """The result of a job."""

    grid: Table
    values: list[dict[str, Any]]
    """The table's entries."""
    figures: list[Path]
    """Paths of the figures that were drawn, one for each source or target."""
    rows: list[Row]
    """Results of methods that train, by source or target."""


def run_job(job: Job, out: Path, reporter: RunReporter) -> JobResult:
    """Run what is missing, then draw the figure and make the table."""
    runs_by_domain = {domain: collect_runs(request, out, reporter) for domain, request in job.requests.items()}
    warn_of_other_environments([run for runs in runs_by_domain.values() for run in runs.runs.values()], reporter)
    figures = []
    if job.found.shows in ("domains", "weights", "images", "curves"):
        for domain, collected in runs_by_domain.items():
            path = out / f"{job.table}-{job.dataset}-{domain}{'-quick' if job.quick else ''}.png"
            try:
                save(draw_figure(job, domain, collected), path)
            except NotDrawn as error:
                reporter.warn(f"{path.name} is not drawn: {error}")
            else:
                figures.append(path)
    if job.found.shows in ("clusters", "images"):
        grid, values = cluster_table(job, runs_by_domain)
    elif job.found.shows in ("groups", "curves"):
        (collected,) = runs_by_domain.values()
        grid, values = groups_beside(job.title, collected.table, job.methods, job.printed.values, job.printed.where)
    elif job.found.shows == "phases":
        tables = {domain: collected.table for domain, collected in runs_by_domain.items()}
        grid, values = phases_apart(job.title, tables, job.methods)
    else:
        grid, values = accuracy_table(job, runs_by_domain)
    return JobResult(
        grid,
        values,
        figures,
        [row for collected in runs_by_domain.values() for row in collected.table if row.name in collected.trained],
    )


def accuracy_table(job: Job, runs_by_domain: dict[str, CollectedRuns]) -> tuple[Table, list[dict[str, Any]]]:
    """Accuracy by source, or target, with the published values."""
    assert job.domain_role is not None
    comparison = Comparison.of(
        job.dataset, {domain: collected.table for domain, collected in runs_by_domain.items()}, None, job.domain_role
    )
    values = job.printed.values
    grid = accuracies_beside(job.title, comparison, job.methods, values, job.printed.where)
    rows = {method: row for row, method in job.methods.items()}
    entries = []
    for entry in comparison.flat():
        key = entry["source"] if entry["source"] in comparison.sources else AVERAGE
        mean, std = find_printed(values, rows[entry["method"]], key, comparison.sources) or (None, None)
        del entry["difference"]
        entries.append({**entry, "row": rows[entry["method"]], "published": mean, "published_std": std})
    return grid, entries


def cluster_table(job: Job, runs_by_domain: dict[str, CollectedRuns]) -> tuple[Table, list[dict[str, Any]]]:
    """Clusters of round 0 by layer, or by domain where no layers are named."""
    runs: dict[str, list[dict[str, Any]]] = {}
    domains: dict[str, Sequence[str]] = {}
    (method,) = job.methods.values()

    def name_row(domain: str, row: str) -> str:
        return row if len(runs_by_domain) == 1 else f"{domain}: {row}"

    for domain, collected in runs_by_domain.items():
        first_records = [record for record in collected.runs[method].rounds(method) if record["round"] == 0]
        by_layer = {
            name_row(domain, row): [r["probes"][layer_clusterer(layer)] for r in first_records]
            for row, layer in job.found.signatures.items()
        }
        by_domain = {domain: [{"labels": r["labels"], **r["clustering"]} for r in first_records]}
        # Without records every run diverged in round 0.
        for row, clustering in (by_layer or by_domain).items() if first_records else ():
            runs[row], domains[row] = clustering, collected.runs[method].domains
    letters = job.printed.clusters
    if job.found.signatures:  # printed of the definition's sources, whatever was run
        printed_of = [domain for domain in job.found.domains.get(job.dataset, ()) if domain in runs_by_domain]
        letters = {name_row(domain, row): clusters for domain in printed_of for row, clusters in letters.items()}
    blocks = len(datasets.get(job.dataset).domains) - 1 if letters else 0
    grid = clusters_beside(job.title, runs, domains, letters, job.printed.where, blocks)
    entries = [
        {
            "row": row,
            "run": number,
            "labels": json.dumps(run["labels"]),
            "ari": run["ari"],
            "published": letters.get(row),
        }
        for row, clusterings in runs.items()
        for number, run in enumerate(clusterings)
    ]
    return grid, entries
