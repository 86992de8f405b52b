# Shared by the scripts in tests/e2e and tests/faults: $dtrain, $work (removed at exit), helpers.
set -euo pipefail
dtrain=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
export PYTHONPATH=$here/../support # for safetensors_np
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export DTRAIN_MPIRUN="${DTRAIN_MPIRUN:-mpirun --oversubscribe --bind-to none}" I_MPI_PIN=0

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# The command must end with CODE and a message that contains TEXT. What it prints is in $work/out, its
# messages are in $work/log.
ends() { # code text command...
    local code=$1 text=$2 got=0
    shift 2
    "$@" > "$work/out" 2> "$work/log" || got=$?
    [ $got = "$code" ] || fail "exit code $got instead of $code: $*; $text; $(cat "$work/log")"
    [ -z "$text" ] || says "$text"
}

refused() {
    ends "$@"
}

# Lines of the last command's messages.
says() { # text...
    local text
    for text; do
        grep -q -- "$text" "$work/log" || fail "no '$text' in $(cat "$work/log")"
    done
}

# No line of the last command's messages has the text.
never_says() { # text
    ! grep -q -- "$1" "$work/log" || fail "'$1' in $(cat "$work/log")"
}

# What the last command printed has these.
shows() { # text...
    local text
    for text; do
        grep -q -- "$text" "$work/out" || fail "no '$text' in: $(cat "$work/out")"
    done
}

# The command must end with CODE and one error, in whose line, or the $more_lines after it, is TEXT as it is.
one_error() { # code text command...
    ends "$1" "" timeout 400 "${@:3}"
    [ "$(grep -c 'dtrain: error\[' "$work/log")" = 1 ] || fail "not one message: $(cat "$work/log")"
    grep -A "${more_lines:-0}" 'dtrain: error\[' "$work/log" | grep -qF -- "$2" ||
        fail "no \"$2\": $(cat "$work/log")"
}

# Trains $work/config.json.
train() { # ranks, folder below $work, settings...
    local ranks=$1 out=$2
    shift 2
    ends 0 "" on_ranks "$ranks" "$dtrain" --config "$work/config.json" --out "$work/$out" "$@"
}

# on_ranks N command...
on_ranks() {
    local n=$1
    shift
    if [ "$n" = 1 ]; then
        "$@"
    else
        $DTRAIN_MPIRUN -np "$n" "$@"
    fi
}

# Tests whether the program has the CUDA backend.
has_cuda() {
    "$dtrain" doctor > "$work/doctor" 2> /dev/null || true
    ! grep -q "CUDA  *not in this build" "$work/doctor"
}

# Lines of dtrain doctor.
finds() { # mark, label, text
    shows "^  $1  $2  *.*$3"
}

# Generated images: shapes NAME PER_CLASS SEED [SIZE]
shapes() {
    "$dtrain" demo-data "$work/$1" --images-per-class "$2" --size "${4:-32}" --seed "$3"
}

# A small training configuration for those images, on standard output.
small_config() {
    cat <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
  "data": {"source": "folder", "train": "$work/train", "val": "$work/val", "workers": 1,
           "augment": "cifar", "val_resize": 32},
  "train": {"epochs": 100, "max_steps": 20, "global_batch_size": 12,
            "deterministic": true},
  "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
  "optim": {"momentum": 0.9, "weight_decay": 0.0001},
  "schedule": {"kind": "constant", "lr": 0.02, "lr_scaling": "none", "warmup_epochs": 0},
  "device": {"kind": "cpu", "threads": 1},
  "output": {"log_every": 5, "log_every_s": 0},
  "checkpoint": {"every_epochs": 0}
}
JSON
}

# Hash of the weights and the momentum of a run's newest checkpoint.
hash_of() {
    local folder
    folder="$1/checkpoints/$(readlink "$1/checkpoints/latest")"
    cat "$folder/model.safetensors" "$folder/optim.safetensors" | sha256sum | cut -d' ' -f1
}

model_of() {
    echo "$1/checkpoints/$(readlink "$1/checkpoints/latest")/model.safetensors"
}

momentum_of() {
    echo "$(dirname "$(model_of "$1")")/optim.safetensors"
}

# some_seed CHECK ARGUMENTS...: calls CHECK SEED ARGUMENTS... with several seeds until one agrees.
# Rounding usually changes training by about 1e-6. If it moves an input of ReLU across 0, or makes
# another pixel the maximum, the change is up to a few percent; which seeds do depends on the CPU.
# CHECK returns 3 for a difference of that size; a larger one is an error for any seed.
some_seed() {
    local check=$1 seed got
    shift
    for seed in 1 2 3 4 5 6 7 8; do
        got=0
        "$check" $seed "$@" || got=$?
        [ $got = 3 ] || return $got
    done
    fail "$check $*: no seed agrees up to rounding"
}
