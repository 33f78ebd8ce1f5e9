"""Messages in the words of the Python interface: `clients` in place of the command line's ``--clients``."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager

from fedwca.config.run_config import RunConfig
from fedwca.errors import FedwcaError

ARGUMENTS = {
    name.replace("_", "-"): name
    for name in (
        *RunConfig.model_fields,
        *("batch_size", "config", "epochs", "keep", "lr", "out", "preset", "reference", "resume"),
    )
} | {"set": "overrides", "baseline": "baselines", "objective": "objectives", "logger": "loggers", "probe": "probes"}
"""Arguments of `fedwca.bench` and `fedwca.compare` by option without its dashes, where both have it."""
COMMAND = re.compile(r"(`(?:fedwca|pip|python) [^`]*`|(?<=: )(?:fedwca|pip) .*)")
"""A command for the reader to run, whose options stay: in backticks, or after a colon to the end of the line."""
FIELD = re.compile(r"--set ([a-z][\w-]*(?:\.[\w-]+)+)=([^\s;,)]*[^\s;,).:])")
OPTION = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?![\w-])")


def in_python_words(message: str) -> str:
    """Replace the command line's options in a message by the arguments that the Python interface has for them.

    >>> in_python_words("lower --clients or --new-clients; take --set model.side=112, as `fedwca bench --clients 2`")
    "lower clients or new_clients; take overrides={'model.side': 112}, as `fedwca bench --clients 2`"
    """
    parts = COMMAND.split(message)
    for index in range(0, len(parts), 2):
        parts[index] = FIELD.sub(lambda match: f"overrides={{{match[1]!r}: {_literal(match[2])}}}", parts[index])
        parts[index] = OPTION.sub(lambda match: ARGUMENTS.get(match[1], match[0]), parts[index])
    return "".join(parts)


def _literal(value: str) -> str:
    """A value of ``--set`` as Python writes it; a placeholder in capitals, such as PATH, stays."""
    if value.isupper():
        return value
    try:
        return repr(literal_eval({"true": "True", "false": "False", "none": "None"}.get(value, value)))
    except (SyntaxError, ValueError):
        return repr(value)


@contextmanager
def errors_in_python_words() -> Iterator[None]:
    """Raise what the body raises, with the message of a FedwcaError `in_python_words`."""
    try:
        yield
    except FedwcaError as error:
        error.args = tuple(in_python_words(part) if isinstance(part, str) else part for part in error.args)
        raise
