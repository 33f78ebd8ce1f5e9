"""Tables of a method by class, as HTML: confusion matrix, scores, and counts of pseudo-labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fedwca.results.class_scores import ClassScore, name_class, score_classes
from fedwca.results.diverged_runs import whole_runs
from fedwca.results.read_run import Run
from fedwca.results.report.html_tables import escape, html_table, wide_table
from fedwca.results.shown_records import Record, shown_records
from fedwca.results.tables import Cell, Table, mean_cell
from fedwca.results.trial_key import TrialKey

MOST = 40
"""Maximum number of classes for a matrix and bars; with more, only the table by class is shown."""
EMPTY = "no test image"


def class_tables(run: Run) -> str:
    """The class tables of every method, over all counted runs together; those of the composed method are unfolded.

    Args:
        run: the run; its records hold the confusion matrices.
    """
    shown = shown_records(whole_runs(run.lines))
    parts = []
    for name, label in run.labels.items():
        counted = [record for record in shown[name].values() if record.get("confusion")]
        if counted:
            content = _of_method(counted, guessed_labels(run, name), run.classes)
            parts.append(
                f"<details{' open' * (name == run.composed)}><summary>{escape(label)}</summary>{content}</details>"
            )
    return "".join(reversed(parts)) or '<p class="note">The records hold no counts by class.</p>'


def guessed_labels(run: Run, method: str) -> list[tuple[int, int]]:
    """Number of pseudo-labels and of true labels of each class, summed over all counted runs.

    Of each run, the last round with pseudo-labels counts.

    Args:
        run: the run.
        method: name of the method.
    """
    counted = [record for record in whole_runs(run.lines_of(method)) if record.get("pseudo_label_counts")]
    tables = list({TrialKey.of(record): record["pseudo_label_counts"] for record in counted}.values())
    return [
        (
            sum(counts[label][0] for counts in tables if label < len(counts)),
            sum(counts[label][1] for counts in tables if label < len(counts)),
        )
        for label in range(max(map(len, tables), default=0))
    ]


def _of_method(records: Sequence[Record], label_counts: Sequence[tuple[int, int]], classes: Sequence[str]) -> str:
    counts = Counter[tuple[int, int]]()
    for record in records:
        for true_class, predicted, images in record["confusion"]:
            counts[true_class, predicted] += images
    scores = score_classes([(*pair, images) for pair, images in counts.items()], max(len(classes), len(label_counts)))
    names = {label: name_class(label, classes) for label in scores}
    matrix = _matrix(counts, scores, names) if len(scores) <= MOST else ""
    return matrix + _by_class(scores, names, label_counts)


def _matrix(counts: Mapping[tuple[int, int], int], scores: Mapping[int, ClassScore], names: Mapping[int, str]) -> str:
    """Images by true class (rows) and predicted class (columns); a cell is darker, the larger its share of the row."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names.values())
    rows = []
    for label, score in scores.items():
        head = f'<th scope="row" class="text">{escape(names[label])}</th>'
        if score.images:
            cells = [_cell(counts.get((label, predicted), 0), score.images, predicted == label) for predicted in scores]
            rows.append(f"<tr>{head}{''.join(cells)}</tr>")
        else:
            rows.append(f'<tr class="empty">{head}<td colspan="{len(scores)}">{EMPTY}</td></tr>')
    return wide_table(
        f'<thead><tr><th scope="col" class="text">class</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>',
        "Test images by true class (rows) and predicted class (columns)",
        ' class="heat confusion"',
    )


def _cell(images: int, total: int, correct: bool) -> str:
    share = round(100 * images / total)
    colour = "own" if correct else "warn"
    shade = f' style="background:color-mix(in srgb,var(--{colour}) {share // 2}%,transparent)"' if share else ""
    return f"<td{shade}>{images or ''}</td>"


def _by_class(
    scores: Mapping[int, ClassScore], names: Mapping[int, str], label_counts: Sequence[tuple[int, int]]
) -> str:
    """Accuracy and F1 of each class, and its number of pseudo-labels and of true labels."""
    counts_by_class = dict(enumerate(label_counts))
    columns = ["class", "test images", "predicted", "right (%)", "F1 (%)"]
    columns += ["pseudo-labels", "true labels", "pseudo / true"] if label_counts else []
    rows = []
    for label, score in scores.items():
        row = [names[label], Cell(str(score.images) if score.images else EMPTY, score.images), _count(score.predicted)]
        row += [mean_cell(score.accuracy), mean_cell(score.f1)]
        if label_counts:
            pseudo, true = counts_by_class.get(label, (0, 0))
            row += [_count(pseudo), _count(true), Cell(f"{pseudo / true:.2f} ×", pseudo / true) if true else Cell("")]
        rows.append(row)
    title_suffix = ", and training images by pseudo-label and by true label" if label_counts else ""
    return html_table(Table(f"Test images by class{title_suffix}", columns, rows)) + _histogram(names, counts_by_class)


def _histogram(names: Mapping[int, str], label_counts: Mapping[int, tuple[int, int]]) -> str:
    """A pair of bars per class: number of pseudo-labels and of true labels."""
    highest = max((count for pair in label_counts.values() for count in pair), default=0)
    if not highest or len(names) > MOST:
        return ""
    rows = "".join(
        f'<tr><th scope="row" class="text">{escape(names[label])}</th>'
        f"<td>{_bar('own', pseudo, highest)}{_bar('soft', true, highest)}</td></tr>"
        for label, (pseudo, true) in label_counts.items()
        if label in names
    )
    legend = '<tr><th scope="col" class="text">class</th><th scope="col" class="text">training images</th></tr>'
    return wide_table(
        f"<thead>{legend}</thead><tbody>{rows}</tbody>",
        "Training images by class: pseudo-labels in the last round (upper bar, blue), true labels (lower bar, grey)",
        ' class="bars"',
    )


def _bar(colour: str, images: int, highest: int) -> str:
    width = f"{100 * images / highest:.1f}"
    return f'<span class="bar"><i style="width:{width}%;background:var(--{colour})"></i>{images}</span>'


def _count(images: int) -> Cell:
    return Cell(str(images), images)
