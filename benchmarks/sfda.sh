#!/usr/bin/env bash
# The runs behind "Measured" in docs/several-sources.md; DATA holds digit_five/<domain>.npz. A target at a time, each of
# which goes on where it was stopped: TARGETS="usps mnistm" takes two, SEEDS the number of initial networks.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in ${TARGETS:-usps mnistm mnist svhn synth}; do
    for table in sfda-parts sfda-table1; do
        fedwca reproduce "$table" --quick --dataset digit-five --data "${DATA:-../shared/data}" --target "$target" \
            --source-models "${SEEDS:-5}" --out runs/sfda
    done
    for folder in runs/sfda/digit_five-"$target" runs/sfda/digit_five-"$target"-[0-9]*; do
        [ -f "$folder/summary.json" ] || continue
        python benchmarks/keep.py "$folder" "sfda/$(basename "$folder")" config.json environment.json summary.json
    done
done
python benchmarks/tables.py
