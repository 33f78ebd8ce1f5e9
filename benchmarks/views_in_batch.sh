#!/usr/bin/env bash
# What strong views that have no loss change by BatchNorm, whose batches they are in: every client trains by
# L_IM + 0.3 CE of plain images, with strong views in the batch (as clients of `trusted:untrusted=plain` do) and without.
# Digit-Five files, with DATA as the folder of digit_five/<domain>.npz, and digits-mini. A run takes five to eight minutes
# of a core; there are thirteen.
set -euo pipefail
cd "$(dirname "$0")/.."

run() { # data set, source, seed, and further options
    local name="$1-$2-$3"
    fedwca compare 'strong=fedtab/pseudo_labeler=prototype/objectives=strong_views:strong=0' \
        'plain=fedtab/pseudo_labeler=prototype/objectives=shot:lam=0.3' \
        --dataset "$1" --source "$2" --clients 4 --samples 400 --rounds 10 --epochs 5 --lr 0.003 --seed "$3" \
        --source-models 1 --out "runs/views_in_batch/$name" "${@:4}"
    python benchmarks/keep.py "runs/views_in_batch/$name/$1-$2" "views_in_batch/$name" \
        config.json environment.json rounds.jsonl
}

for source in mnist mnistm synth usps; do
    for seed in 10 11; do
        run digit_five "$source" "$seed" --data "${DATA:-../shared/data}"
    done
done
for source in handwritten photo printed street neon; do
    run digits_mini "$source" 110
done
python benchmarks/tables.py
