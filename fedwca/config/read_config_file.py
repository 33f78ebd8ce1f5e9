"""Read a configuration from a TOML or JSON file of the user, or from a run's own config.json."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from fedwca.config.run_config import Layer, RunConfig
from fedwca.config.spell_out import spell_out
from fedwca.core.input_files import check_not_special
from fedwca.describe_problems import describe_unknown
from fedwca.errors import InvalidConfig


def read_file(path: Path) -> Layer:
    """The layer in a TOML or JSON file, such as a run folder's ``config.json``.

    Raises:
        InvalidConfig: the file cannot be read, is not valid, holds no values, or has an unknown field.
    """
    is_json = path.suffix.lower() == ".json"
    try:
        check_not_special(path)
        text = path.read_text(encoding="utf-8-sig")
        values = json.loads(text, object_pairs_hook=_each_once) if is_json else tomllib.loads(text)
    except OSError as error:
        raise InvalidConfig(f"--config {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"--config {path}: not valid {'JSON' if is_json else 'TOML'} ({error})") from None
    if isinstance(values, dict) and "config" in values:
        # A run's own file has other keys beside its config table; a user's file must have all fields in one place.
        if "origins" not in values and "schema" not in values and (misplaced := sorted(set(values) - {"config"})):
            raise InvalidConfig(f"--config {path}: {misplaced[0]!r} stands beside the table config; put it into it")
        values = values["config"]
    if not isinstance(values, dict):
        raise InvalidConfig(f"--config {path}: needs a table of fields, such as rounds = 10")
    if not values:
        raise InvalidConfig(f"--config {path}: holds no value; it needs some, such as rounds = 10")
    unknown_names = sorted(set(values) - set(RunConfig.model_fields))
    if unknown_names:
        raise InvalidConfig(f"--config {path}: {describe_unknown('field', unknown_names[0], RunConfig.model_fields)}")
    return spell_out(values)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; ValueError if a key occurs twice, where Python's parser would keep the last."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return table
