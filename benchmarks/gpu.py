"""Everything that is to be known of the engines on a GPU, by one command, in pieces of under ten minutes.

python benchmarks/gpu.py runs the pieces that results/gpu lacks and writes one file for each; names of pieces run those
alone, again. One that fails stops no other. Images are random bytes: times do not depend on what is on them.
``--device cpu --small`` is a rehearsal of the same code on any machine, which writes beside the real files only where
``--out`` says so.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from pathlib import Path

import torch
from gpu_checks import beside_plain, by_hand, kernels, matrix, memory, parity, waits
from gpu_runs import digit_five, engines, pacs, trials
from gpu_setting import Place
from keep import keep
from provenance import provenance

OUT = Path(__file__).parent / "results" / "gpu"
PIECES = {
    f.__name__: f
    for f in (parity, engines, kernels, beside_plain, by_hand, digit_five, pacs, matrix, waits, memory, trials)
}


def free_memory() -> None:
    """Let go of what a piece left on the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pieces", nargs="*", choices=[*PIECES, []], help="default: those that have no file yet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a rehearsal of some minutes")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    if given.out == OUT and (given.small or not given.device.startswith("cuda")):
        print("a rehearsal is no result; give it an --out of its own", file=sys.stderr)
        return 2
    place = Place(given.device, given.small)
    given.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in given.pieces or [name for name in PIECES if not (given.out / f"{name}.json").exists()]:
        started = time.perf_counter()
        try:
            found = PIECES[name](place)
        except Exception:  # the others are measured all the same
            traceback.print_exc()
            print(f"{name}: failed", flush=True)
            failed = True
            free_memory()
            continue
        result = {"what": " ".join((PIECES[name].__doc__ or "").split()), "small": given.small, **found}
        result |= {"piece_seconds": round(time.perf_counter() - started, 1), "environment": provenance(given.device)}
        keep(given.out / f"{name}.json", result)
        failed = failed or (name == "parity" and not found["met"])
        met = "none set" if found.get("met") is None else found["met"]
        print(f"{name}: {result['piece_seconds']} s, target met: {met}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
