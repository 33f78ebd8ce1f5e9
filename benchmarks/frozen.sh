#!/usr/bin/env bash
# A frozen ResNet-18 with ImageNet weights on PACS at 64 pixels, all methods of unlabeled clients; DATA holds pacs/ and
# weights/. A source at a time, each of which goes on where it was stopped: SOURCES="photo sketch" takes two, SEEDS the
# number of source models. At most 240 images a client, since strong views of FedSCAl and FedTAB go through the backbone
# each time, which is 40 of 45 seconds of a round of all methods.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-../shared/data}
weights=${WEIGHTS:-$data/weights/resnet18_imagenet_fp16.pth}
methods="source-only local fedavg fedprox fedamp ifca ladd ladd-plus fedpcl-pl fedscal one-hot equal one-equal one-equal-a \
fedwca-l revised-fedwca source-ada-bn fedtab"
for source in ${SOURCES:-art_painting cartoon photo sketch}; do
    folder=runs/frozen/$source
    if [ -d "$folder" ]; then
        fedwca resume "$folder"
    else
        fedwca bench --data "$data" --dataset pacs --source "$source" --clients 3 --samples "${SAMPLES:-240}" --source-models "${SEEDS:-3}" \
            --model "resnet18:side=64,weights=$weights,frozen=true,augment=false" --rounds "${ROUNDS:-10}" \
            $(printf -- '--baseline %s ' $methods) --out "$folder"
    fi
    python benchmarks/keep.py "$folder" "frozen/$source" config.json environment.json summary.json
done
