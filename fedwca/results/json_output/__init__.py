"""Types of what commands print with ``--json`` or ``--format json``; the published schema is generated from them.

As long as `VERSION` is the same, fields may be added but not renamed or removed.
"""

from __future__ import annotations

import json

from pydantic.json_schema import models_json_schema

from fedwca.results.json_output.printed_bench import RunSummary
from fedwca.results.json_output.printed_compare import PrintedComparison
from fedwca.results.json_output.printed_data import CheckedDataset
from fedwca.results.json_output.printed_join import PrintedJoin
from fedwca.results.json_output.printed_predict import PrintedPrediction
from fedwca.results.json_output.printed_reproduce import PrintedReproduction
from fedwca.results.json_output.printed_runs import DamagedRun, ListedRun, RunDifferences, ShownRun
from fedwca.results.json_output.printed_show import ShownBaseline, ShownComponent, ShownTable
from fedwca.results.json_output.printed_sweep import PrintedSearch
from fedwca.results.json_output.printed_values import PrintedValues

VERSION = 1
"""Version of these types; raised when a reader of an earlier version would misread the output."""

SHAPES: tuple[type[PrintedValues], ...] = (
    *(RunSummary, ListedRun, DamagedRun, ShownRun, RunDifferences, ShownComponent, ShownBaseline),
    ShownTable,
    *(PrintedComparison, PrintedReproduction, PrintedSearch, PrintedJoin, PrintedPrediction, CheckedDataset),
)


def published_schema() -> str:
    """The JSON schema of all types in `SHAPES`, each under ``$defs``; the text of ``docs/output.schema.json``."""
    _, definitions = models_json_schema([(shape, "validation") for shape in SHAPES], title="What fedwca prints as JSON")
    return json.dumps(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "version": VERSION, **definitions}, indent=2
    )
