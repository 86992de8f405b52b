#!/bin/bash
# The job scripts, with fakes of mpirun and of the schedulers' commands that record how they were
# called: the signal is forwarded once, the script waits for the end, exactly the right exit codes
# lead to a restart, and every exit code is passed on.
. "$(dirname "$0")/../e2e/common.sh"
scripts=$(cd "$here/../../scripts" && pwd)
calls=$work/calls
fakes=$work/fakes
mkdir "$fakes"

cat > "$fakes/mpirun" <<'SH'
#!/bin/bash
trap 'echo "got USR1" >> calls; asked=1' USR1
echo "mpirun $* end=${SLURM_JOB_END_TIME:-}" >> calls
while [ "$FAKE_RUNS" = long ] && [ -z "${asked:-}" ]; do sleep 0.05; done
[ "$FAKE_RUNS" = now ] || sleep 1
trap "" USR1
echo "ended" >> calls
exit "$FAKE_CODE"
SH
for name in scontrol qsub brequeue; do
    cat > "$fakes/$name" <<SH
#!/bin/bash
echo "$name \$*" >> calls
SH
done
cat > "$fakes/squeue" <<'SH'
#!/bin/bash
[ -n "${FAKE_END:-}" ] && echo "$FAKE_END"
SH
cat > "$fakes/qstat" <<'SH'
#!/bin/bash
printf 'Job Id: %s\n    Job_Name = dtrain\n' "$2"
[ -z "${FAKE_WALLTIME:-}" ] || echo "    Resource_List.walltime = $FAKE_WALLTIME"
SH
chmod +x "$fakes"/*
export PATH="$fakes:$PATH" FAKE_RUNS=now FAKE_CODE=0
export SLURM_JOB_ID=41 PBS_JOBID=42.host LSB_JOBID=43 PBS_O_WORKDIR=$work
export FAKE_END=2033-05-18T03:33:20 FAKE_WALLTIME=24:00:00 TZ=UTC
unset SLURM_JOB_END_TIME SLURM_RESTART_COUNT DTRAIN_RESTARTS

start() { # script: in $work, where the fakes write `calls`
    rm -f "$calls"
    (cd "$work" && exec bash "$scripts/$1") > "$work/log" 2>&1 &
    job=$!
}

finish() { # code
    local got=0
    wait $job || got=$?
    [ $got = "$1" ] || fail "$script: exit code $got instead of $1: $(cat "$work/log")"
}

wait_for() { # text in calls
    for _ in $(seq 600); do
        if grep -q "$1" "$calls" 2> /dev/null; then return; fi
        sleep 0.05
    done
    fail "$script: no \"$1\": $(cat "$work/log" "$calls")"
}

keepalive="--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5"
keepalive+=" --mca oob_tcp_keepalive_probes 3"
command="mpirun $keepalive dtrain --config config.json --out run"
n=0
for row in \
    "slurm/dtrain.sbatch|scontrol requeue 41|$command end=2000000000" \
    "pbs/dtrain.pbs|qsub -v DTRAIN_RESTARTS=1 $work/dtrain.pbs|$command --max-time 86220s end=" \
    "lsf/dtrain.lsf|brequeue 43|$command end="; do
    IFS='|' read -r script requeue launch <<< "$row"
    rm -f "$work"/*.restarts
    for code in 0 1 2 64 65 66 69 70 71 73 74 75 76 77 78 80 81 82 83 84 134 137 138 139 143 205; do
        export FAKE_CODE=$code
        start "$script"
        finish $code
        printf '%s\n' "$launch" ended > "$work/expected"
        case $code in
        69 | 75 | 80 | 82 | 137 | 205) echo "$requeue" >> "$work/expected" ;;
        esac
        diff "$work/expected" "$calls" >&2 || fail "$script: calls after exit code $code"
        n=$((n + 1))
    done

    # A signal, and a second one while the run saves.
    export FAKE_CODE=75 FAKE_RUNS=long
    start "$script"
    wait_for mpirun
    kill -USR1 $job
    wait_for "got USR1"
    kill -USR1 $job
    finish 75
    printf '%s\n' "$launch" "got USR1" ended "$requeue" > "$work/expected"
    diff "$work/expected" "$calls" >&2 || fail "$script: calls after the signal"
    export FAKE_RUNS=now
done

# At most max_restarts restarts.
export FAKE_CODE=75
expect_last() { # call
    start "$script"
    finish 75
    grep -qE "^($1)" "$calls" || fail "$script: not requeued: $(cat "$calls")"
}
expect_enough() {
    start "$script"
    finish 75
    grep -q "gave up after 50 restarts" "$work/log" || fail "$script: $(cat "$work/log")"
    ! grep -qE '^(scontrol|qsub|brequeue)' "$calls" || fail "$script: requeued: $(cat "$calls")"
}
script=slurm/dtrain.sbatch
SLURM_RESTART_COUNT=49 expect_last "scontrol requeue 41"
SLURM_RESTART_COUNT=50 expect_enough
script=pbs/dtrain.pbs
DTRAIN_RESTARTS=49 expect_last "qsub -v DTRAIN_RESTARTS=50 "
DTRAIN_RESTARTS=50 expect_enough
script=lsf/dtrain.lsf
head -c 49 /dev/zero > "$work/dtrain-43.restarts"
expect_last "brequeue 43"
expect_enough

# The end of the allocation: Slurm's own variable wins, and an unknown end is not an error.
script=slurm/dtrain.sbatch
expect_launch() { # end of the line
    start "$script"
    finish 75
    head -1 "$calls" | grep -qE -- "$1\$" || fail "$script: no \"$1\": $(cat "$calls" "$work/log")"
}
SLURM_JOB_END_TIME=1900000000 expect_launch "--out run end=1900000000"
FAKE_END='' expect_launch "--out run end="
FAKE_END=N/A expect_launch "--out run end="
script=pbs/dtrain.pbs
FAKE_WALLTIME=00:08:09 expect_launch "--max-time 309s end="
FAKE_WALLTIME=00:04:00 expect_launch "--max-time 120s end="
FAKE_WALLTIME='' expect_launch "--out run end="
grep -q "shows no walltime" "$work/log" || fail "$script: no warning about a missing walltime"
echo "$n exit codes over three job scripts, signals and limits: all as expected"
