#!/bin/bash
# A run folder that may not be read or written everywhere, as a user without the rights of root: the
# first message says what is whose, with which mode, and what to do. And links and FIFOs in a run folder.
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
ends 0 "" "${run[@]}"
newest=$work/run/checkpoints/step-000000020

# --- The newest checkpoint cannot be read ---
for closed in "$newest/MANIFEST.json" "$newest/optim.safetensors" "$newest"; do
    mode=$(stat -c %a "$closed")
    chmod 000 "$closed"
    refused 77 "whether checkpoint $newest is good: cannot \(open\|inspect\) $newest/" "${run[@]}"
    says "Permission denied ($closed belongs to uid $(stat -c %u "$closed") and has mode 0000; " \
        "or move it away to use the one before it"
    chmod "$mode" "$closed"
done
mv "$newest" "$work/run/away"
ends 0 "resuming from .*step-000000010" "${run[@]}"

# --- The folder of the checkpoints cannot be written ---
chmod 555 "$work/run/checkpoints"
refused 77 "cannot save checkpoints: cannot create folder $work/run/checkpoints/" "${run[@]}" \
    --set train.max_steps=25 --set checkpoint.retry_s=0.05
says "Permission denied ($work/run/checkpoints belongs to uid .* and has mode 0555; .*; let its owner"
never_says "^dtrain: epoch"
chmod 755 "$work/run/checkpoints"
ends 0 "" "${run[@]}" --set train.max_steps=25

# --- The folder of the checkpoints is a link: to other storage, or to what belongs to someone else ---
own=("$dtrain" --config "$work/config.json" --out "$work/link" --set checkpoint.every_steps=10)
mkdir -p "$work/link" "$work/elsewhere/.tmp-step-000000001-1"
touch "$work/elsewhere/.tmp-notes" "$work/elsewhere/.tmp-step-000000001-1/state.json"
ln -s ../elsewhere "$work/link/checkpoints"
if [ "$(id -u)" = 0 ]; then
    chown -h 65534 "$work/link" "$work/link/checkpoints"
    refused 77 "$work/link/checkpoints is a link of uid 65534 to a folder of uid 0" "${own[@]}"
    [ -e "$work/elsewhere/.tmp-step-000000001-1/state.json" ] || fail "a foreign file was removed"
    chown -h 0 "$work/link/checkpoints"
    mkdir "$work/theirs"
    ln -s ../theirs "$work/link/logs"
    chown -h 65534 "$work/link/logs"
    refused 77 "$work/link/logs is a link of uid 65534 to a folder of uid 0" "${own[@]}"
    rm "$work/link/logs"
fi
ends 0 "" "${own[@]}"
[ -e "$work/elsewhere/step-000000020/MANIFEST.json" ] || fail "the link was not followed"
[ -e "$work/elsewhere/.tmp-notes" ] || fail "a file that dtrain had not made was removed"
[ ! -e "$work/elsewhere/.tmp-step-000000001-1" ] || fail "the leftover of a crash is still there"

# --- A FIFO in the place of a file: nobody waits for its other end ---
never_waits() { # code, name, command...
    mv "$work/link/$2" "$work/away"
    mkfifo "$work/link/$2"
    refused "$1" "$work/link/$2" timeout -s KILL 60 "${@:3}"
    mv "$work/away" "$work/link/$2"
}
own+=(--set 'output.sinks=["jsonl","csv"]')
ends 0 "" "${own[@]}" --set train.max_steps=25
own+=(--set train.max_steps=30)
for name in metrics.jsonl metrics.csv; do
    never_waits 77 $name "${own[@]}"
done
never_waits 73 .lock "${own[@]}"
never_waits 73 RUN "${own[@]}"
never_waits 74 heartbeat.bin "${own[@]}"
never_waits 66 metrics.jsonl "$dtrain" report "$work/link"
touch "$work/link/heartbeat.bin" # as if it were alive
sed -i '/"run_end"/d' "$work/link/metrics.jsonl"
mv "$work/link/.lock" "$work/away"
mkfifo "$work/link/.lock"
ends 0 "" timeout -s KILL 60 "$dtrain" runs "$work/link"
rm "$work/link/.lock"
never_waits 0 logs/rank-0000.log "${own[@]}"
