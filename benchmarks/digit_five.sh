#!/usr/bin/env bash
# The runs behind "Digit-Five files" in docs/benchmarks.md; DATA holds digit_five/<domain>.npz. About 40 minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
for source in mnist synth mnistm; do
    fedwca bench --data "${DATA:-../shared/data}" --dataset digit-five --source "$source" \
        --clients 4 --samples 400 --epochs 5 --rounds 10 --lr 0.003 --source-models 3 --clusterer finch \
        --baseline source-only --baseline source-ada-bn --baseline local --baseline fedavg --baseline one-hot --out "runs/digit_five-$source"
    python benchmarks/keep.py "runs/digit_five-$source" "digit_five-$source"
done
python benchmarks/tables.py
