"""Ways to make a file wrong, drawn at random from a seed."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

TRACE = "TRACE"
"""If the working directory has a file of this name, a payload was run."""
TEXTS = (
    "", " ", "0", "-1", "1", "2", "0.5", "1e-300", "nan", "inf", "-inf", "1e309", "9" * 30, "-" + "9" * 30, "1e5",
    "007", "true", "none", "null", "all", "auto", "last", "wca", "fedavg", "fedwca", "digits-mini", "nosuch",
    "folder", "finch", "\x1b[31m", "\u202eabc", "[/b]", "[red]x[/red]", "$x^{$", "<script>alert(1)</script>", "=1+1",
    "a\nb", "a\tb", "🤦" * 30, "\udce7", "é–±", "a" * 5000, "../../x", "/", ".", "..", "/dev/null", "/dev/full",
    "/proc/self/mem", "/sys/x", "~nosuch/x", "=", ":", ",", "a=b", "a=b=c", ":a=1", "wca:", "wca:ta", "wca:ta=",
    "wca:ta=1,ta=2", "wca:ta=1,,tb=1", "a/b/c", "x=", "=x", "wca:ta=inf", "wca:ta=-1", "wca:nosuch=1",
    "/clusterer=true", "fedwca/nosuch=1", "x=fedwca/clusterer=", "-", "--", "--x", "-x", f'$(touch {TRACE})',
    f'`touch {TRACE}`', f'; touch {TRACE}', f"__import__('os').system('touch {TRACE}')",
    f"!!python/object/apply:os.system ['touch {TRACE}']", "%s%n%d", "{0}", "{self}", "cpu:1", "cuda:99", "cpu",
    "meta", "1..2", "2..1", "1,2", ",,", "1..2:log", "0..1:log", "1:2", "3,1",
)  # fmt: skip
"""Values that are not valid as names, numbers or paths, or that careless code would run."""


class Payload:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {TRACE}",)


def odd_text(random: Random) -> str:
    """A value for an option, a field or a name."""
    return random.choice(TEXTS)


def odd_value(random: Random) -> Any:
    """A value of JSON."""
    return random.choice(
        [None, True, False, 0, -1, 1, 10**30, 1.5, -1e300, [], {}, [[]], [None], {"a": {}}, [1, 2, 3], odd_text(random)]
    )


def odd_bytes(random: Random, content: bytes) -> bytes:
    """The content cut off, overwritten, emptied or replaced."""
    way = random.randrange(8)
    if way == 0:
        return b""
    if way == 1:
        return content[: random.randrange(len(content) + 1)]
    if way == 2:
        changed = bytearray(content)
        for _ in range(random.choice([1, 4, 64])):
            if changed:
                changed[random.randrange(len(changed))] = random.randrange(256)
        return bytes(changed)
    if way == 3:
        return pickle.dumps(Payload())
    if way == 4:
        return random.randbytes(random.choice([1, 8, 200, 5000]))
    if way == 5:
        position = random.randrange(len(content) + 1)
        return content[:position] + random.randbytes(8) + content[position:]
    if way == 6:
        return b"\x00" * len(content)
    return content + content


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of keys and indices to all values in a JSON value; of a list, only to the first three."""
    paths = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            paths += _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            paths += _places(inner, (*path, index))
    return paths


def odd_json(random: Random, value: Any) -> Any:
    """A JSON value with one to three of its values changed, removed or added."""
    value = json.loads(json.dumps(value))
    for _ in range(random.choice([1, 1, 2, 3])):
        places = _places(value)
        if not places or random.random() < 0.03:
            return odd_value(random)
        *path, last = random.choice(places)
        container = value
        for step in path:
            container = container[step]
        action = random.randrange(4)
        if action == 0:
            del container[last]
        elif action == 1 and isinstance(container, dict):
            container[odd_text(random)] = container[last]
        elif action == 2 and isinstance(container[last], list):
            container[last] = container[last] * 2
        else:
            container[last] = odd_value(random)
    return value


def change_json_file(random: Random, file: Path) -> None:
    """Change a JSON file, or one line of a JSON Lines file."""
    if random.random() < 0.3:
        file.write_bytes(odd_bytes(random, file.read_bytes()))
        return
    if file.suffix == ".jsonl":
        lines = file.read_text(errors="replace").splitlines() or ["{}"]  # it may have been damaged before
        chosen = random.randrange(len(lines))
        try:
            lines[chosen] = json.dumps(odd_json(random, json.loads(lines[chosen])))
        except ValueError:
            lines[chosen] = "{"
        file.write_text("\n".join(lines) + "\n" * random.choice([0, 1]))
        return
    try:
        value = json.loads(file.read_text())
    except ValueError:
        value = {}
    file.write_text(json.dumps(odd_json(random, value)))


def toml_of(random: Random) -> str:
    """A configuration in TOML, in most cases invalid."""
    keys = (
        "rounds",
        "clients",
        "dataset",
        "training",
        "training.lr",
        "components",
        "objectives",
        "source",
        "seed",
        "nosuch",
    )
    lines = []
    for _ in range(random.choice([0, 1, 2, 4])):
        value = random.choice(
            [json.dumps(odd_value(random)), json.dumps(odd_text(random)), "1", "nan", "inf", "1979-05-27", "["]
        )
        lines.append(f"{random.choice(keys)} = {value}")
    return "\n".join(lines)


HEADER = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 8, 8, 3), }"
TYPES = ("float32", "int8", "bool", "complex64", "U3", "M8[s]")


def _odd_arrays(random: Random) -> dict[str, Any]:
    """Arrays of an archive; one of them has another type, shape or content, or is missing."""
    count = random.choice([0, 1, 3, 24])
    images, labels = np.zeros((count, 8, 8, 3), np.uint8), np.arange(count, dtype=np.int64) % 2
    arrays: dict[str, Any] = {"images": images, "labels": labels}
    shapes = [(), (3,), (count, 0, 8, 3), (count, 8, 8, 4), (count, 0, 0)]
    names: list[list[Any]] = [[], [""], ["a", "a"], ["a"], ["\x1b", "=1"], [1, 2]]
    changes: list[dict[str, Any]] = [
        {"images": images.astype(random.choice(TYPES))},
        {"images": np.zeros(random.choice(shapes), np.uint8)},
        {"labels": labels.astype(random.choice(["float32", "uint8", "U3", "int32"]))},
        {"labels": np.full(count, random.choice([-1, 2**62, 60000, -(2**63)]), np.int64)},
        {"classes": np.array(random.choice(names))},
        {"groups": np.zeros(random.choice([0, 1, count]), random.choice([np.int64, np.float64]))},
        {"images": np.array([Payload()] * max(1, count), dtype=object)},
        {random.choice(["images", "labels"]): None},
        {odd_text(random).replace("/", "_")[:50].encode("utf-8", "replace").decode() or "x": labels},
        {},
    ]
    return {name: array for name, array in (arrays | random.choice(changes)).items() if array is not None}


def write_archive(random: Random, file: Path) -> None:
    """Write an invalid ``.npz``: other types, shapes, keys, members or bytes."""
    buffer = io.BytesIO()
    way = random.randrange(12)
    if way == 0:
        np.save(buffer, np.zeros((4, 8, 8, 3), np.uint8))
    elif way < 3:
        count = 4 if way == 1 else random.choice([10**9, 10**13])
        header = (HEADER % count).encode()
        member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in random.choice([["images.npy", "labels.npy"], ["images.npy"], ["../x.npy"], ["images"]]):
                archive.writestr(name, odd_bytes(random, member) if way == 1 else member)
    else:
        np.savez(buffer, **_odd_arrays(random))
    content = buffer.getvalue()
    file.write_bytes(odd_bytes(random, content) if random.random() < 0.25 else content)


def write_model(random: Random, file: Path, good: bytes) -> None:
    """Write a model file with a changed header or changed values, or something else instead.

    Args:
        random: draws the change.
        file: the file.
        good: content of a valid safetensors file.
    """
    way = random.randrange(6)
    if way < 3 and len(good) > 8:
        size = int.from_bytes(good[:8], "little")
        header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
        if way == 0:
            metadata = header.get("__metadata__", {})
            for key, text in metadata.items():
                if random.random() < 0.9:
                    try:
                        metadata[key] = json.dumps(odd_json(random, json.loads(text)))
                    except ValueError:
                        metadata[key] = odd_text(random)
        elif way == 1:
            header = odd_json(random, header)
        else:
            body = np.full(len(body) // 4, random.choice([np.nan, np.inf, 1e30, 0.0]), np.float32).tobytes()
        text = json.dumps(header).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + body)
    elif way == 3:
        file.write_bytes(pickle.dumps({"weight": Payload()}))
    elif way == 4:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Payload()))
            archive.writestr("data/sample_inputs/model.pt", pickle.dumps(Payload()))
            archive.writestr("archive/version", "3")
    else:
        file.write_bytes(odd_bytes(random, good))
