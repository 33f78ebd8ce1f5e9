#!/usr/bin/env bash
# A frozen ResNet-18 with ImageNet weights on PACS at 64 pixels, all methods of unlabeled clients; DATA holds pacs/ and
# weights/. A source at a time, each of which goes on where it was stopped: SOURCES="photo sketch" takes two, SEEDS the
# number of source models, IMAGES how many images a client has at most: strong views and mixed images go through the
# backbone each time. WHOLE=1 is what a round costs with all images, and nothing else;
# PRINTED=1 a few methods with what Table 9 of FedWCA has for PACS, where the defaults are those of the digits.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-../shared/data}
weights=${WEIGHTS:-$data/weights/resnet18_imagenet_fp16.pth}
methods="source-only local fedavg fedprox fedamp ifca ladd ladd-plus fedpcl-pl fedscal one-hot equal one-equal one-equal-a \
fedwca-l revised-fedwca source-ada-bn fedtab"
printed="source-only local fedavg ifca one-hot"

play() {  # play NAME SOURCE ARGUMENT...: a run, or what it lacks; a folder of other settings is refused
    local folder=runs/frozen/$1
    fedwca bench --data "$data" --dataset pacs --source "$2" --clients 3 --out "$folder" --resume \
        --model "resnet18:side=64,weights=$weights,frozen=true,augment=false" --clusterer finch "${@:3}"
    python benchmarks/keep.py "$folder" "frozen/$1" config.json environment.json summary.json
}

if [ -n "${WHOLE:-}" ]; then
    play whole photo --rounds 3 --baseline fedavg --baseline one-hot
    exit
fi
for source in ${SOURCES:-art_painting cartoon photo sketch}; do
    size="--samples ${IMAGES:-240} --source-models ${SEEDS:-3} --rounds ${ROUNDS:-10}"
    # shellcheck disable=SC2046,SC2086
    if [ -n "${PRINTED:-}" ]; then
        play "$source-printed" "$source" $size $(printf -- '--baseline %s ' $printed) \
            --set objective.shot.lam=0.3 --set aggregator.wca.ta=0.1 --set aggregator.ifca.clusters=3
    else
        play "$source" "$source" $size $(printf -- '--baseline %s ' $methods)
        # Whom FedTAB trusts: its first round alone, of megabytes.
        grep '"method": "fedtab"' "runs/frozen/$source/rounds.jsonl" | grep '"round": 0,' > "benchmarks/results/frozen/$source/fedtab.jsonl"
    fi
done
