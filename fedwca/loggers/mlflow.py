"""Logs to MLflow: one MLflow run for each run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedwca.core.tracking_id import name_run, tracking_id
from fedwca.loggers import Logger, LogSession, Record, RunEnd, curve_name, plain_settings, register, scalars

BATCH = 100
"""Largest number of parameters that MLflow accepts in one call."""


def accepted_name(name: str) -> str:
    """Return a metric's name with only the characters that every version of MLflow accepts.

    >>> accepted_name("fedwca:ta=0.05/0-1/accuracy")
    'fedwca_ta_0.05/0-1/accuracy'
    """
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)


def _find_or_create(client: Any, experiment: str) -> str:
    """The id of an experiment on a client's server, which is made if there is none of that name."""
    found = client.get_experiment_by_name(experiment)
    if found is None:
        try:
            return str(client.create_experiment(experiment))
        except Exception:  # also where another run has made it in between
            found = client.get_experiment_by_name(experiment)
            if found is None:
                raise
    return str(found.experiment_id)


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
        """Open the MLflow run.

        Metrics are named ``<method>/<source model>-<trial>/<value>``; steps are finished rounds. At the end,
        ``<method>/final_accuracy``, the mean over source models and trials, is logged, and pictures as artifacts.
        """
        import os
        import time

        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            # A plain folder needs no database, but MLflow only accepts one if this is set.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(uri or (run.absolute() / "mlflow").as_uri())
        experiment = _find_or_create(client, self.experiment)
        tag = tracking_id(run)
        runs = client.search_runs([experiment], f"tags.`fedwca.run` = '{tag}'", max_results=1)
        name = name_run(run)
        run_id = (runs or [client.create_run(experiment, run_name=name, tags={"fedwca.run": tag})])[0].info.run_id
        # MLflow accepts no other value for a parameter that it has; a killed process may have sent only some.
        sent = runs[0].data.params if runs else {}
        if runs:
            client.update_run(run_id, "RUNNING")
        settings = {key: value for key, value in plain_settings(config).items() if key not in sent}
        params = [Param(key, str(value)[:500]) for key, value in settings.items()]
        for first in range(0, len(params), BATCH):
            client.log_batch(run_id, params=params[first : first + BATCH])

        def log(record: Record) -> None:
            now = int(time.time() * 1000)
            values = [
                Metric(accepted_name(f"{curve_name(record)}/{key}"), value, now, record["round"] + 1)
                for key, value in scalars(record).items()
            ]
            client.log_batch(run_id, metrics=values)

        def end(run_end: RunEnd) -> None:
            now, rounds = int(time.time() * 1000), int(config.get("rounds", 0))
            means = [
                Metric(accepted_name(f"{name}/final_accuracy"), mean, now, rounds)
                for name, mean in run_end.mean_accuracies.items()
            ]
            client.log_batch(run_id, metrics=means)
            for name, pixels in run_end.pictures.items():
                client.log_image(run_id, pixels, artifact_file=f"pictures/{name}.png")

        try:
            yield LogSession(log, end)
        except BaseException as error:
            client.set_terminated(run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        client.set_terminated(run_id, "FINISHED")
