#!/usr/bin/env bash
# FedSCAl with alignment terms that are means over all images of a batch, as everywhere here, and over those whose label
# counts, as in its code: Digit-Five files, one source model of each source; DATA holds digit_five/<domain>.npz. Half an
# hour of a core.
set -euo pipefail
cd "$(dirname "$0")/.."
for source in ${SOURCES:-mnist mnistm synth usps}; do
    fedwca compare fedscal 'counted=fedscal/objective=server_client_alignment:over=counted' \
        --data "${DATA:-../shared/data}" --dataset digit-five --source "$source" --clients 4 --samples 400 \
        --rounds 10 --epochs 5 --lr 0.003 --source-models 1 --out "runs/fedscal_mean-$source"
    python benchmarks/keep.py "runs/fedscal_mean-$source/digit_five-$source" "fedscal_mean/$source" \
        config.json environment.json summary.json
done
python benchmarks/tables.py
