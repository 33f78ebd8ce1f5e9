"""What `fedwca reproduce` will do: one job a data set, a run folder a source or target, checked and with its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedwca.config.method_spec import parse_method
from fedwca.config.resolve_config import RunPlan
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.reproduce.cost_estimate import Cost, describe_cost, estimate_plan
from fedwca.reproduce.definitions import (
    Definition,
    PublishedTable,
    fitting_definitions,
    layered_settings,
    published_table,
    quick_settings,
)
from fedwca.results.describe_run import count_of
from fedwca.runs.compare import chosen_domains
from fedwca.runs.reporter import RunReporter
from fedwca.runs.reuse_runs import dataset_name, sort_methods
from fedwca.runs.run_request import RunRequest


@dataclass(frozen=True)
class Job:
    """A table or figure for one data set."""

    table: str
    found: Definition
    requests: dict[str, RunRequest]
    """By source, or target."""
    plans: dict[str, RunPlan]
    dataset: str
    printed: PublishedTable
    """Empty where the paper prints nothing."""
    quick: bool

    @property
    def title(self) -> str:
        """What is shown, and whether it is the small version."""
        config = next(iter(self.plans.values())).config
        each = f"{config.samples or 'all'} images each, {count_of(config.rounds, 'round')}"
        who = "per domain" if self.named else "that train"
        size = f"{count_of(config.clients, 'client')} {who}, {each}"
        what = f"{self.table}, {self.dataset}: {self.found.title}"
        return f"{what} [--quick: {size}; not comparable with the paper]" if self.quick else what

    @property
    def named(self) -> str | None:
        """What its domains are: source or target; None where no domain is unlike the others."""
        return self.found.named

    @property
    def methods(self) -> dict[str, str]:
        """Names of the methods by the row of the table."""
        return {row: parse_method(word).name for row, word in self.found.rows.items()}


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


def domains_named(named: str | None, given: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The domains that a user names, as what they are in a table.

    Args:
        named: source or target; None: its domains are pooled.
        given: domains by the option they came with.

    Raises:
        UsageError: they came with the other option.
    """
    for option, domains in given.items():
        if domains and named is None:
            raise UsageError(f"--{option} {domains[0]}: this table pools the images of all domains; leave it out")
        if domains and option != named:
            raise UsageError(f"--{option} {domains[0]}: the domains of this table are {named}s; take --{named}")
    return given[named] if named else []


def plan_jobs(wanted: ReproductionRequest) -> list[Job]:
    """The jobs of a table, every source or target checked before anything is trained."""
    table, asked, quick = wanted.table, wanted.asked, wanted.quick
    made = []
    for name in [canonical_name(name) for name in wanted.datasets] or wanted.found.datasets:
        found = wanted.found.under(asked.preset, name)
        first = replace(asked, layer=layered_settings(found, name, quick, asked.layer))
        fits = fitting_definitions(found, first.plan().config)
        layer = layered_settings(fits, name, quick, asked.layer)
        request = replace(asked, layer=layer, said=setting_origins(wanted, fits, name))
        printed = published_table(table, name) or PublishedTable("", {}, {})
        named = found.named
        domains = list(wanted.domains) or list(found.domains.get(name, ["all"] if named else []))
        chosen = chosen_domains(request, domains, wanted.planning)
        requests = {str(one.layer[named]) if named else one.plan().config.partition: one for one in chosen}
        plans = {domain: one.plan() for domain, one in requests.items()}
        config = next(iter(plans.values())).config
        made.append(Job(canonical_name(table), fits, requests, plans, dataset_name(config), printed, quick))
    return made


def setting_origins(wanted: ReproductionRequest, found: Definition, name: str) -> dict[str, str]:
    """What the table or ``--quick`` sets for a data set, and the user did not."""
    named = found.named
    whole = {**found.layer(), "dataset": name, **({named: ""} if named else {})}
    quick = quick_settings(name, found.rules.setting) if wanted.quick else {}
    own = {key: "--quick" for key, _ in flatten_keys(quick)}
    own |= {key: f"reproduce {canonical_name(wanted.table)}" for key, _ in flatten_keys(whole)}
    own |= {key: "--quick" for key, _ in flatten_keys(found.smaller if wanted.quick else {})}
    theirs = {key for key, _ in (*flatten_keys(wanted.asked.layer), *wanted.asked.pairs)}
    theirs |= {key for key, given in (("dataset", wanted.datasets), (named, wanted.domains)) if key and given}
    return {key: origin for key, origin in own.items() if key not in theirs}


def announce_jobs(planned: Sequence[Job], out: Path, reporter: RunReporter) -> None:
    """Say what will be run and what it costs."""
    whole = Cost(0, 0, 0.0, 0.0)
    for job in planned:
        reporter.note(job.title)
        whole += announce_runs(job.plans, out, reporter)
    announce_total(whole, reporter)


def announce_runs(plans: Mapping[str, RunPlan], out: Path, reporter: RunReporter) -> Cost:
    """Say what is missing in a folder, by source or target, and what it costs; returns the cost of it all."""
    whole = Cost(0, 0, 0.0, 0.0)
    for domain, plan in plans.items():
        there, missing = sort_methods(plan, out)
        left = estimate_plan(plan, domain, missing)
        had = f"; {len(there)} of {len(plan.methods)} methods are there already" if there else ""
        what = describe_cost(left) if missing else "nothing to run"
        reporter.note(f"  {plan.named or 'partition'} {domain}: {what}{had}")
        whole += left
    return whole


def announce_total(whole: Cost, reporter: RunReporter) -> None:
    """Say what all runs cost that are missing."""
    amount = describe_cost(whole, " (methods × source models × trials)")
    reporter.note(f"In all {amount}." if whole.runs else "All runs are there.")
