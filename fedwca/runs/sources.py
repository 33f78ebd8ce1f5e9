"""Which source domains a command runs over, found out before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedwca.runs.execute import RunRequest
from fedwca.datasets import datasets
from fedwca.errors import UsageError
from fedwca.config.layers import resolve_plan
from fedwca.runs.setup import load
from fedwca.registry import canonical, unknown


def chosen_sources(request: RunRequest, names: Sequence[str], catalogue: bool = False) -> list[RunRequest]:
    """The request once for each source, every one of them checked.

    Args:
        request: without a source.
        names: as given; ``all``: every domain in turn; none: the data set's own default.
        catalogue: take the domains from the catalogue where the data set is in it, without looking at its files.

    Raises:
        UsageError: a name is not a domain of the data set, or the parts do not fit each other.
        DatasetMissing: see `fedwca.data`.
    """
    first = resolve_plan(request.layer, request.pairs, request.preset, request.file)
    listed = datasets.get(first.config.dataset).domains if first.config.dataset in datasets.names() else ()
    if catalogue and listed:
        domains, default = list(listed), listed[0]
        if strange := [name for name in names if canonical(name) not in (*listed, "all")]:
            raise UsageError(f"--source {strange[0]}: {unknown('domain', strange[0], listed)}")
        wanted = domains if list(names) == ["all"] else [canonical(name) for name in names]
    else:
        dataset, default = load(first.config)
        wanted = list(dataset.domains) if list(names) == ["all"] else [dataset.domain(name).name for name in names]
    requests = [
        replace(request, layer={**request.layer, "source": name}) for name in dict.fromkeys(wanted or [default])
    ]
    for one in requests:
        resolve_plan(one.layer, one.pairs, one.preset, one.file)
    return requests
