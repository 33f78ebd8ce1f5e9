"""The command line: builds the app, runs a command, and reports errors in one sentence; tracebacks with --debug."""

from __future__ import annotations

import importlib
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.rich_utils import rich_format_error

from fedwca._version import __version__
from fedwca.cli.empty_values import check_not_empty
from fedwca.cli.home_folder import expand_argument
from fedwca.cli.ranks import leave_ranks, mute_rank
from fedwca.cli.sigterm import sigterm_as_ctrl_c
from fedwca.cli.terminal import WAITING, drop_unwritten, prepare_streams, say
from fedwca.core.printable import printable
from fedwca.errors import FedwcaError, describe_os_error, first_line
from fedwca.runs.failed_part import describe_part_failure

COMMANDS = {
    **{name: (name, "command") for name in ("bench", "resume", "plot", "report", "compare", "reproduce", "sweep")},
    "list": ("list_names", "list_command"),
    "show": ("show", "show_command"),
    **{name: (name, "command") for name in ("export", "predict", "join")},
    **{name: (name, "app") for name in ("data", "runs", "deploy")},
    **{name: (name, "command") for name in ("server", "client")},
}
"""Command name → (module in this folder, its command function or its Typer app of subcommands), in the help's order."""

WrongArguments: type[typer.BadParameter] = next(  # from the parser that typer bundles, or from click
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class _Commands(TyperGroup):
    """The command group; Ctrl-C ends a command with a sentence, where Typer would only return an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the invoked command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(_end_stopped(interrupt)) from interrupt


def _version(requested: bool) -> None:
    if requested:
        say(f"fedwca {__version__}")
        raise typer.Exit


def begin(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with errors; works anywhere.")] = False,
) -> None:
    """Federated learning when labels are missing."""
    context.with_resource(sigterm_as_ctrl_c())
    context.with_resource(WAITING.showing(f"fedwca {context.invoked_subcommand}: loading"))


@cache
def make_command(only: str | None = None) -> Any:
    """The command group of ``fedwca`` with one command, by default with all; modules of others are not imported."""
    app = typer.Typer(
        name="fedwca",
        cls=_Commands,
        help="Federated learning when labels are missing: FedWCA, MDMGB, FedTTA, and what they are compared with.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(begin)
    for name in COMMANDS if only is None else (only,):
        module, attribute = COMMANDS[name]
        entry = getattr(importlib.import_module(f"fedwca.cli.{module}"), attribute)
        if isinstance(entry, typer.Typer):
            app.add_typer(entry, name=name)
        else:
            app.command(name)(entry)
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code: 0 success, 1 failure, 2 usage, 130 stopped by Ctrl-C or SIGTERM."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _ShowsEachOnce()
        try:
            return _run_and_flush(arguments)
        except BrokenPipeError:
            drop_unwritten(sys.stdout)  # the reader closed the pipe (| head), so there is nobody to report to
            return 1
        except KeyboardInterrupt as interrupt:
            return _end_stopped(interrupt)
        except Exception as error:
            if debug:
                raise
            if isinstance(error, OSError):
                drop_unwritten(sys.stdout)
            say(f"Error: {_describe_error(error)}", err=True)
            return error.exit_code if isinstance(error, FedwcaError) else 1


def _end_stopped(interrupt: KeyboardInterrupt) -> int:
    """Print the message of the interrupt, or "Stopped." if it has none; returns the exit code 130."""
    say(str(interrupt) or "Stopped.", err=True)
    return 130


def _run_and_flush(arguments: Sequence[str]) -> int:
    """Run a command and flush stdout, so that write errors are raised here; returns the exit code."""
    code = _dispatch(arguments)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _dispatch(arguments: Sequence[str]) -> int:
    """Parse the arguments and run the command; returns the exit code."""
    arguments = [expand_argument(argument) for argument in arguments]
    check_not_empty(arguments)
    command_name = next((argument for argument in arguments if not argument.startswith("-")), None)
    command = make_command(command_name if command_name in COMMANDS else None)
    try:
        return command(args=arguments, prog_name="fedwca", standalone_mode=False) or 0
    except SystemExit as system_exit:
        return system_exit.code if isinstance(system_exit.code, int) else 1
    except WrongArguments as error:
        error.message = printable(error.message, lines=True)
        with suppress(OSError):  # as in `say`, an unwritable stderr is ignored
            rich_format_error(error)
        return error.exit_code
    except typer.Abort:  # Ctrl-C at a question
        return _end_stopped(KeyboardInterrupt())


def _describe_error(error: Exception) -> str:
    """The sentence for an error: our own, else one that names the plugin component that raised it, else what it is."""
    if isinstance(error, FedwcaError):
        return str(error)
    if failure := describe_part_failure(error):
        return f"{failure}; --debug shows how"
    if _fails_to_load(error):
        return f"a library that fedwca needs cannot be loaded ({first_line(error)}); --debug shows which"
    if isinstance(error, OSError):  # without a file name, it comes from an output stream
        return describe_os_error(error, "the output cannot be written")
    return f"unexpected {type(error).__name__}: {error}. Please run again with --debug and report it."


def _fails_to_load(error: Exception) -> bool:
    """Whether an error came from an import: a module is not there, or its own code failed while it was loaded."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, ImportError) or any(frame.f_code.co_name == "<module>" for frame in frames)


class _ShowsEachOnce:
    """Prints a warning unless the same was printed before: Python repeats one after any change of its filters."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def __call__(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in self.shown:
            self.shown.add(text)
            say(f"Warning: {text}", err=True)


def main() -> None:
    """Entry point of the ``fedwca`` command."""
    prepare_streams()
    try:
        muted_stderr = mute_rank()
    except FedwcaError as error:
        say(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    try:
        code = run(sys.argv[1:])
    except Exception as error:  # only with --debug
        traceback.print_exc()
        code = getattr(error, "exit_code", 1)
    leave_ranks(code, muted_stderr)
    for stream in (sys.stdout, sys.stderr):
        drop_unwritten(stream)
    sys.exit(code)
