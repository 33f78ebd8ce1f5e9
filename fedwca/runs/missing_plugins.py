"""Names a run, and the plugins that it misses, where its configuration does not fit what is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedwca.errors import FedwcaError, InvalidConfig, UnknownComponent
from fedwca.results.environment import missing_plugins
from fedwca.results.read_run_files import read_environment


@contextmanager
def naming_missing_plugins(run: Path) -> Iterator[None]:
    """Name a run's missing plugins in place of components with similar names, and the run of a wrong field.

    Args:
        run: the folder of the run whose configuration is validated, or whose components are built, inside.

    Raises:
        UnknownComponent: a component is unknown.
        FedwcaError: a field is unknown or has a wrong value, as where a later version began the run.
    """
    try:
        yield
    except InvalidConfig as error:
        raise FedwcaError(
            f"{run}: does not fit this fedwca or its plugins ({error}); take the versions that it was begun with"
        ) from error
    except UnknownComponent as error:
        missing: list[str] = []
        with suppress(FedwcaError):  # a damaged file must not hide what is unknown
            missing = missing_plugins(read_environment(run))
        if not missing:
            raise
        unknown = str(error).partition(";")[0].partition(". ")[0]
        raise UnknownComponent(
            f"{run}: {unknown}; the run was begun with {' and '.join(missing)}, which "
            f"{'are' if len(missing) > 1 else 'is'} not installed here: install {'them' if len(missing) > 1 else 'it'}"
        ) from error
