"""Test images that the delivered models get wrong, and are sure of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedwca.results.pictures import style

COLUMNS = 10
MOST = 8


def mistakes(
    images: Sequence[Any],
    truth: Sequence[Any],
    predicted: Sequence[Any],
    confidences: Sequence[Any],
    classes: Sequence[str],
    domains: Sequence[str],
    title: str,
) -> Any:
    """A row of wrong images for each target domain, the surest first: true class, predicted class, confidence.

    Args:
        images: test images ``[N, H, W, 3]`` uint8, K arrays.
        truth: class of each ``[N]``.
        predicted: class the model gives ``[N]``.
        confidences: its output for that class ``[N]``, 0 to 1.
        classes: their names.
        domains: true domain of each client.
        title: what was run.

    Raises:
        NotDrawn: every test image is right, or there are none.
    """
    rows = {}
    for domain in dict.fromkeys(domains):
        own = [k for k, name in enumerate(domains) if name == domain]
        total = sum(len(truth[k]) for k in own)
        wrong = [[(k, i) for i in range(len(truth[k])) if truth[k][i] != predicted[k][i]] for k in own]
        if any(wrong):
            rows[domain] = ([pair for one in wrong for pair in one], total)
    if not rows:
        raise style.NotDrawn(
            "no test image is classified wrongly" if any(map(len, truth)) else "there are no test images"
        )
    shown = dict(list(rows.items())[:MOST])
    made = style.figure(11.5, 0.9 + 1.5 * len(shown), f"Most confident mistakes: true → predicted, confidence\n{title}")
    axes = made.subplots(len(shown), COLUMNS, squeeze=False)
    for line, (domain, (pairs, total)) in zip(axes, shown.items(), strict=True):
        for axis in line:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        surest = sorted(pairs, key=lambda pair: -float(confidences[pair[0]][pair[1]]))
        for axis, (client, index) in zip(line, surest, strict=False):
            axis.imshow(images[client][index])
            true, said = classes[int(truth[client][index])], classes[int(predicted[client][index])]
            long = len(true) + len(said) > 12
            sure = f"{style.whole_percent(100 * float(confidences[client][index]))} %"
            axis.set_title(
                f"{true}\n→ {said}\n{sure}" if long else f"{true} → {said}\n{sure}", fontsize=7 if long else 9
            )
        line[0].set_ylabel(f"{domain}\n{len(pairs)} of {total}", rotation=0, ha="right", va="center", fontsize=9)
    return made
