"""What `fedwca reproduce` does: one job a data set, one run folder a source, or a target."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.method_spec import parse_method
from fedwca.config.resolve_config import RunPlan
from fedwca.core.dotted_keys import flatten_keys
from fedwca.datasets import datasets
from fedwca.errors import FedwcaError, UsageError
from fedwca.registry import canonical_name
from fedwca.reproduce.cost_estimate import Cost, estimate_cost
from fedwca.reproduce.definitions import (
    Definition,
    PublishedTable,
    fitting_definitions,
    layer_clusterer,
    layered_settings,
    published_table,
    quick_settings,
)
from fedwca.reproduce.phases_table import phases_apart
from fedwca.reproduce.side_by_side import accuracies_beside, clusters_beside
from fedwca.results.comparison import Comparison
from fedwca.results.pictures import clusters, draw_bars, draw_weights, save
from fedwca.results.read_run import count_of
from fedwca.results.table_rows import summarise
from fedwca.results.tables import Table
from fedwca.runs.compare import chosen_domains
from fedwca.runs.load_data import load
from fedwca.runs.reporter import RunReporter
from fedwca.runs.reuse_runs import CollectedRuns, collect_runs, dataset_name, sort_methods
from fedwca.runs.run_request import RunRequest
from fedwca.runs.run_trials_and_methods import split_trial


@dataclass(frozen=True)
class Job:
    """A table or figure for one data set."""

    table: str
    found: Definition
    requests: dict[str, RunRequest]
    """By source, or target."""
    plans: dict[str, RunPlan]
    dataset: str
    printed: PublishedTable | None
    quick: bool

    @property
    def title(self) -> str:
        """What is shown, and whether it is the small version."""
        config = next(iter(self.plans.values())).config
        each = f"{config.samples or 'all'} images each, {count_of(config.rounds, 'round')}"
        size = f"{count_of(config.clients, 'client')} per domain, {each}"
        what = f"{self.table}, {self.dataset}: {self.found.title}"
        return f"{what} [--quick: {size}; not comparable with the paper]" if self.quick else what

    @property
    def cost(self) -> Cost:
        """Of everything, whether it is there already or not."""
        return sum((_cost(p, domain) for domain, p in self.plans.items()), Cost(0, 0, 0.0, 0.0))

    @property
    def named(self) -> str:
        """What its domains are: source or target."""
        return self.found.named


def _cost(decided: RunPlan, domain: str, names: Sequence[str] | None = None) -> Cost:
    return estimate_cost(decided.config, domain, [r for m, r in decided.methods if names is None or m.name in names])


@dataclass(frozen=True)
class ReproductionRequest:
    """What is to be reproduced, and what of it the user wants otherwise."""

    table: str
    found: Definition
    asked: RunRequest
    """What the user sets."""
    datasets: Sequence[str] = ()
    """Empty: the paper's."""
    domains: Sequence[str] = ()
    """Sources, or targets; empty: the paper's."""
    quick: bool = False
    planning: bool = False
    """Without looking at files."""


def domains_named(named: str, given: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The domains that a user names, as what they are in a table.

    Args:
        named: source or target.
        given: domains by the option they came with.

    Raises:
        UsageError: they came with the other option.
    """
    for option, domains in given.items():
        if domains and option != named:
            raise UsageError(f"--{option} {domains[0]}: the domains of this table are {named}s; take --{named}")
    return given[named]


def plan_jobs(wanted: ReproductionRequest) -> list[Job]:
    """The jobs of a table, every source or target checked before anything is trained."""
    table, found, asked, quick = wanted.table, wanted.found, wanted.asked, wanted.quick
    made = []
    for name in [canonical_name(name) for name in wanted.datasets] or found.datasets:
        first = replace(asked, layer=layered_settings(found, name, quick, asked.layer))
        fits = fitting_definitions(found, first.plan().config)
        layer = layered_settings(fits, name, quick, asked.layer)
        request = replace(asked, layer=layer, said=setting_origins(wanted, fits, name))
        printed = published_table(table, name)
        domains = list(wanted.domains) or list(found.domains.get(name, ["all"]))
        named = found.named
        requests = {str(one.layer[named]): one for one in chosen_domains(request, domains, wanted.planning)}
        plans = {domain: one.plan() for domain, one in requests.items()}
        config = next(iter(plans.values())).config
        made.append(Job(canonical_name(table), fits, requests, plans, dataset_name(config), printed, quick))
    return made


def setting_origins(wanted: ReproductionRequest, found: Definition, name: str) -> dict[str, str]:
    """What the table or ``--quick`` sets for a data set, and the user did not."""
    named = found.named
    whole = {**found.layer(), "dataset": name, named: ""}
    quick = quick_settings(name, found.rules.setting) if wanted.quick else {}
    own = {key: "--quick" for key, _ in flatten_keys(quick)}
    own |= {key: f"reproduce {canonical_name(wanted.table)}" for key, _ in flatten_keys(whole)}
    theirs = {key for key, _ in (*flatten_keys(wanted.asked.layer), *wanted.asked.pairs)}
    theirs |= {key for key, given in (("dataset", wanted.datasets), (named, wanted.domains)) if given}
    return {key: origin for key, origin in own.items() if key not in theirs}


def announce_jobs(planned: Sequence[Job], out: Path, reporter: RunReporter) -> None:
    """Say what will be run and what it costs."""
    say = reporter.note
    for job in planned:
        say(job.title)
        for domain, decided in job.plans.items():
            there, missing = sort_methods(decided, out)
            left = _cost(decided, domain, missing)
            had = f"; {len(there)} of {len(decided.methods)} methods are there already" if there else ""
            say(f"  {job.named} {domain}: {_amount(left) if missing else 'nothing to run'}{had}")
    total = [_cost(p, domain, sort_methods(p, out)[1]) for job in planned for domain, p in job.plans.items()]
    whole = sum(total, Cost(0, 0, 0.0, 0.0))
    amount = _amount(whole, " (methods × source models × trials)")
    say(f"In all {amount}." if whole.runs else "All runs are there.")


def _amount(found: Cost, what: str = "") -> str:
    return f"{count_of(found.runs, 'run')}{what}, {count_of(found.rounds, 'round')}, {_rough(found)}"


def _rough(found: Cost) -> str:
    if math.isnan(found.images):
        return "cost unknown (the data set is not in the catalogue)"
    hours = "" if math.isnan(found.hours) else f", roughly {_hours(found.hours)} on 2 CPU cores without source models"
    million = found.images / 1e6
    images = f"{million:.1f} million" if million >= 0.1 else f"{found.images:,.0f}"
    return f"{images} images trained on{hours}"


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return "a minute"
    if hours < 1:
        return count_of(round(60 * hours), "minute")
    return count_of(round(hours), "hour") if hours < 48 else f"{hours / 24:.0f} days"


@dataclass(frozen=True)
class JobResult:
    """What a job came to."""

    grid: Table
    values: list[dict[str, Any]]
    """The table's entries."""
    figures: list[Path]
    """Pictures that were drawn, one a source."""


def run_job(job: Job, out: Path, reporter: RunReporter) -> JobResult:
    """Run what is missing, then draw the figure and make the table."""
    gathered = {domain: collect_runs(request, out, reporter) for domain, request in job.requests.items()}
    figures = []
    if job.found.shows in ("domains", "weights", "images"):
        for domain, found in gathered.items():
            path = out / f"{job.table}-{job.dataset}-{domain}{'-quick' if job.quick else ''}.png"
            save(draw_figure(job, domain, found), path)
            figures.append(path)
    if job.found.shows in ("clusters", "images"):
        grid, values = cluster_table(job, gathered)
    elif job.found.shows == "phases":
        grid, values = phase_table(job, gathered)
    else:
        grid, values = accuracy_table(job, gathered)
    return JobResult(grid, values, figures)


def _methods(job: Job) -> dict[str, str]:
    return {row: parse_method(word).name for row, word in job.found.rows.items()}


def accuracy_table(job: Job, gathered: dict[str, CollectedRuns]) -> tuple[Table, list[dict[str, Any]]]:
    """Accuracy by source, or target, with the published values."""
    found = Comparison.of(job.dataset, {domain: g.table for domain, g in gathered.items()}, None, job.named)
    values, where = (job.printed.values, job.printed.where) if job.printed else ({}, "")
    grid = accuracies_beside(job.title, found, _methods(job), values, where)
    rows = {method: row for row, method in _methods(job).items()}
    entries = []
    for entry in found.flat():
        key = entry["source"] if entry["source"] in found.sources else "average"
        mean, std = values.get((rows[entry["method"]], key), (None, None))
        del entry["difference"]
        entries.append({**entry, "row": rows[entry["method"]], "published": mean, "published_std": std})
    return grid, entries


def phase_table(job: Job, gathered: dict[str, CollectedRuns]) -> tuple[Table, list[dict[str, Any]]]:
    """Accuracy before and after the last phase by target, with differences paired by run."""
    return phases_apart(job.title, {domain: found.table for domain, found in gathered.items()}, _methods(job))


def cluster_table(job: Job, gathered: dict[str, CollectedRuns]) -> tuple[Table, list[dict[str, Any]]]:
    """Clusters of round 0 by layer, or by domain where no layers are named."""
    runs: dict[str, list[dict[str, Any]]] = {}
    domains: dict[str, Sequence[str]] = {}
    (method,) = _methods(job).values()
    for domain, found in gathered.items():
        firsts = [record for record in found.records(method) if record["round"] == 0]
        shown = {
            row if len(gathered) == 1 else f"{domain}: {row}": [r["probes"][layer_clusterer(layer)] for r in firsts]
            for row, layer in job.found.signatures.items()
        }
        by_domain = {domain: [{"labels": r["labels"], **r["clustering"]} for r in firsts]}
        for row, clustering in (shown or by_domain).items():
            runs[row], domains[row] = clustering, found.runs[method].domains
    letters, where = (job.printed.clusters, job.printed.where) if job.printed else ({}, "")
    blocks = len(datasets.get(job.dataset).domains) - 1 if letters else 0
    grid = clusters_beside(job.title, runs, domains, letters, where, blocks)
    entries = [
        {
            "row": row,
            "run": number,
            "labels": json.dumps(run["labels"]),
            "ari": run["ari"],
            "published": letters.get(row),
        }
        for row, found_runs in runs.items()
        for number, run in enumerate(found_runs)
    ]
    return grid, entries


def draw_figure(job: Job, domain: str, found: CollectedRuns) -> Any:
    """One figure from the runs of one source, or target; those of single runs show the first.

    Raises:
        FedwcaError: there are too few rounds for it.
    """
    methods, title = _methods(job), f"{job.dataset}, {job.named} {domain}{' (--quick)' if job.quick else ''}"
    if job.found.shows == "domains":
        entries = summarise(found.table)
        named = {name: {**entries[name], "label": row} for row, name in methods.items()}
        return draw_bars(named, f"Accuracy by target domain: {title}")
    first = {
        row: {r["round"]: r for r in found.records(name) if (r["source_model"], r["trial"]) == (0, 0)}
        for row, name in methods.items()
    }
    domains = found.runs[next(iter(methods.values()))].domains
    if job.found.shows == "weights":
        last = found.config.rounds - 1
        if last < 1:
            raise FedwcaError(f"{job.table}: clients weigh clusters from round 1 on, so it needs --rounds 2 or more")
        rounds = sorted({min(2, last), min(50, last)})
        chosen = {row: [records[number] for number in rounds] for row, records in first.items()}
        return draw_weights(chosen, domains, f"Weights of cluster models, first run: {title}")
    dataset, name = load(found.config)
    images = [c.train.permute(0, 2, 3, 1).numpy() for c in split_trial(found.config, dataset, name, 0, 0).clients]
    (records,) = first.values()
    return clusters(records[0]["labels"], images, domains, f"First run: {title}")
