#!/bin/bash
# Updates the corpora of the repository after long runs: merge.sh [TARGET...]. Takes the smallest
# inputs of a set that, with the hand-made cases, reaches all the code that the fuzzer has reached. At
# most 60 files of less than 4 KB per target; regressions, files named finding-*, are kept as well.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${DTRAIN_FUZZ_DIR:-/tmp/dtrain-fuzz}
targets=("$@")
[ $# -gt 0 ] || targets=(config tar_index safetensors jpeg coco)
export ASAN_OPTIONS=allocator_may_return_null=1

"$here/build.sh" "$dir" "${targets[@]}" > /dev/null

for target in "${targets[@]}"; do
    corpus=$here/corpus/$target
    merged=$dir/merged/$target
    rm -rf "$merged"
    mkdir -p "$merged" "$corpus" "$dir/corpus/$target"
    cp "$dir/seeds/$target"/* "$merged"
    nice "$dir/fuzz_$target" -set_cover_merge=1 -use_counters=0 -max_len=4095 -rss_limit_mb=2048 \
        "$merged" "$dir/corpus/$target" "$corpus" \
        > "$dir/$target.merge.log" 2>&1
    find "$corpus" -type f ! -name 'finding-*' -delete
    (cd "$dir/seeds/$target" && find . -type f -exec rm -f "$merged"/{} \;)
    room=$((60 - $(find "$corpus" -type f | wc -l)))
    find "$merged" -type f -printf '%s %p\n' | sort -n | head -n "$room" | cut -d' ' -f2- |
        xargs -d '\n' -r cp -n -t "$corpus"
    echo "$target: $(find "$corpus" -type f | wc -l) files, $(du -sb "$corpus" | cut -f1) bytes"
done
