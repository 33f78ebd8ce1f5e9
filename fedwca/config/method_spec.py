"""A method in one word of a command line: a baseline's name, or a composition that starts from one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedwca.core.printable import printable
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name

PARTS = ("aggregator", "clusterer", "pseudo_labeler", "objectives", "adaptation", "finish")
"""What a method is made of: fields of a configuration, and options of the commands that compose one."""
SEVERAL = ("objectives", "finish")
"""Parts of which there may be more than one."""
OPTIONAL = ("adaptation", "finish")
"""Parts of which there may be none."""
NOTHING = "none"
"""What is written for a part of which there is none."""


@dataclass(frozen=True)
class MethodSpec:
    """``[LABEL=]HEAD[:field=value,…][/part=component[:field=value,…]]…`` taken apart."""

    label: str | None
    """What tables call it; None: what its head is called, with the changes."""
    head: str
    """A baseline, or an aggregator that the default parts are put around."""
    fields: str
    """``ta=0.05,tb=0.1``: fields of the head's aggregator; may be empty."""
    changes: dict[str, tuple[str, ...]]
    """Part to the components that stand in for the head's; more than one only of `SEVERAL`, none only of `OPTIONAL`."""

    @property
    def text(self) -> str:
        """The word that `parse_method` reads back."""
        changed = "".join(f"/{part}={'+'.join(specs) or NOTHING}" for part, specs in self.changes.items())
        return f"{f'{self.label}=' if self.label else ''}{self.head}{f':{self.fields}' if self.fields else ''}{changed}"

    @property
    def name(self) -> str:
        """What records call it."""
        return canonical_name(self.label) if self.label else self.text

    @property
    def plain(self) -> bool:
        """Whether it is a name and nothing more."""
        return not (self.label or self.fields or self.changes)


def parse_method(text: str) -> MethodSpec:
    """A method's word taken apart; names are made canonical, values stay as they are.

    >>> parse_method("True=FedWCA:ta=0.05/clusterer=true").changes
    {'clusterer': ('true',)}
    >>> parse_method("one-hot").text
    'one_hot'

    Raises:
        UsageError: a change is not of the form part=component, or a part is changed twice.
    """
    if printable(text.strip()) != text.strip():
        raise UsageError(f"method {text!r}: has control characters; a name is text that can be shown")
    first, *rest = text.strip().split("/")
    start, _, fields = first.partition(":")
    label, equals, head = start.rpartition("=")
    if (equals and not label.strip()) or not head.strip():
        raise UsageError(f"method {text!r}: needs a name, such as fedwca or {'My label=fedwca:ta=0.05'!r}")
    changes: dict[str, tuple[str, ...]] = {}
    for change in rest:
        part, equals, value = change.partition("=")
        part = {"objective": "objectives"}.get(canonical_name(part), canonical_name(part))
        if part not in PARTS:
            raise UsageError(f"method {text!r}: {describe_unknown('part', part, PARTS)}")
        if part in changes:
            joined = "; several are joined by +" if part in SEVERAL else ""
            raise UsageError(f"method {text!r}: names its {part} twice{joined}")
        if not equals or not value:
            raise UsageError(f"method {text!r}: {change!r} is not of the form part=component, such as clusterer=true")
        specs = re.split(r"\+(?=[A-Za-z])", value) if part in SEVERAL else [value]
        nothing = part in OPTIONAL and canonical_name(value) == NOTHING
        changes[part] = () if nothing else tuple(_component(spec) for spec in specs)
    return MethodSpec(label.strip() or None, canonical_name(head), fields, changes)


def _component(spec: str) -> str:
    name, colon, fields = spec.partition(":")
    return canonical_name(name) + colon + fields
