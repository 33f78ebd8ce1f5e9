#!/usr/bin/env bash
# The run behind "digits-mini" in docs/results.md: the default bench, one_hot beside it, on seeds that did not design it.
set -euo pipefail
cd "$(dirname "$0")/.."
fedwca bench --seed 100 --trials 3 --baseline source-only --baseline local --baseline fedavg --baseline one-hot \
    --out runs/digits_mini
python benchmarks/keep.py runs/digits_mini digits_mini
python benchmarks/tables.py
