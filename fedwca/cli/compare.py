"""`fedwca compare`: named methods over sources in one table, with paired differences, an interval and a test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli import complete
from fedwca.cli.options import KEEP, WHAT, Form, Format, RunOptions, folder, option, run_options
from fedwca.cli.ranks import need_one_process
from fedwca.errors import UsageError


@run_options
def command(
    asked: RunOptions,
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Baselines, or compositions: fedwca:ta=0.05, 'True=fedwca/clusterer=true', wca/objective=shot.",
            autocompletion=complete.baselines,
        ),
    ],
    source: Annotated[
        list[str] | None,
        option("--source", text="Source domain; repeat for more; 'all' for each in turn.", panel=WHAT),
    ] = None,
    reference: Annotated[
        str | None,
        option("--reference", text="Method that differences are taken to; default fedavg if it is run.", panel=KEEP),
    ] = None,
    out: Annotated[Path, folder("run folders, one a source")] = Path("runs/compare"),
    form: Form = Format.table,
) -> None:
    """Compare methods: one table over sources, source models and trials.

    Runs that are in the --out folder already are reused. For example: fedwca compare fedavg fedwca --trials 3
    """
    need_one_process("fedwca compare")
    from fedwca.cli.tables import print_in
    from fedwca.config.method_spec import parse_method
    from fedwca.results.comparison import Comparison
    from fedwca.results.results_table import comparison_table
    from fedwca.runs.execute import RunRequest
    from fedwca.runs.reuse import collect_runs, dataset_name
    from fedwca.runs.sources import chosen_sources

    names = [parse_method(method).name for method in methods]
    base = parse_method(reference).name if reference else "fedavg"
    if reference and base not in names:
        raise UsageError(f"--reference {reference}: is not one of the methods {', '.join(names)}")
    layer = {**asked.layer, "baselines": methods, "composed": False}
    own = dict.fromkeys(["composed", *([] if source else ["source"])], "compare")
    quiet = form is not Format.table
    request = RunRequest(layer, asked.pairs, asked.preset, asked.file, None, quiet, said=own)
    tables, config = {}, None
    for one in chosen_sources(request, source or []):
        gathered = collect_runs(one, out)
        config = gathered.config
        tables[str(config.source)] = gathered.table
    assert config is not None
    found = Comparison.of(dataset_name(config), tables, base)
    print_in(form, comparison_table(found), found.plain(), found.flat())
