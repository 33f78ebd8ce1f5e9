"""Test images that the delivered models get wrong with high confidence."""

from __future__ import annotations

from typing import Any

from fedwca.results.pictures import style
from fedwca.results.pictures.final_models import Models

COLUMNS = 10
MOST = 8
LETTERS = 15
"""Maximum length of a class's name above an image."""


def mistakes(models: Models) -> Any:
    """A row of misclassified images per domain, the most confident first: true class, predicted class, confidence.

    Raises:
        NotDrawn: every test image is classified correctly, or there are none.
    """
    rows, classes, truth, predicted = {}, models.classes, models.truth, models.predicted
    for domain in dict.fromkeys(models.domains):
        clients = [k for k, name in enumerate(models.domains) if name == domain]
        total = sum(len(truth[k]) for k in clients)
        wrong = [[(k, i) for i in range(len(truth[k])) if truth[k][i] != predicted[k][i]] for k in clients]
        if any(wrong):
            rows[domain] = ([pair for client_pairs in wrong for pair in client_pairs], total)
    if not rows:
        raise style.NotDrawn(
            "no test image is classified wrongly" if any(map(len, truth)) else "there are no test images"
        )
    shown = dict(list(rows.items())[:MOST])
    note = f"; the first {MOST} of {len(rows)} domains" if len(rows) > MOST else ""
    heading = f"Most confident mistakes: true → predicted, confidence{note}\n{models.title}"
    fig = style.figure(11.5, 0.9 + 1.5 * len(shown), heading)
    axes = fig.subplots(len(shown), COLUMNS, squeeze=False)
    for row_axes, (domain, (pairs, total)) in zip(axes, shown.items(), strict=True):
        for axis in row_axes:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        surest = sorted(pairs, key=lambda pair: -float(models.confidences[pair[0]][pair[1]]))
        for axis, (client, index) in zip(row_axes, surest, strict=False):
            axis.imshow(models.images[client][index])
            labels = truth[client][index], predicted[client][index]
            true_class, predicted_class = (style.cut_name(classes[int(label)], LETTERS) for label in labels)
            long = len(true_class) + len(predicted_class) > 12
            confidence = f"{style.whole_percent(100 * float(models.confidences[client][index]))} %"
            axis.set_title(
                f"{true_class}\n→ {predicted_class}\n{confidence}"
                if long
                else f"{true_class} → {predicted_class}\n{confidence}",
                fontsize=7 if long else 9,
            )
        row_axes[0].set_ylabel(f"{domain}\n{len(pairs)} of {total}", rotation=0, ha="right", va="center", fontsize=9)
    return fig
