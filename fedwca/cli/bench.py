"""`fedwca bench`: compose a method, run it beside baselines, and print the table of results."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedwca.cli import complete
from fedwca.cli.options import RunOptions, run_options
from fedwca.cli.ranks import run_on_ranks
from fedwca.cli.shared_options import (
    HOW,
    KEEP,
    RUN,
    Format,
    Json,
    Keep,
    Loggers,
    MoreColumns,
    Quiet,
    RanksPerTrial,
    chosen_format,
    option,
)
from fedwca.cli.terminal import say
from fedwca.core.environment_variables import check_one_process
from fedwca.errors import UsageError

if TYPE_CHECKING:
    from fedwca.runs.run_request import RunRequest

NO_EFFECT = "has no effect with --backend flower, which runs one trial of the composed method on the CPU; leave it out"


@partial(run_options, without=())
def command(
    asked: RunOptions,
    baseline: Annotated[
        list[str] | None,
        option(
            "--baseline",
            text="Method to compare with; repeat for more; default by setting; 'none' for none.",
            panel=HOW,
            autocompletion=complete.baselines,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        option("--backend", text="flower: the composed method alone, in Flower's simulation, as a check.", panel=RUN),
    ] = None,
    name: Annotated[
        str | None, option("--name", text="Name of the composed method; default: of its parts.", panel=KEEP)
    ] = None,
    out: Annotated[Path | None, option("--out", text="Run folder; default runs/<time>-<name>.", panel=KEEP)] = None,
    resume: Annotated[
        bool,
        option(
            "--resume",
            text="Begin the run in --out, or go on with it: for jobs that start themselves again.",
            panel=KEEP,
        ),
    ] = False,
    keep: Keep = "last",
    logger: Loggers = None,
    note: Annotated[str, option("--note", text="What you want to remember of this run.", panel=KEEP)] = "",
    tag: Annotated[
        list[str] | None, option("--tag", text="Word to find the run by, see fedwca runs --tag; repeat.", panel=KEEP)
    ] = None,
    quiet: Quiet = False,
    dry_run: Annotated[
        bool, option("--dry-run", text="Print the plan with its memory, disk and rough cost; run nothing.", panel=KEEP)
    ] = False,
    ranks_per_trial: RanksPerTrial = None,
    profile: Annotated[
        bool,
        option("--profile", text="Say where the time went, and keep a trace of one round in the folder.", panel=KEEP),
    ] = False,
    column: MoreColumns = None,
    as_json: Json = False,
) -> None:
    """Run a federation: the composed method beside its baselines.

    For example: fedwca bench --aggregator wca --clusterer finch
    """
    from fedwca.results.results_table import check_columns

    columns, layer = check_columns(column or ()), dict(asked.layer)
    if baseline is not None:
        layer["baselines"] = list(baseline)
    if name is not None:
        layer["name"] = name
    if resume and (out is None or backend is not None):
        raise UsageError("--resume needs --out, the folder to go on in; a run in Flower's simulation cannot go on")
    if resume and dry_run:
        raise UsageError(
            "--resume and --dry-run do not go together: a plan is of a run that begins; leave out one of both"
        )
    request = asked.request(
        layer=layer,
        out=out,
        keep=keep,
        loggers=logger or (),
        reuse=resume,
        note=note,
        tags=tag or (),
        profile=profile,
    )
    chosen_format(Format.table, as_json, dry_run)
    if dry_run:
        check_dry_run(backend, ranks_per_trial)
    if backend == "flower":
        check_one_process("fedwca bench --backend", ["fedwca bench"])
        from fedwca.config.read_config_file import read_file

        named = {*(read_file(asked.file) if asked.file else {}), *asked.layer}
        config = request.plan().config
        repeat_options = {key: key in named and getattr(config, key) > 1 for key in ("source_models", "trials")}
        output_options = {"keep": keep != "last", "logger": logger, "note": note, "tag": tag, "profile": profile}
        # A run's config.json names them all, with their defaults.
        defaults = type(config)()
        output_options |= {
            key: key in asked.layer or getattr(config, key) != getattr(defaults, key)
            for key in ("kernels", "workers", "trials_at_once")
        }
        output_options |= {"engine": "engine" in asked.layer, "quiet": quiet}
        output_options |= {"device": config.device not in ("auto", "cpu")}
        baselines = baseline if baseline != ["none"] else None
        check_no_idle_options(
            baseline=baselines, **repeat_options, **output_options, column=column, ranks_per_trial=ranks_per_trial
        )
        check_no_idle_fields(probes=config.probes, evidence=config.evidence)
        bench_in_flower(request, as_json)
        return
    if backend is not None:
        raise UsageError(f"--backend {backend}: there is only flower; leave it out for fedwca's own engines")
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.cli.printing import print_finished, print_profile
    from fedwca.runs.start_run import start_run

    if dry_run:
        print_dry_run(request)
        return
    reporter = ConsoleReporter(silent=as_json, quiet=quiet)
    finished = run_on_ranks(ranks_per_trial, lambda ranks: start_run(request, reporter, ranks))
    print_finished(finished, as_json, columns)
    profile_path = finished.path / "profile.json"
    if profile and not as_json and profile_path.is_file():  # a run that had finished before may have none
        print_profile(json.loads(profile_path.read_text(encoding="utf-8")))


def check_dry_run(backend: str | None, ranks_per_trial: int | None) -> None:
    """Refuse what a plan does not go with.

    Raises:
        UsageError: there is more than one process, or an option is given that has no effect.
    """
    check_one_process("fedwca bench --dry-run", ["fedwca bench"])
    if backend is not None:
        raise UsageError("--dry-run plans runs of fedwca's own engines; leave out --backend")
    if ranks_per_trial is not None:
        raise UsageError("--ranks-per-trial shares a run among processes, and --dry-run runs nothing; leave it out")


def print_dry_run(request: RunRequest) -> None:
    """Print the plan of a run and its estimated cost; run nothing."""
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.reproduce.cost_estimate import describe_cost, estimate_plan
    from fedwca.runs.start_run import check_run

    plan = check_run(request, ConsoleReporter(dry=True))
    say(f"Cost: {describe_cost(estimate_plan(plan, plan.domain or ''))}")


def check_no_idle_options(**options: object) -> None:
    """Check that no option is given that has no effect in Flower's simulation.

    Raises:
        UsageError: such an option is given; names the first one.
    """
    for name in (name.replace("_", "-") for name, value in options.items() if value):
        raise UsageError(f"--{name} {NO_EFFECT}")


def check_no_idle_fields(**fields: object) -> None:
    """As `check_no_idle_options`, for fields of a configuration that have no option.

    Raises:
        UsageError: such a field is given; names the first one.
    """
    for name in (name for name, value in fields.items() if value):
        raise UsageError(f"{name} of the configuration {NO_EFFECT}")


def bench_in_flower(request: RunRequest, as_json: bool) -> None:
    """Run the composed method alone in Flower's simulation and print its accuracies."""
    from fedwca.cli.deployment_options import check_flower
    from fedwca.deploy.make_deployment import simulate_deployment
    from fedwca.results.tables import mean_cell

    check_flower()
    result = simulate_deployment(request)
    if as_json:
        say(json.dumps(result.summary, indent=2))
        return
    say(f"{result.row.label} in Flower's simulation: {mean_cell(result.row.mean)} % after {result.rounds} rounds")
    for domain, values in result.row.domains.items():
        say(f"  {domain:<14} {mean_cell(values[0]):>5}")
    say(f"Models and bytes by round and client are in {result.folder}/server")
