#!/bin/bash
# The job scripts and those that make_job.py makes of them, with fakes of dtrain and of the
# schedulers' commands that record how they were called: the signal is forwarded once, the script
# waits for the end, exactly the right exit codes lead to a restart, and every exit code is passed on.
# Generated ones ask for what they should, pass shellcheck, and wrong options are refused.
. "$(dirname "$0")/../e2e/common.sh"
scripts=$(cd "$here/../../scripts" && pwd)
calls=$work/calls
fakes=$work/fakes
mkdir "$fakes"

cat > "$fakes/dtrain" <<'SH'
#!/bin/bash
trap 'echo "got USR1" >> calls; asked=1' USR1
echo "dtrain $* end=${SLURM_JOB_END_TIME:-}" >> calls
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
unset SLURM_JOB_END_TIME SLURM_RESTART_COUNT LD_LIBRARY_PATH "${!DTRAIN_@}" "${!NCCL_@}" "${!UCX_@}"

start() { # script: in $work, where the fakes write `calls`
    rm -f "$calls"
    (cd "$work" && exec bash "$1") > "$work/log" 2>&1 &
    job=$!
}

finish() { # code
    local got=0
    wait $job || got=$?
    [ $got = "$1" ] || fail "$script: exit code $got instead of $1: $(cat "$work/log")"
}

wait_for() { # text in calls
    for _ in $(seq 6000); do
        if grep -q "$1" "$calls" 2> /dev/null; then return; fi
        sleep 0.05
    done
    fail "$script: no \"$1\": $(cat "$work/log" "$calls")"
}

called() { # after what, calls...
    printf '%s\n' "${@:2}" | diff - "$calls" >&2 || fail "$script: calls after $1"
}

signalled() { # signal, calls...: the signal comes again while the run saves
    export FAKE_CODE=75 FAKE_RUNS=long
    start "$script"
    wait_for "^dtrain"
    kill "-$1" $job
    wait_for "got USR1"
    kill "-$1" $job
    finish 75
    called "the signal" "${@:2}"
    export FAKE_RUNS=now
}

command="dtrain launch --ranks-per-node 8 --max-restarts 50 -- --config config.json --out run"

# make KIND FILE OPTIONS...: a generated job in $work.
make() {
    local kind=$1 file=$2
    shift 2
    (cd "$work" && "$scripts/make_job.py" --for "$kind" "$@") > "$work/$file"
    bash -n "$work/$file" || [ "$kind" = k8s ] || fail "$file is no script"
}
on_cpus=(--nodes 4 --ranks-per-node 2 --cpus 16 --interface eth0 --name net --container /x/d.sif)
on_cpus+=(--env X_DATA=/a\ b --env X_EMPTY=)
make slurm net.sbatch "${on_cpus[@]}" --out 'a b'
make pbs net.pbs "${on_cpus[@]}" --out 'a b'
make lsf net.lsf "${on_cpus[@]}" --out 'a b'
generated="dtrain launch --ranks-per-node 2 --cpus 16 --interface eth0 --program apptainer exec /x/d.sif dtrain"
generated+=" --env X_DATA=/a b --env X_EMPTY= --env APPTAINER_BINDPATH=$work --max-restarts 50 --"
generated+=" --config config.json --out a b"

# Other commands, a script that starts the ranks itself, and what the schedulers call their options.
echo '{}' > "$work/c.json"
site=(--nodes 4 --ranks-per-node 2 --mem 64G --exclusive --module gcc,openmpi/4)
make slurm bench.sbatch "${site[@]}" --qos high --line '#SBATCH -C a100' --config "$work/c.json" -- bench --allreduce
make pbs doctor.pbs "${site[@]}" --name doctor -- doctor
make lsf scaling.lsf "${site[@]}" --qos high --config "$work/c.json" -- scripts/scaling.sh --np 1,2
while IFS='|' read -r file line; do
    grep -qxF -- "${line//WORK/$work}" "$work/$file" || fail "$file lacks $line: $(cat "$work/$file")"
done <<'ROWS'
bench.sbatch|run=(bench --config WORK/c.json --allreduce)
bench.sbatch|#SBATCH --mem=64G
bench.sbatch|#SBATCH --qos=high
bench.sbatch|#SBATCH --exclusive
bench.sbatch|#SBATCH -C a100
bench.sbatch|module load gcc openmpi/4
doctor.pbs|run=(doctor)
doctor.pbs|#PBS -l select=4:ncpus=16:mpiprocs=2:mem=64gb
doctor.pbs|#PBS -l place=scatter:excl
scaling.lsf|run=(scripts/scaling.sh --np 1,2 -- --config WORK/c.json)
scaling.lsf|DTRAIN_LAUNCH_OPTIONS="${launch[*]:2}" "${run[@]}" &
scaling.lsf|#BSUB -R "rusage[mem=64G/host]"
scaling.lsf|#BSUB -sla high
scaling.lsf|#BSUB -x
ROWS
grep -n '^#BSUB\|^module' "$work/scaling.lsf" | tail -1 | grep -q module || fail "directives behind a command"

n=0
for row in \
    "$scripts/slurm/dtrain.sbatch|scontrol requeue 41|$command end=2000000000" \
    "$scripts/pbs/dtrain.pbs|qsub -v DTRAIN_RESTARTS=1 dtrain.pbs|$command --max-time 86220s end=" \
    "$scripts/lsf/dtrain.lsf|brequeue 43|$command end=" \
    "$work/net.sbatch|scontrol requeue 41|$generated end=2000000000" \
    "$work/net.pbs|qsub -v DTRAIN_RESTARTS=1 net.pbs|$generated --max-time 86220s end=" \
    "$work/net.lsf|brequeue 43|$generated end="; do
    IFS='|' read -r script requeue launch <<< "$row"
    rm -f "$work"/*.restarts
    codes="0 75 255" # make_job.py copies the rest of a script: every code once
    [[ $script == "$work"/* ]] ||
        codes="0 1 2 64 65 66 69 70 71 73 74 75 76 77 78 80 81 82 83 84 134 137 138 139 143 205 255"
    for code in $codes; do
        export FAKE_CODE=$code
        start "$script"
        finish $code
        case $code in
        69 | 75 | 80 | 82 | 137 | 205) called "exit code $code" "$launch" ended "$requeue" ;;
        *) called "exit code $code" "$launch" ended ;;
        esac
        n=$((n + 1))
    done
    signalled USR1 "$launch" "got USR1" ended "$requeue"
done

# After the first minute, 255 is a lost node.
script=$scripts/slurm/dtrain.sbatch
export FAKE_CODE=255
SECONDS=60 start "$script"
finish 255
grep -q '^scontrol requeue' "$calls" || fail "$script: not requeued after 255: $(cat "$calls")"

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
script=$scripts/slurm/dtrain.sbatch
SLURM_RESTART_COUNT=49 expect_last "scontrol requeue 41"
SLURM_RESTART_COUNT=50 expect_enough
script=$scripts/pbs/dtrain.pbs
DTRAIN_RESTARTS=49 expect_last "qsub -v DTRAIN_RESTARTS=50 "
DTRAIN_RESTARTS=50 expect_enough
script=$scripts/lsf/dtrain.lsf
head -c 49 /dev/zero > "$work/dtrain-43.restarts"
expect_last "brequeue 43"
expect_enough

# The end of the allocation: Slurm's own variable wins, and an unknown end is not an error.
script=$scripts/slurm/dtrain.sbatch
expect_launch() { # end of the line
    start "$script"
    finish 75
    head -1 "$calls" | grep -qE -- "$1\$" || fail "$script: no \"$1\": $(cat "$calls" "$work/log")"
}
SLURM_JOB_END_TIME=1900000000 expect_launch "--out run end=1900000000"
FAKE_END='' expect_launch "--out run end="
FAKE_END=N/A expect_launch "--out run end="
script=$scripts/pbs/dtrain.pbs
FAKE_WALLTIME=00:08:09 expect_launch "--max-time 309s end="
FAKE_WALLTIME=00:04:00 expect_launch "--max-time 120s end="
FAKE_WALLTIME='' expect_launch "--out run end="
grep -q "shows no walltime" "$work/log" || fail "$script: no warning about a missing walltime"

# What generated jobs ask for.
has() { # file line...
    local file=$work/$1
    shift
    for line; do grep -qxF -- "$line" "$file" || fail "no \"$line\" in $(cat "$file")"; done
}
lacks() { ! grep -q -- "$2" "$work/$1" || fail "$2 in $1"; }
echo '{}' > "$work/my run.json"
on_gpus=(--nodes 4 --gpus 8 --cpus 12 --name big --config 'my run.json' --max-restarts 3)
scheduled=(--time 11:30:00 --queue q1 --account me --logs out/logs)
make slurm big.sbatch "${on_gpus[@]}" "${scheduled[@]}" --container nvcr.io/me/d:1 -- --set 'a="b"'
has big.sbatch '#SBATCH --job-name=big' '#SBATCH --nodes=4' '#SBATCH --ntasks-per-node=8' \
    '#SBATCH --cpus-per-task=12' '#SBATCH --gpus-per-node=8' '#SBATCH --time=11:30:00' \
    '#SBATCH --partition=q1' '#SBATCH --account=me' '#SBATCH --output=out/logs/big-%j.log' \
    '# Submit: mkdir -p out/logs && sbatch big.sbatch' 'max_restarts=3' \
    "run=(--config 'my run.json' --set 'a=\"b\"')" 'launch=(dtrain launch --ranks-per-node 8 --program dtrain)'
# shellcheck disable=SC2016 # for the job's shell
grep -q '^export DTRAIN_MPIRUN="srun --cpus-per-task=$SLURM_CPUS_PER_TASK --container-image=nvcr.io/me/d:1 ' "$work/big.sbatch" ||
    fail "no container: $(cat "$work/big.sbatch")"
make pbs big.pbs "${on_gpus[@]}" "${scheduled[@]}"
has big.pbs '#PBS -N big' '#PBS -l select=4:ncpus=96:mpiprocs=8:ngpus=8' '#PBS -l place=scatter' \
    '#PBS -l walltime=11:30:00' '#PBS -q q1' '#PBS -A me' '#PBS -o out/logs/' 'script=big.pbs'
make lsf big.lsf "${on_gpus[@]}" "${scheduled[@]}" --container d.sif
# shellcheck disable=SC2016 # for the job's shell
has big.lsf '#BSUB -J big' '#BSUB -n 384' '#BSUB -R "span[ptile=96]"' '#BSUB -W 11:30' '#BSUB -q q1' \
    '#BSUB -gpu "num=8:j_exclusive=yes"' '#BSUB -P me' '#BSUB -o out/logs/big-%J.log' \
    "launch=(dtrain launch --ranks-per-node 8 --program 'apptainer exec --nv d.sif dtrain' --env \"APPTAINER_BINDPATH=\$PWD\")"
has net.sbatch '#SBATCH --cpus-per-task=16'
has net.pbs '#PBS -l select=4:ncpus=32:mpiprocs=2'
for file in net.sbatch net.pbs net.lsf; do lacks $file '##\|gpu\|srun'; done
make k8s big.yaml "${on_gpus[@]}" --container me/d:1 --claim disk

# The block that all three share.
for script in slurm/dtrain.sbatch pbs/dtrain.pbs lsf/dtrain.lsf; do
    sed -n '/^run=/,/^max_restarts/p; /^# The run saves/,/^esac/p' "$scripts/$script" | sha256sum
done | uniq -c | grep -q '^ *3 ' || fail "the job scripts differ in what should be the same"

# Kubernetes: the file, and the launcher's script.
if /usr/bin/python3 -c 'import yaml' 2> /dev/null; then
    /usr/bin/python3 - "$work/big.yaml" > "$work/launcher" <<'PY'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
spec = job["spec"]
launcher, worker = (spec["mpiReplicaSpecs"][x] for x in ("Launcher", "Worker"))
pod = worker["template"]["spec"]
container, = pod["containers"]
assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob"), job
assert (job["metadata"]["name"], spec["slotsPerWorker"], worker["replicas"]) == ("big", 8, 4), job
assert container["image"] == "me/d:1" and spec["sshAuthMountPath"] == "/home/dtrain/.ssh", job
assert container["args"] == ["sshd"] and pod["securityContext"]["runAsUser"] == 1000, pod
assert container["resources"]["limits"] == {"cpu": 96, "nvidia.com/gpu": 8}, container
assert [m["mountPath"] for m in container["volumeMounts"]] == ["/work", "/dev/shm"], container
volumes = {v["name"]: v for v in pod["volumes"]}
assert volumes["shm"]["emptyDir"] == {"medium": "Memory"}, volumes
assert volumes["work"]["persistentVolumeClaim"] == {"claimName": "disk"}, volumes
assert launcher["template"]["spec"]["volumes"] == [volumes["work"]], launcher
main, = launcher["template"]["spec"]["containers"]
assert launcher["restartPolicy"] == "Never" and main["image"] == "me/d:1", launcher
assert main["command"] == ["bash", "-c"] and main["workingDir"] == "/work", main
assert [m["mountPath"] for m in main["volumeMounts"]] == ["/work"], main
print("#!/bin/bash\n" + main["args"][0])
PY
    script=$work/launcher
    launch="dtrain launch --ranks-per-node 8 --wait 10m --max-restarts 3 -- --config my run.json end="
    for code in 0 75; do
        export FAKE_CODE=$code
        start "$script"
        finish "$code"
        called "exit code $code" "$launch" ended
    done
else
    echo "no python3-yaml: the Kubernetes file was not read"
fi

if command -v shellcheck > /dev/null; then
    for file in net.sbatch net.pbs net.lsf bench.sbatch doctor.pbs big.sbatch big.pbs big.lsf launcher; do
        [ ! -e "$work/$file" ] || shellcheck -s bash "$work/$file" || fail "shellcheck $file"
    done
fi

# The pages: their commands are accepted, and so is the configuration.
repository=$(cd "$scripts/.." && pwd)
mkdir "$work/pages"
ln -s "$repository"/{scripts,configs} "$work/pages"
echo '{}' > "$work/pages/imagenet.json" # the page shows it
cat "$repository"/{README,scripts/README,scripts/cluster,docker/README}.md | sed ':a;/\\$/{N;s/\\\n//;ba}' |
    grep -oE '^scripts/make_job.py [^>]+' | while read -r line; do
        (cd "$work/pages" && export DATA=/d SCRATCH=/s && eval "$line") > "$work/page" || fail "$line"
    done
# shellcheck disable=SC2016 # no command
sed -n '/^```json/,/^```/{/^```/d;p}' "$scripts/cluster.md" > "$work/page.json"
SCRATCH=/s DATA=/d "$dtrain" config show --config "$work/page.json" > "$work/page"
grep -q '"dir": "/s/runs/resnet50"' "$work/page" || fail "the configuration of cluster.md: $(cat "$work/page")"

# Wrong options: one sentence, 64.
while IFS='|' read -r text options; do
    # shellcheck disable=SC2086
    refused 64 "$text" "$scripts/make_job.py" $options
    [ "$(wc -l < "$work/log")" = 1 ] || fail "$options: $(cat "$work/log")"
done <<'ROWS'
--for|--nodes 4 --gpus 8
invalid choice: 'sge'|--for sge --nodes 4 --gpus 8
--nodes|--for slurm --gpus 8
'0' is not a number from 1|--for slurm --nodes 0 --gpus 8
'x' is not a number from 1|--for slurm --nodes 4 --gpus x
give --gpus N, or --ranks-per-node N|--for slurm --nodes 4
one rank per GPU|--for slurm --nodes 4 --gpus 8 --ranks-per-node 4
expected hours, minutes and seconds|--for pbs --nodes 4 --gpus 8 --time 12h
expected at most 40 lower-case|--for lsf --nodes 4 --gpus 8 --name A_b
expected a name such as eth0|--for lsf --nodes 4 --gpus 8 --interface 10.0.0.0/16
expected NAME=VALUE|--for slurm --nodes 4 --gpus 8 --env DATA
expected one word|--for slurm --nodes 4 --gpus 8 --queue a;b
expected a folder|--for slurm --nodes 4 --gpus 8 --logs $(x)
expected an image|--for slurm --nodes 4 --gpus 8 --container a`b`
only .sif|--for pbs --nodes 4 --gpus 8 --container image
not for k8s|--for k8s --nodes 4 --gpus 8 --container i --time 1:00:00
k8s needs --container|--for k8s --nodes 4 --gpus 8
--config nowhere.json: there is no such file|--for slurm --nodes 4 --gpus 8 --config nowhere.json
--out is the run folder of training|--for slurm --nodes 4 --gpus 8 --out run -- bench
not for k8s|--for k8s --nodes 4 --gpus 8 --container i --module gcc
expected a number and a unit|--for lsf --nodes 4 --gpus 8 --mem 64
starts the ranks itself|--for lsf --nodes 4 --gpus 8 --container d.sif -- scripts/scaling.sh
unrecognized arguments: --node|--for slurm --nodes 4 --gpus 8 --nodez 3
ROWS
# What YAML or the shell takes for a line break: LF, CR, NEL, LS, PS.
for break in $'\n' $'\r' $'\xc2\x85' $'\xe2\x80\xa8' $'\xe2\x80\xa9'; do
    refused 64 "a line break" "$scripts/make_job.py" --for k8s --nodes 1 --gpus 1 --container i --out "a${break}b"
done

echo "$n exit codes over six job scripts, signals and limits: all as expected"
