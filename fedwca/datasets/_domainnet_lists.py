"""Read DomainNet's lists of training and test images, and draw some of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedwca.errors import DataError


@dataclass(frozen=True)
class ListedImage:
    """A line of a list."""

    file: Path
    title: str
    """Name of the class, which is the folder of the file."""
    part: int
    """0 training, 1 test."""


def read_list(path: Path, folder: Path, domain: str, part: int) -> list[ListedImage]:
    """Read the images of ``<domain>_train.txt`` or ``<domain>_test.txt``, in its order.

    A line is ``<domain>/<class>/<image> <label>``. The label is not used: classes are known by their names.

    Args:
        path: the list.
        folder: to which its paths are relative.
        domain: of all its images.
        part: 0 training, 1 test.

    Raises:
        DataError: the list cannot be read, or a line is not of that form.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    listed = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        segments = name.split("/")
        if not label.isdigit() or len(segments) != 3 or segments[0] != domain or ".." in segments:
            raise DataError(f"{path}, line {number}: must be '{domain}/<class>/<image> <label>', not {line.strip()!r}")
        listed.append(ListedImage(folder / name, segments[1], part))
    return listed


def read_lists(folder: Path, domain: str) -> list[ListedImage]:
    """Read the images of both lists of a domain, those for training first.

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


def check_files(listed: list[ListedImage], folder: Path) -> None:
    """Check that the files of a domain's images are there.

    Args:
        listed: the images that are to be read.
        folder: holds the lists and the domain.

    Raises:
        DataError: a file is not there; names its list.
    """
    missing = next((image for image in listed if not image.file.is_file()), None)
    if missing is not None:
        name = missing.file.relative_to(folder)
        list_path = folder / f"{name.parts[0]}_{('train', 'test')[missing.part]}.txt"
        raise DataError(f"{list_path} names {name.as_posix()}, which is not in {folder}")


def draw_balanced(listed: list[ListedImage], most: int | None, seed: list[int]) -> list[ListedImage]:
    """Draw at most ``most`` images, evenly from all classes as far as these go; both parts keep their shares.

    Args:
        listed: images of both parts, whose order is kept.
        most: number of images; None: all.
        seed: of the draw.
    """
    import numpy as np

    if most is None or len(listed) <= most:
        return listed
    order = np.random.default_rng(seed).permutation(len(listed))
    test = round(most * sum(image.part for image in listed) / len(listed))
    chosen = []
    for part, quota in ((0, most - test), (1, test)):
        counts: dict[str, int] = {}
        ranked = []
        for index in (int(index) for index in order if listed[index].part == part):
            count = counts[listed[index].title] = counts.get(listed[index].title, 0) + 1
            ranked.append((count, index))
        # The first image of each class comes before the second of any; ties keep the random order.
        chosen += [index for _, index in sorted(ranked, key=lambda pair: pair[0])[:quota]]
    return [listed[index] for index in sorted(chosen)]
