"""The options of a run, shared by every command that makes one."""

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
from fedwca.config.method_spec import PARTS
from fedwca.config.run_config import TRAINING_WORDS, RunConfig, layer_from_words
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError

if TYPE_CHECKING:
    from fedwca.runs.run_request import RunRequest


@dataclass(frozen=True)
class RunOptions:
    """What the run options of a command line said."""

    layer: dict[str, Any] = field(default_factory=dict)
    """Values as fields of a run's configuration; what nobody named is not in it."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """``--set`` taken apart."""
    preset: str = "default"
    file: Path | None = None

    def request(self, **more: Any) -> RunRequest:
        """The same as a request for a run; ``more`` are fields of it, and stand above what was said."""
        from fedwca.runs.run_request import RunRequest

        return RunRequest(**{**vars(self), **more})


SHARED = {
    **dict.fromkeys(("dataset", "data", "partition", "source", "target", "checkpoint", "model"), WHAT),
    **dict.fromkeys(("clients", "new_clients", "validation", "samples", "split"), WHAT),
    **dict.fromkeys(("rounds", *TRAINING_WORDS, "trials", "participation", "batch_norm", "source_models", "seed"), RUN),
    **dict.fromkeys(("device", "engine", "precision", "kernels", "workers", "trials_at_once"), RUN),
}
"""Fields of a run's configuration, or of its training, that are options of every command that makes a run, by panel."""
COMPLETED = {
    **{name: name for name in ("dataset", "partition", "model", *PARTS)},
    **dict.fromkeys(("objectives", "finish"), "objective"),
}
"""Options whose values are names, by kind."""


def _field_option(name: str, panel: str) -> Any:
    """The annotation of an option that is None unless given; its type, help and default are those of the field."""
    field = (Training if name in TRAINING_WORDS else RunConfig).model_fields[name]
    text, kind = " ".join((field.description or "").split()), COMPLETED.get(name)
    if field.default not in (None, ()):
        text += f" Default: {_shown(field.default)}."
    more = {"autocompletion": complete.complete_names(kind)} if kind else {}
    words = option(
        f"--{('objective' if name == 'objectives' else name).replace('_', '-')}", text=text, panel=panel, **more
    )
    return Annotated[_plain_type(field.annotation) | None, words]


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", "-")


def _plain_type(annotation: Any) -> Any:
    """What typer reads a field as: bounds and names are checked with the whole configuration, by one sentence.

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
            text="kind.field=value, such as aggregator.ta=0.05 or training.momentum=0.8; repeat.",
            panel=KEEP,
        ),
    ],
}
"""Options by the name of their parameter; all are None unless given but ``preset``, whose default is ``default``."""


def _hide(annotation: Any) -> Any:
    """The same option, not in the help."""
    base, words = get_args(annotation)
    words = copy(words)
    words.hidden = True
    return Annotated[base, words]


def run_options(
    command: Callable[..., None], without: Sequence[str] = PARTS, refused: Sequence[str] = ()
) -> Callable[..., None]:
    """Give a command the options of a run; those that it does not take itself arrive as one `RunOptions`.

    Args:
        command: its parameter called ``asked`` is filled; every other one is an option or argument of its own.
        without: options that mean nothing to it; those of a method's parts, unless it composes one.
        refused: options that its help leaves out, since it refuses every run that they make, and says why.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "asked"]
    mine = {parameter.name for parameter in own}
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default="default" if name == "preset" else None,
            annotation=_hide(annotation) if name in refused else annotation,
        )
        for name, annotation in OPTIONS.items()
        if name not in mine and name not in without
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(
            asked=parse_run_options({p.name: values[p.name] for p in shared}), **{name: values[name] for name in mine}
        )

    order = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    del wrapper.__wrapped__
    wrapper.__signature__ = inspect.Signature([*order, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*order, *shared]}
    return wrapper


def parse_run_options(values: dict[str, Any]) -> RunOptions:
    """Values of the shared options as what they say of a run."""
    given = {key: value for key, value in values.items() if value not in (None, [])}
    pairs, preset, file = given.pop("set_", []), given.pop("preset", "default"), given.pop("config", None)
    return RunOptions(layer_from_words(given), [split_pair(text) for text in pairs], preset, file)


def split_pair(text: str) -> tuple[str, str]:
    """``kind.field=value`` taken apart."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise UsageError(
            f"--set {text}: not of the form kind.field=value, such as aggregator.ta=0.05; "
            "the run's own values have options, such as --rounds 20"
        )
    if not value.strip():
        raise UsageError(f"--set {text}: the value is empty; leave it out for the default")
    return key.strip(), value.strip()
