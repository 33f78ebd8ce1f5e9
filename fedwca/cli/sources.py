"""Which source domains a command runs over, found out before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedwca.cli.execute import Request
from fedwca.experiments.request import plan
from fedwca.experiments.setup import load


def chosen_sources(request: Request, names: Sequence[str]) -> list[Request]:
    """The request once for each source, every one of them checked.

    Args:
        request: without a source.
        names: as given; ``all``: every domain in turn; none: the data set's own default.

    Raises:
        UsageError: a name is not a domain of the data set, or the parts do not fit each other.
        DatasetMissing: see `fedwca.data`.
    """
    first = plan(request.layer, request.pairs, request.preset, request.file)
    dataset, default = load(first.config)
    wanted = list(dataset.domains) if list(names) == ["all"] else [dataset.domain(name).name for name in names]
    requests = [
        replace(request, layer={**request.layer, "source": name}) for name in dict.fromkeys(wanted or [default])
    ]
    for one in requests:
        plan(one.layer, one.pairs, one.preset, one.file)
    return requests
