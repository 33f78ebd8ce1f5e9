"""Says which clients have no test images."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.results.low_trust import name_clients


def describe_unmeasured(tests: Sequence[int], needs: str = "3 images", new: int = 0) -> str | None:
    """A sentence on clients without test images; None if all have some.

    Args:
        tests: number of test images of each client.
        needs: what training clients without test images need to have one.
        new: how many clients, the last ones, are newcomers, whose images are all test images.

    >>> describe_unmeasured([2, 0, 3])
    '1 of 3 clients without test images (client 1): no mean counts it; clients need 3 images for a test image'
    >>> describe_unmeasured([2, 3, 0], new=1)
    '1 of 3 clients without test images (client 2): no mean counts it; new clients need an image'
    """
    untested = [client for client, count in enumerate(tests) if count == 0]
    if not untested:
        return None
    requirements = {
        f"clients need {needs} for a test image": untested[0] < len(tests) - new,
        "new clients need an image": untested[-1] >= len(tests) - new,
    }
    need = ", ".join(sentence for sentence, holds in requirements.items() if holds)
    if len(untested) == len(tests):
        return f"no client has test images, so no accuracy can be measured; {need}"
    names, pronoun = name_clients(untested, most=5), "it" if len(untested) == 1 else "them"
    return f"{len(untested)} of {len(tests)} clients without test images ({names}): no mean counts {pronoun}; {need}"
