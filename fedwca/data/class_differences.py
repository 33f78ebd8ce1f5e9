"""Says in which classes the domains of a data set differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from difflib import get_close_matches


def describe_class_differences(classes: Mapping[str, Collection[str]]) -> str:
    """Clauses for an error message; empty if all domains have the same classes.

    A class that one domain alone has is most often another one's misspelt name, or a folder that is no class.

    Args:
        classes: of each domain.

    >>> describe_class_differences({"a": ["cat", "corss"], "b": ["cat", "cross"], "c": ["cat", "cross"]})
    "a alone has 'corss', and lacks 'cross'"
    >>> describe_class_differences({"a": ["cat", "notes"], "b": ["cat"], "c": ["cat"]})
    "a alone has 'notes'"
    >>> describe_class_differences({"a": ["cow"], "b": ["dog"]})
    "a lacks 'dog'; b lacks 'cow'"
    """
    times = Counter(label for names in classes.values() for label in set(names))
    several = len(classes) > 2  # of two domains, each has alone what the other lacks
    single = {label for label, count in times.items() if several and count == 1}
    clauses = []
    for domain, names in classes.items():
        missing = sorted(times.keys() - set(names) - single)
        for label in sorted(single & set(names)):
            close = get_close_matches(label, missing, 1)
            clauses.append(f"{domain} alone has {label!r}" + (f", and lacks {close[0]!r}" if close else ""))
            missing = [other for other in missing if other not in close]
        if missing:
            clauses.append(f"{domain} lacks {', '.join(map(repr, missing))}")
    return "; ".join(clauses)
