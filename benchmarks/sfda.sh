#!/usr/bin/env bash
# The runs behind "Measured" in docs/several-sources.md; DATA holds digit_five/<domain>.npz. A target at a time, each of
# which goes on where it was stopped: TARGETS="usps mnistm" takes two, SEEDS the number of initial networks.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in ${TARGETS:-usps mnistm mnist svhn synth}; do
    run() { fedwca reproduce "$@" --quick --dataset digit-five --data "${DATA:-../shared/data}" --target "$target" --out runs/sfda; }
    run sfda-parts --source-models "${SEEDS:-5}"
    # SFDA itself is a row of the first table: its runs are taken from there.
    run sfda-table1 --source-models 3 --row Oracle --row Source-only --row DAN --row M3SDA --row DANN
    run sfda-table2 --source-models 3 --row SFDA-LS-PL --row SFDA-LS
    run sfda-table1 --source-models 3 --row FADA  # the dearest
    for folder in runs/sfda/digit_five-"$target" runs/sfda/digit_five-"$target"-[0-9]*; do
        [ -f "$folder/summary.json" ] || continue
        python benchmarks/keep.py "$folder" "sfda/$(basename "$folder")" config.json environment.json summary.json
    done
done
python benchmarks/tables.py
