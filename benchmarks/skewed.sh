#!/usr/bin/env bash
# What label skew does, for docs/internals/measured-methods.md, a deal after the other; DATA holds digit_five/<domain>.npz.
# About 12 minutes of one core, source models among them.
set -euo pipefail
cd "$(dirname "$0")/.."
play() {
    fedwca bench --preset skewed --data "${DATA:-../shared/data}" --dataset digit-five --source synth \
        --clients 3 --samples 300 --rounds 5 --epochs 2 --lr 0.003 --source-models 3 --trials 1 --workers 1 \
        --set source_training.epochs=10 --set source_training.lr=0.01 --baseline source-only --baseline source-ada-bn --baseline fedscal \
        --keep none --quiet --out "runs/skewed/$1" "${@:2}"
    python benchmarks/keep.py "runs/skewed/$1" "skewed/$1" config.json environment.json rounds.jsonl summary.json
}
play even --partition domains
play clients --set partition.source_ratio=1 --set partition.target_ratio=1
play both
python benchmarks/tables.py
