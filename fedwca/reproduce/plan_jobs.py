"""Plans `fedwca reproduce`: one job for each data set, one run for each source or target, all checked, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedwca.config.config_layers import merge
from fedwca.config.method_spec import parse_method
from fedwca.config.method_values import drop_overridden_values
from fedwca.config.read_config_file import read_file
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import Layer
from fedwca.core.count_of import count_of
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.reproduce.cost_estimate import Cost, describe_cost, estimate_plan
from fedwca.reproduce.definitions import (
    Definition,
    PublishedTable,
    layered_settings,
    published_table,
    quick_settings,
    without_missing_layers,
)
from fedwca.results.describe_run import data_name
from fedwca.runs.compare import chosen_domains
from fedwca.runs.reporter import RunReporter
from fedwca.runs.resuming.reuse_runs import sort_methods
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
        """What the job shows, and whether it is the ``--quick`` version."""
        config = next(iter(self.plans.values())).config
        per_client = f"{config.samples or 'all'} images each, {count_of(config.rounds, 'round')}"
        clients_note = "per domain" if self.domain_role else "that train"
        size = f"{count_of(config.clients, 'client')} {clients_note}, {per_client}"
        title = f"{self.table}, {self.dataset}: {self.found.title}"
        return f"{title} [--quick: {size}; not comparable with the paper]" if self.quick else title

    @property
    def domain_role(self) -> str | None:
        """What its domains are: source or target; None where no domain is set apart."""
        return self.found.domain_role

    @property
    def methods(self) -> dict[str, str]:
        """Name of each row of the table to the name of its method."""
        return {row: parse_method(method).name for row, method in self.found.rows.items()}


@dataclass(frozen=True)
class ReproductionRequest:
    """A table or figure to reproduce, and what the user changes of it."""

    table: str
    found: Definition
    asked: RunRequest
    """The user's settings."""
    datasets: Sequence[str] = ()
    """Empty: the paper's."""
    domains: Sequence[str] = ()
    """Sources, or targets; empty: the paper's."""
    quick: bool = False
    planning: bool = False
    """Whether to plan only, without reading the data sets' files."""


def domains_named(domain_role: str | None, domains_by_option: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The sources or targets that a user names, checked to be what the table's domains are.

    Args:
        domain_role: source or target; None: the table's domains are pooled.
        domains_by_option: the named domains by option, ``source`` and ``target``.

    Raises:
        UsageError: domains are given with the wrong option, or with one where domains are pooled.
    """
    for option, domains in domains_by_option.items():
        if domains and domain_role is None:
            raise UsageError(f"--{option} {domains[0]}: this table pools the images of all domains; leave it out")
        if domains and option != domain_role:
            raise UsageError(
                f"--{option} {domains[0]}: the domains of this table are {domain_role}s; take --{domain_role}"
            )
    return domains_by_option[domain_role] if domain_role else []


def plan_jobs(reproduction: ReproductionRequest) -> list[Job]:
    """The jobs of a table; every source or target is checked before anything is trained."""
    table, user_request, quick = reproduction.table, reproduction.asked, reproduction.quick
    jobs = []
    file_layer = read_file(user_request.file) if user_request.file else {}
    for name in [canonical_name(name) for name in reproduction.datasets] or reproduction.found.datasets:
        table_definition = reproduction.found.under(user_request.preset, name)
        layer = layered_settings(table_definition, name, quick, user_request.layer, file_layer)
        first = replace(user_request, layer=layer)
        fitting = without_missing_layers(table_definition, first.plan().config)
        layer = layered_settings(fitting, name, quick, user_request.layer, file_layer)
        layer = drop_overridden_values(layer, set_layer(user_request.pairs))
        request = replace(user_request, layer=layer, said=setting_origins(reproduction, fitting, name))
        printed = published_table(table, name) or PublishedTable("", {}, {})
        role = table_definition.domain_role
        domains = list(reproduction.domains) or list(table_definition.domains.get(name, ["all"] if role else []))
        domain_requests = chosen_domains(request, domains, reproduction.planning)
        requests = {str(r.layer[role]) if role else r.plan().config.partition: r for r in domain_requests}
        plans = {domain: r.plan() for domain, r in requests.items()}
        title = data_name(next(iter(plans.values())).config.model_dump())
        jobs.append(Job(canonical_name(table), fitting, requests, plans, title, printed, quick))
    return jobs


def set_layer(pairs: Sequence[tuple[str, str]]) -> Layer:
    """The values of ``--set`` that are for all methods and name their component.

    >>> set_layer([("training.lr", "0.1"), ("adaptation.learned.lr", "0.5"), ("ta", "1")])
    {'training': {'lr': '0.1'}, 'components': {'adaptation': {'learned': {'lr': '0.5'}}}}
    """
    layer: Layer = {}
    for key, value in pairs:
        match [canonical_name(part) for part in key.split(".")]:
            case ["training", field]:
                layer = merge(layer, {"training": {field: value}})
            case [kind, name, field]:
                layer = merge(layer, {"components": {kind: {name: {field: value}}}})
    return layer


def setting_origins(reproduction: ReproductionRequest, table_definition: Definition, name: str) -> dict[str, str]:
    """Origin of each setting, by key, that the table or ``--quick`` sets for a data set and the user does not."""
    role = table_definition.domain_role
    table_layer = {**table_definition.layer(), "dataset": name, **({role: ""} if role else {})}
    quick = quick_settings(name, table_definition.rules.setting) if reproduction.quick else {}
    origins = {key: "--quick" for key, _ in flatten_keys(quick)}
    origins |= {key: f"reproduce {canonical_name(reproduction.table)}" for key, _ in flatten_keys(table_layer)}
    origins |= {key: "--quick" for key, _ in flatten_keys(table_definition.smaller if reproduction.quick else {})}
    user_keys = {key for key, _ in (*flatten_keys(reproduction.asked.layer), *reproduction.asked.pairs)}
    user_keys |= {
        key for key, value in (("dataset", reproduction.datasets), (role, reproduction.domains)) if key and value
    }
    return {key: origin for key, origin in origins.items() if key not in user_keys}


def announce_jobs(planned: Sequence[Job], out: Path, reporter: RunReporter) -> None:
    """Report what will be run, and its cost."""
    total = Cost(0, 0, 0.0, 0.0)
    for job in planned:
        reporter.note(job.title)
        total += announce_runs(job.plans, out, reporter)
    announce_total(total, reporter)


def announce_runs(plans: Mapping[str, RunPlan], out: Path, reporter: RunReporter) -> Cost:
    """Report the missing runs of a folder by source or target, with their cost; returns the total cost."""
    total = Cost(0, 0, 0.0, 0.0)
    for domain, plan in plans.items():
        finished, missing = sort_methods(plan, out)
        cost = estimate_plan(plan, domain, missing)
        finished_note = ""
        if finished:
            verb = "is" if len(finished) == 1 else "are"
            finished_note = f"; {len(finished)} of {count_of(len(plan.methods), 'method')} {verb} there already"
        work = describe_cost(cost) if missing else "nothing to run"
        reporter.note(f"  {plan.domain_role or 'partition'} {domain}: {work}{finished_note}")
        total += cost
    return total


def announce_total(total: Cost, reporter: RunReporter) -> None:
    """Report the total cost of all missing runs."""
    amount = describe_cost(total, " (methods × source models × trials)")
    reporter.note(f"In all {amount}." if total.runs else "All runs are there.")
