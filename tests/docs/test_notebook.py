"""The notebook runs from the first cell to the last, and the values of its cells have a display form."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from ..conftest import MINI
from .pages import ROOT

NOTEBOOK = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def value_of(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last expression, or None if it does not end with one."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return None if last is None else eval(compile(last, "<cell>", "eval"), names)


def test_the_notebook_is_kept_without_outputs() -> None:
    assert NOTEBOOK["nbformat"] == 4
    assert [cell["outputs"] for cell in CODE] == [[]] * len(CODE)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    names: dict[str, Any] = {}
    values = {}
    for cell in CODE:
        values[cell["id"]] = value_of("".join(cell["source"]), names)
        if cell["id"] == "sizes":
            names["small"] |= {"model": MINI, "samples": 30}  # shorter runs of the same cells
    for cell in ("run", "comparison", "frame"):
        assert "<table" in values[cell]._repr_html_(), cell
    for cell in ("plot", "confusion"):
        assert values[cell]._repr_png_().startswith(b"\x89PNG"), cell
    assert str(values["comparison"]).startswith("digits_mini: accuracy in percent")
    assert values["report"] == Path("runs/notebook/report.html")
    assert values["report"].is_file()
