# shellcheck shell=bash
# For the tests that train on the emulated GPU.
. "$(dirname "$0")/../e2e/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
export DTRAIN_EMULATED_GPUS=1
cat > "$work/config.json" <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 16},
  "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 8, "workers": 1, "augment": "none"},
  "train": {"epochs": 100, "max_steps": 8, "global_batch_size": 8,
            "precision": "fp32", "deterministic": true},
  "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
  "schedule": {"kind": "constant", "lr": 0.05, "lr_scaling": "none", "warmup_epochs": 0},
  "device": {"kind": "cuda", "threads": 1, "cache_dir": "$work/cache"},
  "output": {"log_every": 1, "log_every_s": 0},
  "checkpoint": {"every_epochs": 0}
}
JSON
refuses() { # exit code, text, ranks, folder, settings...
    ends "$1" "$2" on_ranks "$3" "$dtrain" --config "$work/config.json" --out "$work/$4" "${@:5}"
}
losses() {
    echo -n "$*: "
    (cd "$work" && /usr/bin/python3 "$here/losses.py" "$@") || fail "losses of $*"
}
bench=("$dtrain" bench --config "$work/config.json" --json "$work/bench.json" --set bench.rounds=1)
