#!/usr/bin/env bash
# The tables of new clients, small: results/upfl/. DATA holds cifar10, fashion_mnist.npz and mnist.npz (or
# digit_five/mnist.npz), FEMNIST femnist.npz. A piece at a time, each of which goes on where it was stopped:
# PIECES="upfl-table1-mnist upfl-figure4" takes two, SEEDS the number of seeds, SIZE= (empty) the paper's size.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${DATA:-../shared/data}
mnist=$data
[ -f "$data/digit_five/mnist.npz" ] && mnist=$data/digit_five
kept=benchmarks/results/upfl
mkdir -p "$kept"
# ODPFL-HN and FedADG are on MNIST alone: a round of the first trains networks a hundred times as large as the model.
most=(--row FedAvg --row FedProx --row SCAFFOLD --row AFL --row FedGMA --row FedSR --row PFL-Sampled --row PFL-Ensemble
    --row TENT --row FedTTA --row FedTTA-Prox --row FedTTA++)
alphas=(--row FedAvg --row TENT --row FedTTA --row FedTTA-Prox --row FedTTA++)

# reproduce FILE TABLE WORD…: the runs, and what the table says of them.
reproduce() {
    file=$1
    shift
    fedwca reproduce "$@" ${SIZE---quick} --source-models "${SEEDS:-3}" --out runs/upfl --format json > "$kept/$file.part"
    mv "$kept/$file.part" "$kept/$file.json"
}
lambdas=()
for lam in 0 0.2 0.4 0.6 0.8 1; do lambdas+=("lam_$lam=hetero_fedtta/objectives=adapted+digest:lam=$lam"); done

for piece in ${PIECES:-upfl-table1-mnist upfl-table1-fashion_mnist upfl-table1-femnist upfl-table1-cifar10 upfl-table2 upfl-figure4 mnist-lambda}; do
    case $piece in
        upfl-table1-mnist) reproduce "$piece" upfl-table1 --dataset mnist --data "$mnist" ;;
        upfl-table1-femnist) reproduce "$piece" upfl-table1 --dataset femnist --data "${FEMNIST:-$data}" "${most[@]}" ;;
        upfl-table1-*) reproduce "$piece" upfl-table1 --dataset "${piece#upfl-table1-}" --data "$data" "${most[@]}" ;;
        upfl-table2) reproduce "$piece" "$piece" --data "$data" "${alphas[@]}" ;;
        mnist-lambda) # models of three sizes; figure 5 is on CIFAR-10, which is not learned at this size
            fedwca compare hetero-tent "${lambdas[@]}" --preset upfl --dataset mnist --data "$mnist" --partition shards:public=0.05 \
                --model mlp:sizes=25+50+100 --clients 10 --samples 150 --rounds 10 --lr 0.1 --source-models "${SEEDS:-3}" \
                --set objective.digest.batch_size=20 --set objective.digest.passes=1 --set objective.digest.new_passes=4 \
                --out runs/mnist-lambda
            python benchmarks/keep.py runs/mnist-lambda/mnist-shards upfl/mnist-lambda config.json environment.json summary.json
            ;;
        upfl-figure4) reproduce "$piece" "$piece" --data "$mnist" ;;
        *) reproduce "$piece" "$piece" --data "$data" ;;
    esac
done
for folder in runs/upfl/*/; do
    [ -f "$folder/summary.json" ] || continue
    python benchmarks/keep.py "$folder" "upfl/$(basename "$folder")" config.json environment.json summary.json
done
