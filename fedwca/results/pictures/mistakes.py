"""Test images that the delivered models get wrong."""

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
    classes: Sequence[str],
    domains: Sequence[str],
    title: str,
) -> Any:
    """A row of wrongly classified images for each target domain, each with its true and its predicted class.

    Args:
        images: test images ``[N, H, W, 3]`` uint8, K arrays.
        truth: class of each ``[N]``.
        predicted: class the model gives ``[N]``.
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
    made = style.figure(11.5, 0.9 + 1.35 * len(shown), f"Wrongly classified test images: true → predicted\n{title}")
    axes = made.subplots(len(shown), COLUMNS, squeeze=False)
    for line, (domain, (pairs, total)) in zip(axes, shown.items(), strict=True):
        for axis in line:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        # Spread over all of them: neighbours in the file may be variants of one image.
        count = min(COLUMNS, len(pairs))
        shown_pairs = [pairs[i * len(pairs) // count] for i in range(count)]
        for axis, (client, index) in zip(line, shown_pairs, strict=False):
            axis.imshow(images[client][index])
            true, said = classes[int(truth[client][index])], classes[int(predicted[client][index])]
            long = len(true) + len(said) > 12
            axis.set_title(f"{true}\n→ {said}" if long else f"{true} → {said}", fontsize=7 if long else 9)
        line[0].set_ylabel(f"{domain}\n{len(pairs)} of {total}", rotation=0, ha="right", va="center", fontsize=9)
    return made
