"""DomainNet's lists of training and test images, and how fewer of them are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedwca.errors import DataError


@dataclass(frozen=True)
class ListedImage:
    """A line of a list."""

    file: Path
    title: str
    """Name of the class, the folder of the file."""
    part: int
    """0 training, 1 test."""


def read_list(path: Path, folder: Path, domain: str, part: int) -> list[ListedImage]:
    """The images of ``<domain>_train.txt`` or ``<domain>_test.txt``, in its order.

    A line is ``<domain>/<class>/<image> <label>``. The number is not read: classes go by their names.

    Args:
        path: the list.
        folder: what its paths are relative to.
        domain: of all its images.
        part: 0 training, 1 test.

    Raises:
        DataError: the list cannot be read, or a line is not of that form or names a file that is not there.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    listed = []
    for number, line in enumerate(filter(str.strip, lines), 1):
        name, _, label = line.strip().rpartition(" ")
        place = name.split("/")
        if not label.isdigit() or len(place) != 3 or place[0] != domain or ".." in place:
            raise DataError(f"{path}, line {number}: must be '{domain}/<class>/<image> <label>', not {line.strip()!r}")
        listed.append(ListedImage(folder / name, place[1], part))
    if lost := next((image.file for image in listed if not image.file.is_file()), None):
        raise DataError(f"{path} names {lost.relative_to(folder).as_posix()}, which is not in {folder}")
    return listed


def read_lists(folder: Path, domain: str) -> list[ListedImage]:
    """The images of both lists of a domain, those for training first.

    Args:
        folder: holds the lists, ``<domain>_train.txt`` and ``<domain>_test.txt``, and the domain.
        domain: of the images.

    Raises:
        DataError: see `read_list`, or an image is named twice, in one list or in both.
    """
    listed = [
        image
        for part, name in enumerate(("train", "test"))
        for image in read_list(folder / f"{domain}_{name}.txt", folder, domain, part)
    ]
    seen: set[Path] = set()
    for image in listed:
        if image.file in seen:
            raise DataError(
                f"{folder}: {domain}_train.txt and {domain}_test.txt name {image.file.relative_to(folder).as_posix()} "
                "twice; each image is named once, in one of them"
            )
        seen.add(image.file)
    return listed


def draw_balanced(listed: list[ListedImage], most: int | None, seed: list[int]) -> list[ListedImage]:
    """At most so many, as many of each class as there are, each part keeping its share; in their order.

    Args:
        listed: of both parts.
        most: None: all.
        seed: of the draw.
    """
    import numpy as np

    if most is None or len(listed) <= most:
        return listed
    order = np.random.default_rng(seed).permutation(len(listed))
    test = round(most * sum(image.part for image in listed) / len(listed))
    kept = []
    for part, quota in ((0, most - test), (1, test)):
        counts: dict[str, int] = {}
        taken = []
        for at in (int(at) for at in order if listed[at].part == part):
            count = counts[listed[at].title] = counts.get(listed[at].title, 0) + 1
            taken.append((count, at))
        # Everybody's first image comes before anybody's second; among equals the random order decides.
        kept += [at for _, at in sorted(taken, key=lambda one: one[0])[:quota]]
    return [listed[at] for at in sorted(kept)]
