#!/usr/bin/env bash
# The tables of new clients, small; DATA holds cifar10 and mnist (or digit_five/mnist.npz). A piece at a time, each of
# which goes on where it was stopped: PIECES="upfl-table1-mnist upfl-figure4" takes two, SEEDS the number of seeds, SIZE=
# (empty) the paper's size. What a piece costs: docs/new-clients.md.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-../shared/data}
mnist=$data
[ -f "$data/digit_five/mnist.npz" ] && mnist=$data/digit_five
run() { fedwca reproduce "$@" ${SIZE---quick} --source-models "${SEEDS:-2}" --out runs/upfl; }
for piece in ${PIECES:-upfl-table1-mnist upfl-figure4 upfl-table1-cifar10 upfl-table2 upfl-figure3}; do
    case $piece in
        upfl-table1-mnist) run upfl-table1 --dataset mnist --data "$mnist" ;;
        upfl-table1-*) run upfl-table1 --dataset "${piece#upfl-table1-}" --data "$data" ;;
        upfl-figure4) run "$piece" --data "$mnist" ;;
        *) run "$piece" --data "$data" ;;
    esac
done
for folder in runs/upfl/*/; do
    [ -f "$folder/summary.json" ] || continue
    python benchmarks/keep.py "$folder" "upfl/$(basename "$folder")" config.json environment.json summary.json
done
