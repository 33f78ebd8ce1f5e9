"""A method written as one word: a baseline's name, or a composition that starts from a baseline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedwca.core.printable import printable
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name

PARTS = ("aggregator", "clusterer", "pseudo_labeler", "objectives", "adaptation", "finish")
"""Parts of a method: fields of a configuration, and options of the commands that compose a method."""
REPLACEABLE = (*PARTS, "central")
"""Parts of a baseline that a method's word may replace."""
SEVERAL = ("objectives", "finish")
"""Parts that may have more than one component."""
OPTIONAL = ("adaptation", "finish")
"""Parts that may be left empty."""
NOTHING = "none"
"""The word for an empty part."""


@dataclass(frozen=True)
class MethodSpec:
    """The parsed form of ``[LABEL=]HEAD[:field=value,…][/part=component[:field=value,…]]…``."""

    label: str | None
    """Its name in tables; None: the head's label with the changes."""
    head: str
    """A baseline's name, or an aggregator's, which gets the default parts."""
    fields: str
    """Fields of the head's aggregator, such as ``ta=0.05,tb=0.1``; may be empty."""
    changes: dict[str, tuple[str, ...]]
    """Part → components that replace the head's; several only for `SEVERAL` parts, none only for `OPTIONAL` ones."""

    @property
    def text(self) -> str:
        """The word that `parse_method` parses to this."""
        changes = "".join(f"/{part}={'+'.join(specs) or NOTHING}" for part, specs in self.changes.items())
        return f"{f'{self.label}=' if self.label else ''}{self.head}{f':{self.fields}' if self.fields else ''}{changes}"

    @property
    def name(self) -> str:
        """Its name in records."""
        return canonical_name(self.label) if self.label else self.text

    @property
    def plain(self) -> bool:
        """Whether it is a bare name, without label, fields and changes."""
        return not (self.label or self.fields or self.changes)


def parse_method(text: str) -> MethodSpec:
    """Parse a method's word; names are made canonical, values stay as they are.

    >>> parse_method("True=FedWCA:ta=0.05/clusterer=true").changes
    {'clusterer': ('true',)}
    >>> parse_method("one-hot").text
    'one_hot'

    Raises:
        UsageError: it is no text, its name is missing or not printable, a change is not of the form part=component, or
            a part is changed or a component named twice.
    """
    given: object = text
    if not isinstance(given, str):
        raise UsageError(f"a method is a word, such as 'fedwca' or 'wca:ta=0.05', not a {type(given).__name__}")
    if printable(text.strip()) != text.strip():
        raise UsageError(f"method {text!r}: has control characters; a name is text that can be shown")
    if text.strip().lower().endswith(".toml") and "=" not in text:
        raise UsageError(f"method {text!r}: needs a name, not a file; a file of settings goes to --config")
    head_part, *change_parts = text.strip().split("/")
    labelled_head, _, fields = head_part.partition(":")
    label, equals, head = labelled_head.rpartition("=")
    if (equals and not label.strip()) or not head.strip():
        raise UsageError(f"method {text!r}: needs a name, such as fedwca or {'My label=fedwca:ta=0.05'!r}")
    changes: dict[str, tuple[str, ...]] = {}
    for change in change_parts:
        part, equals, value = change.partition("=")
        part = {"objective": "objectives"}.get(canonical_name(part), canonical_name(part))
        if part not in REPLACEABLE:
            raise UsageError(f"method {text!r}: {describe_unknown('part', part, REPLACEABLE)}")
        if part in changes:
            hint = "; several are joined by +" if part in SEVERAL else ""
            raise UsageError(f"method {text!r}: names its {part} twice{hint}")
        if not equals or not value:
            raise UsageError(f"method {text!r}: {change!r} is not of the form part=component, such as clusterer=true")
        specs = re.split(r"\+(?=[A-Za-z])", value) if part in SEVERAL else [value]
        names = [canonical_name(spec.partition(":")[0]) for spec in specs]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"method {text!r}: names {repeated[0]!r} twice in its {part}")
        is_none = part in OPTIONAL and canonical_name(value) == NOTHING
        changes[part] = () if is_none else tuple(_component(spec) for spec in specs)
    return MethodSpec(label.strip() or None, canonical_name(head), fields, changes)


def _component(spec: str) -> str:
    name, colon, fields = spec.partition(":")
    return canonical_name(name) + colon + fields
