#!/bin/bash
# Events about the hardware: of the host everywhere, of the GPU where the driver's library is found,
# and one warning for each reason why a GPU is slow.
. "$(dirname "$0")/../e2e/common.sh"
library=$(dirname "$dtrain")/nvml
[ -e "$library/libnvidia-ml.so.1" ] || fail "no library in $library"
export DTRAIN_EMULATED_GPUS=1
cat > "$work/config.json" <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 16},
  "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 8, "workers": 1, "augment": "none"},
  "train": {"max_steps": 6, "global_batch_size": 8},
  "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
  "device": {"kind": "cuda", "threads": 1, "cache_dir": "$work/cache", "allow_shared_gpu": true},
  "output": {"telemetry_s": 1e-6}
}
JSON
run() { # ranks, folder, arguments...: what was printed in $work/log
    local ranks=$1 out=$work/$2
    shift 2
    on_ranks "$ranks" "$dtrain" --config "$work/config.json" --out "$out" "$@" > "$work/log" 2>&1 ||
        fail "$*: $(cat "$work/log")"
}
has() { # number of lines, text
    [ "$(grep -cF -- "$2" "$work/log")" = "$1" ] || fail "not $1 times '$2': $(cat "$work/log")"
}
# Idle and at the power limit are no reasons to worry; then too hot, twice, and two more at once.
export FAKE_NVML=1:0,4:0,44:0,0:0,40:2,e8:2
LD_LIBRARY_PATH=$library run 2 gpu
has 1 'dtrain: warning: the GPU of rank 0 is slowed down: too hot (the hardware'
has 2 "is slowed down: too hot (the hardware's limit); it runs at 1410 MHz, 87 C, 652 W"
has 1 ' dtrain: warning: the GPU of rank 1 is slowed down: too hot'
has 2 'slowed down: hardware slowdown, too hot (the driver'
has 2 "GPU had 2 errors since boot that could not be corrected (ECC)"
has 0 telemetry
unset FAKE_NVML
LD_LIBRARY_PATH=$library run 1 refused # the library cannot begin
run 1 missing
has 0 'of rank 0'
run 1 cpu --set device.kind=cpu
run 1 off --set output.telemetry_s=0
run 1 seldom --set output.telemetry_s=1000
/usr/bin/python3 - "$work" <<'PY' || fail "events"
import json, sys

def events(name, event):
    lines = map(json.loads, open(f"{sys.argv[1]}/{name}/metrics.jsonl", encoding="utf-8"))
    return [line for line in lines if line["event"] == event]

gpu = events("gpu", "telemetry")
assert [e["step"] for e in gpu] == [1, 2, 3, 4, 5, 6], gpu
assert [e["gpu_throttle"] for e in gpu] == [1, 4, 0x44, 0, 0x40, 0xE8], gpu
assert [e["gpu_ecc_errors"] for e in gpu] == [0, 0, 0, 0, 2, 2], gpu
expected = {"gpu_power_w": 651.5, "gpu_temperature_c": 87, "gpu_clock_mhz": 1410, "gpu_memory_clock_mhz": 3201,
            "gpu_utilisation": 99, "gpu_memory_used_bytes": None}
assert all(e[key] == value for e in gpu for key, value in expected.items()), gpu
assert len(events("gpu", "warning")) == 3, events("gpu", "warning")
for name in ("refused", "missing", "cpu"):
    found = events(name, "telemetry")
    assert len(found) == 6 and not any(key.startswith("gpu") for e in found for key in e), found
    for e in found:
        assert e["host_memory_used_bytes"] > 0 and e["host_memory_available_bytes"] > e["page_cache_bytes"] // 100
        assert e["rss_bytes"] > 1 << 20 and e["load"] >= 0, e
assert len(events("off", "telemetry")) == 0 and len(events("seldom", "telemetry")) == 1
PY
