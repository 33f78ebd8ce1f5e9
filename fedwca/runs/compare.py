"""Methods beside each other over sources or targets: missing runs are made, and all go into one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedwca.config.compose_methods import partition_of
from fedwca.config.method_spec import PARTS, parse_method
from fedwca.config.partition_and_domain import domain_of
from fedwca.config.resolve_config import RunPlan
from fedwca.data.dataset import canonical_domain
from fedwca.datasets import datasets
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.results.comparison import Comparison
from fedwca.results.describe_run import first_model
from fedwca.results.reference_method import reference_among
from fedwca.runs.check_several import check_several
from fedwca.runs.load_data import load
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.reuse_runs import collect_runs, dataset_name
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import check_recording


@dataclass(frozen=True)
class PlannedComparison:
    """What `run_comparison` will run, checked."""

    requests: list[RunRequest]
    """One a source or target."""
    reference: str | None
    """Name of the method that differences are taken to; None: to none."""

    @property
    def plans(self) -> dict[str, RunPlan]:
        """By source or target, or by partition where no domain is unlike the others."""
        plans = [request.plan() for request in self.requests]
        return {domain_of(plan.config) or plan.config.partition: plan for plan in plans}


def run_comparison(
    request: RunRequest,
    methods: Sequence[str],
    domains: Sequence[str],
    reference: str | None,
    out: Path,
    reporter: RunReporter = SILENT,
) -> Comparison:
    """Compare methods; runs that are in the folder already are reused.

    Args:
        request: what all methods have in common.
        methods: baselines, or compositions such as ``fedwca:ta=0.05``.
        domains: source domains, or targets; ``all``: each in turn; none: the data set's own default.
        reference: method that differences are taken to; None: fedavg if it is run.
        out: folder of run folders, one a source or target.
        reporter: told how it goes.

    Raises:
        FedwcaError: what is wrong, in a sentence.
    """
    planned = plan_comparison(request, methods, domains, reference)
    gathered = [collect_runs(one, out, reporter) for one in planned.requests]
    tables = {domain_of(found.config) or found.config.partition: found.table for found in gathered}
    config = gathered[-1].config
    found = Comparison.of(dataset_name(config), tables, planned.reference, partition_of(config).named or "partition")
    trained = frozenset[str]().union(*(one.trained for one in gathered))
    return replace(found, trained=trained, first=first_model(config.model_dump()))


def plan_comparison(
    request: RunRequest, methods: Sequence[str], domains: Sequence[str], reference: str | None
) -> PlannedComparison:
    """See that everything fits, before anything is trained; for arguments and errors see `run_comparison`."""
    methods = check_several("methods", methods)
    names = [parse_method(method).name for method in methods]
    base = parse_method(reference).name if reference else reference_among(names)
    if reference and base not in names:
        raise UsageError(f"--reference {reference}: is not one of the methods {', '.join(names)}")
    if domains and (named := [key for key in ("source", "target") if request.layer.get(key)]):
        raise UsageError(f"{named[0]} and sources both say which domains; leave one of them out")
    if given := [part for part in PARTS if request.layer.get(part)]:
        raise UsageError(f"{given[0]}: methods say their parts themselves, such as 'fedwca/clusterer=ada-bn'")
    layer = {**request.layer, "baselines": list(methods), "composed": False}
    own = dict.fromkeys(["composed", *([] if domains else ["source", "target"])], "compare")
    return PlannedComparison(chosen_domains(replace(request, layer=layer, said=own), domains), base)


def chosen_domains(request: RunRequest, names: Sequence[str], catalogue: bool = False) -> list[RunRequest]:
    """The request once for each source, or target, every one of them checked before anything is trained.

    Args:
        request: with its partition, and without a source or target.
        names: as given; ``all``: every domain in turn; none: the data set's own default.
        catalogue: take the domains from the catalogue where the data set is in it, without looking at its files.

    Raises:
        UsageError: a name is not a domain of the data set, or the parts do not fit each other.
        DatasetMissing: see `fedwca.data`.
    """
    first = request.plan()
    named = first.named
    if named is None:
        if names:
            raise UsageError(f"partition {first.config.partition} has no source and no target; leave {names[0]} out")
        check_recording(request, first)
        return [request]
    listed = datasets.get(first.config.dataset).domains if first.config.dataset in datasets.names() else ()
    if catalogue and listed:
        domains, default = list(listed), listed[0]
        wanted = domains if list(names) == ["all"] else [canonical_domain(name) for name in names]
        if strange := [name for name in wanted if name not in listed]:
            raise UsageError(f"--{named} {strange[0]}: {describe_unknown('domain', strange[0], listed)}")
    else:
        dataset, found = load(first.config)
        default = str(found)
        wanted = list(dataset.domains) if list(names) == ["all"] else [dataset.domain(name).name for name in names]
    chosen = dict.fromkeys(wanted or [default])
    requests = [replace(request, layer={**request.layer, named: name}) for name in chosen]
    for one in requests:
        check_recording(one, one.plan())
    return requests
