#!/bin/bash
# Runs the fuzzers one after another: run.sh [SECONDS [TARGET...]]. Inputs that break a target are
# stored in $DTRAIN_FUZZ_DIR/findings, the corpora in .../corpus/TARGET. The fuzzers have the lowest
# priority, so the time limit per input is generous; tests/faults checks the cost of inputs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${DTRAIN_FUZZ_DIR:-/tmp/dtrain-fuzz}
seconds=${1:-300}
shift || true
targets=("$@")
[ $# -gt 0 ] || targets=(config tar_index safetensors jpeg coco)
declare -A max_len=([config]=4096 [tar_index]=32768 [safetensors]=16384 [jpeg]=16384 [coco]=8192)
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

"$here/build.sh" "$dir" "${targets[@]}" > /dev/null
mkdir -p "$dir/findings"
failed=0
for target in "${targets[@]}"; do
    corpus=$dir/corpus/$target
    log=$dir/$target.log
    mkdir -p "$corpus"
    nice -n 19 "$dir/fuzz_$target" "-dict=$here/$target.dict" -timeout=25 -rss_limit_mb=1024 \
        "-max_len=${max_len[$target]}" "-max_total_time=$seconds" -print_final_stats=1 \
        "-artifact_prefix=$dir/findings/$target-" "$corpus" "$here/corpus/$target" \
        "$dir/seeds/$target" > "$log" 2>&1 || failed=1
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    findings=$(find "$dir/findings" -name "$target-*" | wc -l)
    echo "$target: ${executions:-?} executions, ${coverage:-cov: ?}, $findings findings"
done
exit "$failed"
