#!/bin/bash
# A run folder that may not be read or written everywhere, as a user without the rights of root: the
# first message says what is whose, with which mode, and what to do.
# shellcheck source=../e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
chmod 755 "$work"
user=()
[ "$(id -u)" != 0 ] || user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if ! "${user[@]}" "$dtrain" --version > "$work/log" 2>&1; then
    echo "no other user can run $dtrain: skipped: $(cat "$work/log")"
    exit 77
fi
shapes train 3 1
shapes val 1 2
small_config > "$work/config.json"
mkdir "$work/run"
chmod -R a+rX "$work"
[ "$(id -u)" != 0 ] || chown 65534 "$work/run"
run=("${user[@]}" "$dtrain" --config "$work/config.json" --out "$work/run"
    --set checkpoint.every_steps=10)
"${run[@]}" 2> "$work/log" || fail "$(cat "$work/log")"
newest=$work/run/checkpoints/step-000000020

# --- The newest checkpoint cannot be read ---
for closed in "$newest/MANIFEST.json" "$newest/optim.safetensors" "$newest"; do
    mode=$(stat -c %a "$closed")
    chmod 000 "$closed"
    refused 77 "whether checkpoint $newest is good: cannot \(open\|inspect\) $newest/" "${run[@]}"
    grep -q "Permission denied ($closed belongs to uid $(stat -c %u "$closed") and has mode 0000; " \
        "$work/log" || fail "$(cat "$work/log")"
    grep -q "or move it away to use the one before it" "$work/log" || fail "$(cat "$work/log")"
    chmod "$mode" "$closed"
done
mv "$newest" "$work/run/away"
"${run[@]}" 2> "$work/log" || fail "$(cat "$work/log")"
grep -q "resuming from .*step-000000010" "$work/log" || fail "$(cat "$work/log")"
