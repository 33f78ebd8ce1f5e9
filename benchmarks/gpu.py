"""Everything that is to be known of the engines on a GPU, by one command, in pieces of under ten minutes.

python benchmarks/gpu.py runs the pieces that results/gpu lacks and writes one file for each; with names of pieces it
runs only those, again. A piece that fails does not stop the others. Images are random bytes: times do not depend on
their content. ``--device cpu --small`` rehearses the same code on any machine, and needs another ``--out``.
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
    """Free device memory that a piece left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pieces", nargs="*", choices=[*PIECES, []], help="default: those that have no file yet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a rehearsal of some minutes")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    if options.out.resolve() == OUT.resolve() and (options.small or not options.device.startswith("cuda")):
        print("a rehearsal is no result; give it an --out of its own", file=sys.stderr)
        return 2
    place = Place(options.device, options.small)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    pieces = options.pieces or [name for name in PIECES if not (options.out / f"{name}.json").exists()]
    if not pieces:
        print(f"all pieces have a file in {options.out}; name those to measure again")
    for name in pieces:
        started = time.perf_counter()
        try:
            measured = PIECES[name](place)
        except Exception:  # the other pieces are measured all the same
            traceback.print_exc()
            print(f"{name}: failed", flush=True)
            failed = True
            free_memory()
            continue
        result = {"what": " ".join((PIECES[name].__doc__ or "").split()), "small": options.small, **measured}
        result |= {"piece_seconds": round(time.perf_counter() - started, 1), "environment": provenance(options.device)}
        keep(options.out / f"{name}.json", result)
        failed = failed or (name == "parity" and not measured["met"])
        met = "none set" if measured.get("met") is None else measured["met"]
        print(f"{name}: {result['piece_seconds']} s, target met: {met}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
