#!/usr/bin/env bash
# The run behind the table in README.md: `fedwca bench` on three seeds that did not design it, and not training beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
fedwca bench --seed 100 --source-models 3 --baseline source-only --baseline source-ada-bn --baseline local --baseline fedavg \
    --out runs/digits_mini
python benchmarks/keep.py runs/digits_mini digits_mini
# Which clusters IFCA's clients choose, on the same seeds.
fedwca bench --seed 100 --source-models 3 --aggregator ifca --pseudo-labeler prototype:renew=round --baseline none \
    --out runs/digits_mini-ifca
python benchmarks/keep.py runs/digits_mini-ifca digits_mini-ifca
python benchmarks/tables.py
