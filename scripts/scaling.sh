#!/usr/bin/env bash
# Measures throughput on growing numbers of ranks, one after the other, and draws it.
#
#   scripts/scaling.sh [options] [-- options of dtrain bench, such as --config FILE]
#
#   --np 1,2,4         numbers of ranks (default: powers of two up to the job's tasks, or the CPUs)
#   --mode weak        weak: the same number of images per rank; strong: the same global batch
#   --batch-size N     images per rank (weak; default 32) or of all ranks (strong; default: 32 times
#                      the largest number of ranks)
#   --repeat 3         measurements of each point; the table has their median
#   --model A,B        networks (default: the configuration's)
#   --precision P,Q    precisions (default: the configuration's)
#   --storage S,T      synthetic (default), disk: the configured training data, memory: those data,
#                      kept in memory after their first epoch, or NAME=PATH: the training data there
#   --out DIR          results (default: runs/scaling)
#
# Measures every combination. DIR receives a JSON file of dtrain bench for each measurement, and
# scaling.json, scaling.csv and scaling.html. After an interruption the same command continues where
# it stopped; a measurement that failed is tried again. In a batch job, start it from the job script:
# dtrain launch takes the nodes of the job. DTRAIN names the program (default: build/dtrain, or the
# installed one), and DTRAIN_LAUNCH_OPTIONS has options of dtrain launch, such as --ranks-per-node 8.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/mpi_env.sh
. "$root/scripts/mpi_env.sh"
dtrain=$DTRAIN
memory_mb=1048576 # data.cache_mb: more than any data set

usage() {
    echo "scaling: $*; see the head of scripts/scaling.sh" >&2
    exit 64
}

np='' mode=weak batch_size='' repeat=3 models=config precisions=config storages=synthetic
out=runs/scaling
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    [ $# -ge 2 ] || usage "$1 requires a value"
    case $1 in
    --np) np=$2 ;;
    --mode) mode=$2 ;;
    --batch-size) batch_size=$2 ;;
    --repeat) repeat=$2 ;;
    --model) models=$2 ;;
    --precision) precisions=$2 ;;
    --storage) storages=$2 ;;
    --out) out=$2 ;;
    *) usage "there is no option $1" ;;
    esac
    shift 2
done
[ $# = 0 ] || shift

default_np() {
    local n most=${SLURM_NTASKS:-$(nproc)} list=1
    for ((n = 2; n <= most; n *= 2)); do list+=,$n; done
    echo "$list"
}
np=${np:-$(default_np)}
[[ $np =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || usage "--np $np is not a list of numbers"
[[ $repeat =~ ^[1-9][0-9]*$ ]] || usage "--repeat $repeat is not a number"
[[ $batch_size =~ ^([1-9][0-9]*)?$ ]] || usage "--batch-size $batch_size is not a number"
case $mode in weak | strong) ;; *) usage "--mode is weak or strong" ;; esac
[ -x "$dtrain" ] || usage "there is no program $dtrain: build it, or set DTRAIN"

list() { tr , ' ' <<<"$1"; }
if [ -z "$batch_size" ]; then
    batch_size=32
    [ "$mode" = weak ] || batch_size=$((32 * $(list "$np" | tr ' ' '\n' | sort -n | tail -n 1)))
fi

# One measurement: a file, and its options in ${options[@]}.
choose() { # model precision storage ranks repetition
    local series=$1-$2-${3%%=*}-$mode
    file=$out/${series//config-/}-np$4-$5.json
    if [ "$mode" = weak ]; then
        options=(--set "train.batch_size_per_rank=$batch_size" --set train.global_batch_size=0)
    else
        options=(--set "train.global_batch_size=$batch_size" --set train.batch_size_per_rank=0)
    fi
    [ "$1" = config ] || options+=(--set "model.name=$1")
    [ "$2" = config ] || options+=(--set "train.precision=$2")
    case $3 in
    synthetic) ;;
    disk) options+=(--data real --set data.cache_mb=0) ;;
    memory) options+=(--data real --set "data.cache_mb=$memory_mb") ;;
    [a-zA-Z]*=?*) options+=(--data real --set data.cache_mb=0 --set "data.train=${3#*=}") ;;
    *) usage "--storage is synthetic, disk, memory or NAME=PATH" ;;
    esac
}

# Repetitions are the outer loop, so that a busy machine disturbs all points alike.
points() {
    local i m p s n
    for ((i = 1; i <= repeat; i++)); do
        for m in $(list "$models"); do for p in $(list "$precisions"); do
            for s in $(list "$storages"); do for n in $(list "$np"); do
                echo "$m $p $s $n $i"
            done; done
        done; done
    done
}

mapfile -t all < <(points)
for point in "${all[@]}"; do
    read -r model precision storage ranks i <<<"$point"
    choose "$model" "$precision" "$storage" "$ranks" "$i" # refuses wrong words before any work
done
mkdir -p "$out"
settings="$mode $batch_size $*"
[ ! -e "$out/settings" ] || [ "$(cat "$out/settings")" = "$settings" ] ||
    usage "$out holds measurements with other settings ($(cat "$out/settings")): choose another --out"
echo "$settings" >"$out/settings"

# The launcher exits in good order when interrupted, so that the loop would go on.
trap 'jobs -p | xargs -r kill; wait; exit 130' INT TERM
n_failed=0 n_done=0 failed=0 began=$SECONDS
for ((k = 0; k < ${#all[@]}; k++)); do
    read -r model precision storage ranks i <<<"${all[k]}"
    choose "$model" "$precision" "$storage" "$ranks" "$i"
    [ ! -e "$file" ] || continue
    left=''
    [ $n_done = 0 ] ||
        left=", about $(((SECONDS - began) * (${#all[@]} - k) / n_done / 60 + 1)) min left"
    echo "scaling: $((k + 1)) of ${#all[@]}: $(basename "$file" .json)$left"
    "${launch[@]}" --ranks "$ranks" -- bench "$@" "${options[@]}" --json "$file" \
        >"${file%.json}.log" 2>&1 </dev/null &
    wait $! || failed=$?
    n_done=$((n_done + 1))
    if [ ! -e "$file" ]; then
        n_failed=$((n_failed + 1))
        echo "scaling: failed, see ${file%.json}.log: $(grep -m 1 'error\[' "${file%.json}.log" || true)" >&2
    fi
done
python3 "$root/scripts/scaling_report.py" "$out"
if [ $n_failed -gt 0 ]; then
    echo "scaling: $n_failed of ${#all[@]} measurements failed; the same command tries them again" >&2
    exit "$((failed > 0 ? failed : 70))"
fi
