"""What is taken for what, and how often each class is guessed: a method's tables by class, as HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fedwca.results.class_scores import ClassScore, name_class, score_classes
from fedwca.results.read_run import Run
from fedwca.results.report.html_tables import escape, html_table, wide_table
from fedwca.results.table_rows import Record, shown_records
from fedwca.results.tables import Cell, Table, mean_cell
from fedwca.results.trial_key import TrialKey

MOST = 40
"""Classes of a matrix that can be read; of more there is the table by class alone."""
EMPTY = "no test image"


def class_tables(run: Run) -> str:
    """Every method's tables, the composed one's open, over all runs that tables count together.

    Args:
        run: its records say what test images were taken for.
    """
    found = shown_records(run.records)
    parts = []
    for name, label in run.labels.items():
        records = [r for trial, r in found[name].items() if trial not in run.diverged.get(name, {})]
        counted = [record for record in records if record.get("confusion")]
        if counted:
            inside = _of_method(counted, guessed_labels(run, name), run.classes)
            parts.append(f"<details{' open' * (name == run.own)}><summary>{escape(label)}</summary>{inside}</details>")
    return "".join(reversed(parts)) or '<p class="note">The records hold no counts by class.</p>'


def guessed_labels(run: Run, method: str) -> list[tuple[int, int]]:
    """Training images by class, pseudo-labels and true ones, in the last round with any of each run that tables count.

    Args:
        run: the run.
        method: its name.
    """
    last: dict[TrialKey, Record] = {}
    for record in run.rounds(method):
        trial = TrialKey.of(record)
        if record.get("pseudo_label_counts") and trial not in run.diverged.get(method, {}):
            last[trial] = record
    tables = [record["pseudo_label_counts"] for record in last.values()]
    return [
        (
            sum(own[label][0] for own in tables if label < len(own)),
            sum(own[label][1] for own in tables if label < len(own)),
        )
        for label in range(max(map(len, tables), default=0))
    ]


def _of_method(records: Sequence[Record], guessed: Sequence[tuple[int, int]], classes: Sequence[str]) -> str:
    counts = Counter[tuple[int, int]]()
    for record in records:
        for true, said, images in record["confusion"]:
            counts[true, said] += images
    scores = score_classes([(*pair, images) for pair, images in counts.items()], max(len(classes), len(guessed)))
    names = {label: name_class(label, classes) for label in scores}
    matrix = _matrix(counts, scores, names) if len(scores) <= MOST else ""
    return matrix + _by_class(scores, names, guessed)


def _matrix(counts: Mapping[tuple[int, int], int], scores: Mapping[int, ClassScore], names: Mapping[int, str]) -> str:
    """Images by true class (rows) and predicted class (columns); the larger its share of the row, the darker a cell."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names.values())
    rows = []
    for label, score in scores.items():
        head = f'<th scope="row" class="text">{escape(names[label])}</th>'
        if score.images:
            cells = [_cell(counts.get((label, said), 0), score.images, said == label) for said in scores]
            rows.append(f"<tr>{head}{''.join(cells)}</tr>")
        else:
            rows.append(f'<tr class="empty">{head}<td colspan="{len(scores)}">{EMPTY}</td></tr>')
    return wide_table(
        f'<thead><tr><th scope="col" class="text">class</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>',
        "Test images by true class (rows) and predicted class (columns)",
        ' class="heat confusion"',
    )


def _cell(images: int, of: int, right: bool) -> str:
    share = round(100 * images / of)
    colour = "own" if right else "warn"
    shade = f' style="background:color-mix(in srgb,var(--{colour}) {share // 2}%,transparent)"' if share else ""
    return f"<td{shade}>{images or ''}</td>"


def _by_class(scores: Mapping[int, ClassScore], names: Mapping[int, str], guessed: Sequence[tuple[int, int]]) -> str:
    """Accuracy and F1 of each class; beside them how often it was guessed, and how often that is true."""
    known = dict(enumerate(guessed))
    columns = ["class", "test images", "predicted", "right (%)", "F1 (%)"]
    columns += ["pseudo-labels", "true labels", "pseudo / true"] if guessed else []
    rows = []
    for label, score in scores.items():
        row = [names[label], Cell(str(score.images) if score.images else EMPTY, score.images), _count(score.predicted)]
        row += [mean_cell(score.accuracy), mean_cell(score.f1)]
        if guessed:
            given, true = known.get(label, (0, 0))
            row += [_count(given), _count(true), Cell(f"{given / true:.2f} ×", given / true) if true else Cell("")]
        rows.append(row)
    beside = ", and training images by pseudo-label and by true label" if guessed else ""
    return html_table(Table(f"Test images by class{beside}", columns, rows)) + _histogram(names, known)


def _histogram(names: Mapping[int, str], guessed: Mapping[int, tuple[int, int]]) -> str:
    """Bars of pseudo-labels and of true labels, a pair a class."""
    most = max((number for pair in guessed.values() for number in pair), default=0)
    if not most or len(names) > MOST:
        return ""
    rows = "".join(
        f'<tr><th scope="row" class="text">{escape(names[label])}</th>'
        f"<td>{_bar('own', given, most)}{_bar('soft', true, most)}</td></tr>"
        for label, (given, true) in guessed.items()
        if label in names
    )
    legend = '<tr><th scope="col" class="text">class</th><th scope="col" class="text">training images</th></tr>'
    return wide_table(
        f"<thead>{legend}</thead><tbody>{rows}</tbody>",
        "Training images by class: pseudo-labels in the last round (upper bar, blue), true labels (lower bar, grey)",
        ' class="bars"',
    )


def _bar(colour: str, images: int, most: int) -> str:
    width = f"{100 * images / most:.1f}"
    return f'<span class="bar"><i style="width:{width}%;background:var(--{colour})"></i>{images}</span>'


def _count(images: int) -> Cell:
    return Cell(str(images), images)
