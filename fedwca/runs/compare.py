"""Comparison of methods over source or target domains; missing runs are run, existing ones are reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedwca.config.build_component import partition_of
from fedwca.config.method_spec import PARTS, parse_method
from fedwca.config.partition_and_domain import domain_of
from fedwca.config.resolve_config import RunPlan
from fedwca.core.check_several import check_several
from fedwca.data.dataset import canonical_domain
from fedwca.datasets import datasets
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.results.comparison import Comparison
from fedwca.results.describe_run import first_model
from fedwca.results.reference_method import reference_among
from fedwca.runs.load_data import load
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resuming.reuse_runs import collect_runs, warn_of_other_environments
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import check_recording


@dataclass(frozen=True)
class PlannedComparison:
    """The checked plan of `run_comparison`."""

    requests: list[RunRequest]
    """One per source or target domain."""
    reference: str | None
    """Name of the method that differences are relative to; None: no differences."""

    @property
    def plans(self) -> dict[str, RunPlan]:
        """Plans by source or target domain; by partition if it has neither."""
        plans = [request.plan() for request in self.requests]
        return {plan.domain or plan.config.partition: plan for plan in plans}


def run_comparison(
    request: RunRequest,
    methods: Sequence[str],
    domains: Sequence[str],
    reference: str | None,
    out: Path,
    reporter: RunReporter = SILENT,
) -> Comparison:
    """Compare methods; finished runs in the folder are reused.

    Args:
        request: settings that all methods share.
        methods: baselines, or compositions such as ``fedwca:ta=0.05``.
        domains: source or target domains; ``all``: every domain; empty: the data set's default.
        reference: method that differences are relative to; None: the first of fedavg and fedavg_labelled that is
            among the methods.
        out: folder of run folders, one per source or target.
        reporter: receives progress and warnings.

    Raises:
        FedwcaError: the request is wrong or a run fails; the message is one sentence.
    """
    planned = plan_comparison(request, methods, domains, reference)
    collected = [collect_runs(domain_request, out, reporter) for domain_request in planned.requests]
    warn_of_other_environments([run for runs in collected for run in runs.runs.values()], reporter)
    tables = {domain_of(runs.config) or runs.config.partition: runs.table for runs in collected}
    config, run = collected[-1].config, next(iter(collected[-1].runs.values()))
    comparison = Comparison.of(
        run.dataset_name, tables, planned.reference, partition_of(config).domain_role or "partition"
    )
    trained = frozenset[str]().union(*(runs.trained for runs in collected))
    return replace(comparison, trained=trained, first=first_model(config.model_dump()))


def plan_comparison(
    request: RunRequest, methods: Sequence[str], domains: Sequence[str], reference: str | None
) -> PlannedComparison:
    """Check the whole comparison before any training; arguments and errors as for `run_comparison`."""
    methods = check_several("methods", methods)
    names = [parse_method(method).name for method in methods]
    reference_name = parse_method(reference).name if reference else reference_among(names)
    if reference and reference_name not in names:
        raise UsageError(f"--reference {reference}: is not one of the methods {', '.join(names)}")
    if domains and (domain_keys := [key for key in ("source", "target") if request.layer.get(key)]):
        raise UsageError(f"{domain_keys[0]} and sources both say which domains; leave one of them out")
    if method_keys := [key for key in ("baselines", "composed") if request.layer.get(key)]:
        raise UsageError(f"{method_keys[0]}: a comparison's methods are named by methods; leave {method_keys[0]} out")
    if part_keys := [part for part in (*PARTS, "name") if request.layer.get(part)]:
        raise UsageError(f"{part_keys[0]}: methods say their parts themselves, such as 'fedwca/clusterer=ada-bn'")
    layer = {**request.layer, "baselines": list(methods), "composed": False}
    origins = dict.fromkeys(["composed", *([] if domains else ["source", "target"])], "compare")
    return PlannedComparison(chosen_domains(replace(request, layer=layer, said=origins), domains), reference_name)


def chosen_domains(request: RunRequest, names: Sequence[str], catalogue: bool = False) -> list[RunRequest]:
    """One request for each source or target domain, all checked before any training.

    Args:
        request: names its partition, but no source or target.
        names: domains as the user wrote them; ``all``: every domain; empty: the data set's default.
        catalogue: for a data set in the catalogue, take the domain names from there and do not read its files.

    Raises:
        UsageError: a name is not a domain of the data set, or components do not fit each other.
        DatasetMissing: see `fedwca.data`.
    """
    plan = request.plan()
    domain_key = plan.domain_role
    if domain_key is None:
        if names:
            raise UsageError(f"partition {plan.config.partition} has no source and no target; leave {names[0]} out")
        check_recording(request, plan)
        return [request]
    listed = datasets.get(plan.config.dataset).domains if plan.config.dataset in datasets.names() else ()
    if catalogue and listed:
        domains, default = list(listed), listed[0]
        selected = domains if list(names) == ["all"] else [canonical_domain(name) for name in names]
        if unknown_names := [name for name in selected if name not in listed]:
            raise UsageError(
                f"--{domain_key} {unknown_names[0]}: {describe_unknown('domain', unknown_names[0], listed)}"
            )
    else:
        dataset, default_domain = load(plan.config)
        default = str(default_domain)
        selected = list(dataset.domains) if list(names) == ["all"] else [dataset.domain(name).name for name in names]
    unique_names = dict.fromkeys(selected or [default])
    requests = [replace(request, layer={**request.layer, domain_key: name}) for name in unique_names]
    for domain_request in requests:
        check_recording(domain_request, domain_request.plan())
    return requests
