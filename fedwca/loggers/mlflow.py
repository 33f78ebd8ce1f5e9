"""MLflow: one of its runs for each run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedwca.core.tracking_id import tracking_id
from fedwca.loggers import Logger, LogSession, Record, RunEnd, plain_settings, register, series, title

BATCH = 100
"""Parameters that MLflow takes at once."""


def accepted_name(name: str) -> str:
    """A metric's name in the letters that every version of MLflow takes.

    >>> accepted_name("fedwca:ta=0.05/0-1/accuracy")
    'fedwca_ta_0.05/0-1/accuracy'
    """
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)


@register("mlflow")
class MLflow(Logger):
    """Logs to an MLflow tracking server or folder; a continued run goes on in the same MLflow run."""

    library = "mlflow"
    extra = "mlflow"

    uri: str = ""
    """Tracking URI; empty: MLFLOW_TRACKING_URI where set, else ``mlflow`` in the run folder."""
    experiment: str = "fedwca"
    """Name of the MLflow experiment."""

    @contextmanager
    def open(self, run: Path, config: Mapping[str, Any]) -> Iterator[LogSession]:
        """Metrics are called ``<method>/<source model>-<trial>/<value>``; steps are rounds done. At the end there are
        ``<method>/final_accuracy``, the mean over runs, and pictures as artifacts.
        """
        import os
        import time

        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        given = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not given:
            # Plain folders need no database; MLflow wants to be told that one is meant.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(given or (run.absolute() / "mlflow").as_uri())
        found = client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else client.create_experiment(self.experiment)
        mark = tracking_id(run)
        before = client.search_runs([experiment], f"tags.`fedwca.run` = '{mark}'", max_results=1)
        at = (before or [client.create_run(experiment, run_name=run.name, tags={"fedwca.run": mark})])[0].info.run_id
        if before:
            client.update_run(at, "RUNNING")
        else:
            params = [Param(key, str(value)[:500]) for key, value in plain_settings(config).items()]
            for first in range(0, len(params), BATCH):
                client.log_batch(at, params=params[first : first + BATCH])

        def log(record: Record) -> None:
            now = int(time.time() * 1000)
            values = [
                Metric(accepted_name(f"{title(record)}/{key}"), value, now, record["round"] + 1)
                for key, value in series(record).items()
            ]
            client.log_batch(at, metrics=values)

        def end(found: RunEnd) -> None:
            now, rounds = int(time.time() * 1000), int(config.get("rounds", 0))
            means = [
                Metric(accepted_name(f"{name}/final_accuracy"), mean, now, rounds) for name, mean in found.means.items()
            ]
            client.log_batch(at, metrics=means)
            for name, pixels in found.pictures.items():
                client.log_image(at, pixels, artifact_file=f"pictures/{name}.png")

        try:
            yield LogSession(log, end)
        except BaseException:
            client.set_terminated(at, "KILLED")
            raise
        client.set_terminated(at, "FINISHED")
