"""The options of a run, shared by all commands that make runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from fedwca.cli import complete
from fedwca.cli.shared_options import HOW, KEEP, RUN, WHAT, option
from fedwca.config.config_layers import TRAINING_WORDS, layer_from_words
from fedwca.config.method_spec import PARTS
from fedwca.config.run_config import RunConfig
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError

if TYPE_CHECKING:
    from fedwca.runs.run_request import RunRequest


@dataclass(frozen=True)
class RunOptions:
    """The values of a command line's run options."""

    layer: dict[str, Any] = field(default_factory=dict)
    """Values as fields of a run's configuration; options that were not given are absent."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """``--set`` options as (key, value)."""
    preset: str = "default"
    file: Path | None = None

    def request(self, **overrides: Any) -> RunRequest:
        """These options as a run request; ``overrides`` are fields of the request that take precedence."""
        from fedwca.runs.run_request import RunRequest

        return RunRequest(**{**vars(self), **overrides})


SHARED = {
    **dict.fromkeys(("dataset", "data", "partition", "source", "target", "checkpoint", "model"), WHAT),
    **dict.fromkeys(("clients", "new_clients", "validation", "samples", "split"), WHAT),
    **dict.fromkeys(("rounds", *TRAINING_WORDS, "trials", "participation", "batch_norm", "source_models", "seed"), RUN),
    **dict.fromkeys(("device", "engine", "precision", "kernels", "workers", "trials_at_once"), RUN),
}
"""Field of a run's configuration or its training → help panel, for the options of every command that makes runs."""
ONE = ("source", "target")
"""Options that some commands take several times; the others take them once, and refuse more."""
COMPLETED = {
    **{name: name for name in ("dataset", "partition", "model", *PARTS)},
    **dict.fromkeys(("objectives", "finish"), "objective"),
}
"""Option whose values are component names → kind of component, for shell completion."""


def _field_option(name: str, panel: str) -> Any:
    """The annotation of an option that is None unless given, with the type, help and default of its field."""
    field = (Training if name in TRAINING_WORDS else RunConfig).model_fields[name]
    text, kind = " ".join((field.description or "").split()), COMPLETED.get(name)
    if field.default not in (None, ()):
        text += f" Default: {_shown(field.default)}."
    keywords: dict[str, Any] = {"autocompletion": complete.complete_names(kind)} if kind else {}
    keywords |= {"metavar": "<str>"} if name in ONE else {}
    option_info = option(
        f"--{('objective' if name == 'objectives' else name).replace('_', '-')}",
        text=text,
        panel=panel,
        **keywords,
    )
    return Annotated[(list[str] if name in ONE else _plain_type(field.annotation)) | None, option_info]


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", "-")


def _plain_type(annotation: Any) -> Any:
    """The type that typer parses; bounds and names are checked later, with the whole configuration.

    >>> _plain_type(int | None), _plain_type(Literal["auto", "loop"])
    (<class 'int'>, <class 'str'>)
    """
    if get_origin(annotation) is Literal:
        return str
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return list[str]
    inner = [_plain_type(part) for part in get_args(annotation) if part is not NoneType]
    return inner[0] if inner else annotation


OPTIONS: dict[str, Any] = {
    **{name: _field_option(name, panel) for name, panel in {**dict.fromkeys(PARTS, HOW), **SHARED}.items()},
    "preset": Annotated[
        str,
        typer.Option(
            "--preset",
            help="Values below the command line and --config: default, paper (Table 9 by data set and source), or "
            "another that fedwca list presets names.",
            rich_help_panel=KEEP,
            autocompletion=complete.presets,
        ),
    ],
    "config": Annotated[
        Path | None,
        option("--config", text="TOML or JSON file with values; a run's config.json is one.", panel=KEEP),
    ],
    "set_": Annotated[
        list[str] | None,
        option(
            "--set",
            text="kind.field=value, such as aggregator.ta=0.05 or training.momentum=0.8; repeat. Takes precedence over "
            "other options.",
            panel=KEEP,
        ),
    ],
}
"""Options by parameter name; all are None unless given, except ``preset``, whose default is ``default``."""


def _hide(annotation: Any) -> Any:
    """The same option, hidden from the help."""
    base, option_info = get_args(annotation)
    option_info = copy(option_info)
    option_info.hidden = True
    return Annotated[base, option_info]


def run_options(
    command: Callable[..., None], without: Sequence[str] = PARTS, refused: Sequence[str] = ()
) -> Callable[..., None]:
    """Give a command the options of a run; those that it does not declare itself arrive as one `RunOptions`.

    Args:
        command: its parameter ``asked`` receives the `RunOptions`; all other parameters are its own options.
        without: options that it does not get; by default those of a method's parts, for commands that compose none.
        refused: options that it gets but hides from its help, since it refuses every run made with them and says why.
    """
    own_parameters = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "asked"]
    own_names = {parameter.name for parameter in own_parameters}
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default="default" if name == "preset" else None,
            annotation=_hide(annotation) if name in refused else annotation,
        )
        for name, annotation in OPTIONS.items()
        if name not in own_names and name not in without
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(
            asked=parse_run_options({p.name: values[p.name] for p in shared}),
            **{name: values[name] for name in own_names},
        )

    keyword_parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own_parameters]
    del wrapper.__wrapped__
    wrapper.__signature__ = inspect.Signature([*keyword_parameters, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*keyword_parameters, *shared]}
    return wrapper


def parse_run_options(values: dict[str, Any]) -> RunOptions:
    """The values of the shared options as `RunOptions`.

    Raises:
        UsageError: a value is wrong, or an option of `ONE` is given twice.
    """
    options = {key: value for key, value in values.items() if value not in (None, [])}
    for key in filter(options.get, ONE):
        if len(options[key]) > 1:
            raise UsageError(f"--{key} is given twice, and one run has one {key}; fedwca compare takes several")
        options[key] = options[key][0]
    pairs, preset, file = options.pop("set_", []), options.pop("preset", "default"), options.pop("config", None)
    return RunOptions(layer_from_words(options), [split_pair(text) for text in pairs], preset, file)


def split_pair(text: str) -> tuple[str, str]:
    """``kind.field=value`` as (key, value).

    Raises:
        UsageError: the text is not of this form, or the value is empty.
    """
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise UsageError(
            f"--set {text}: not of the form kind.field=value, such as aggregator.ta=0.05; "
            "the run's own values have options, such as --rounds 20"
        )
    if not value.strip():
        raise UsageError(f"--set {text}: the value is empty; leave it out for the default")
    return key.strip(), value.strip()
