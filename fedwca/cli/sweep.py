"""`fedwca sweep`: search values of a method's fields, judged without target labels; a stopped search goes on."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwca.cli import complete
from fedwca.cli.options import RunOptions, run_options
from fedwca.cli.shared_options import KEEP, Form, Format, Json, Keep, Loggers, Quiet, chosen_format, folder, option
from fedwca.core.environment_variables import check_one_process
from fedwca.errors import Diverged, UsageError

if TYPE_CHECKING:
    from fedwca.runs.reporter import RunReporter
    from fedwca.search.plan_search import Search

SEARCH = "Search"


@run_options
def command(
    asked: RunOptions,
    method: Annotated[
        str | None,
        typer.Argument(
            help="Baseline, or a composition as in compare; default: the grid's, or the setting's.",
            autocompletion=complete.baselines,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        option(
            "--param",
            text="Values to try: aggregator.ta=0.001..0.1:log, or training.lr=1e-2,1e-3; repeat.",
            panel=SEARCH,
        ),
    ] = None,
    grid: Annotated[
        str | None,
        option(
            "--grid",
            text="A paper's values: wca, lr, ladd, fedpcl; with --preset upfl: upfl-lr, upfl-fedprox, fedgma, "
            "fedtta-prox, fedtta-pp.",
            panel=SEARCH,
        ),
    ] = None,
    criterion: Annotated[
        str | None,
        option(
            "--criterion",
            text="density (soft neighborhood density: more is better; the default) or entropy (less is better), "
            "without labels; where new clients come later validation, always.",
            panel=SEARCH,
        ),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle", help="Judge by test accuracy, which nobody has in this setting.", rich_help_panel=SEARCH
        ),
    ] = False,
    tries: Annotated[
        int | None,
        option(
            "--tries",
            text="Values tried in all, earlier ones included; default: the whole grid, else 20.",
            panel=SEARCH,
            min=1,
            max=1_000_000,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        option("--dry-run", text="Print the number of tries and their rough cost; run nothing.", panel=KEEP),
    ] = False,
    out: Annotated[Path, folder("study and its runs")] = Path("runs/sweep"),
    keep: Keep = "last",
    logger: Loggers = None,
    quiet: Quiet = False,
    form: Form = Format.table,
    as_json: Json = False,
) -> None:
    """Search hyper-parameters without target labels.

    For example: fedwca sweep fedwca --param aggregator.ta=0.001..0.1:log --tries 10
    """
    check_one_process("fedwca sweep")
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.cli.printing import name_saved_results, print_in
    from fedwca.config.resolve_config import read_user_layers
    from fedwca.search import space as sweep
    from fedwca.search.criteria import ORACLE, VALIDATION, choose_criterion
    from fedwca.search.plan_search import Search
    from fedwca.search.study import all_diverged, search, tabulate_tries

    form = chosen_format(form, as_json, dry_run)
    grid_method, grid_spaces = sweep.grid(grid) if grid else (None, [])
    spaces = [*grid_spaces, *map(sweep.parse_space, param or [])]
    if not spaces:
        raise UsageError("nothing to try; name --param kind.field=values or --grid wca")
    *_, partition = read_user_layers(asked.layer, asked.preset, asked.file)
    if oracle and criterion:
        raise UsageError(f"--oracle and --criterion {criterion}: leave out one of both")
    criterion_name = ORACLE if oracle else choose_criterion(criterion, partition)
    baselines = [method or grid_method or partition.default_baseline]
    evidence = criterion_name not in (ORACLE, VALIDATION)
    layer = {**asked.layer, "baselines": baselines, "composed": False, "evidence": evidence}
    set_by_sweep = ("composed", "evidence", *(() if method else ("baselines",)))
    request = asked.request(layer=layer, keep=keep, loggers=logger or (), said=dict.fromkeys(set_by_sweep, "sweep"))
    search_request = Search(request, spaces, criterion_name, tries, out)
    reporter = ConsoleReporter(silent=True, quiet=quiet and not dry_run)
    if dry_run:
        announce_tries(search_request, reporter)
        return
    results = search(search_request, reporter)
    document = {"criterion": search_request.criterion, "direction": search_request.direction, "tries": results}
    with name_saved_results(f"the study is whole, it and its runs are in {out}"):
        print_in(form, tabulate_tries(search_request, results), document, results)
    if all_diverged(results, search_request.criterion):
        raise Diverged("every try diverged; lower values of training.lr may help")


def announce_tries(search_request: Search, reporter: RunReporter) -> None:
    """Print the number of tries and the estimated cost of the missing ones."""
    from fedwca.reproduce.cost_estimate import Cost, describe_cost, estimate_plan
    from fedwca.search.open_study import read_tried_values
    from fedwca.search.plan_search import plan_search
    from fedwca.search.study import import_optuna

    optuna, planned_search = import_optuna(), plan_search(search_request)
    tried_values = read_tried_values(optuna, search_request.out, planned_search.about)
    missing = planned_search.missing(tried_values)
    # Values drawn at random share one plan; of a large grid, whose order is random, the first hundred are a sample.
    costs = []
    for values in missing[: 1 if planned_search.grid is None else 100]:
        with suppress(UsageError):  # values that cannot be combined, which the search leaves out with a warning
            run = planned_search.plan(values)
            costs.append(estimate_plan(run, run.domain or ""))
    cost = sum(islice(cycle(costs), len(missing)), Cost(0, 0, 0.0, 0.0))
    verb = "is" if len(tried_values) == 1 else "are"
    tried_note = f"; {len(tried_values)} {verb} there already" if tried_values else ""
    reporter.note(
        f"{planned_search.tries} {'try' if planned_search.tries == 1 else 'tries'}{tried_note}: {describe_cost(cost)}"
    )
