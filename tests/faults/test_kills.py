"""SIGKILL of ranks and of mpirun at random moments. Every run must resume when started again and
end in the state of an undisturbed run."""

import signal
import time

import rig as faults

# Long enough for all kills to hit a live run.
LONG = {"train.max_steps": 3000, "checkpoint.every_steps": 25, "eval.every_epochs": 50}
DETECTOR = {
    **faults.DETECTOR,
    "data.synthetic_train": 24,
    "train.global_batch_size": 6,
    "train.max_steps": 24,
    "checkpoint.every_steps": 4,
    "eval.every_epochs": 2,
}


def kill_some(rig, run, victim):
    """Kills a random rank, mpirun or everything. False if the run had already ended."""
    ranks = run.ranks()
    if run.process.poll() is not None or not ranks:
        return False
    victims = {
        "rank": [rig.random.choice(ranks)],
        "mpirun": [run.process.pid],
        "all": ranks + [run.process.pid],
    }[victim]
    faults.send(victims, signal.SIGKILL)
    return True


def wait_for_mpirun(rig, run):
    """Open MPI 4.1 can hang if a rank is killed while it connects to mpirun, before dtrain has
    control; no other hang is tolerated."""
    try:
        run.wait(120)
    except AssertionError as problem:
        rig.n_hung_starts += 1
        rig.check("PMIX ERROR" in str(problem) and "device" not in str(problem), str(problem))


def wait_for_ranks(pids):
    """After mpirun has ended, its ranks end by themselves."""
    for _ in range(1000):
        alive = [pid for pid in pids if is_running(pid)]
        if not alive:
            return []
        time.sleep(0.1)
    return alive


def is_running(pid):
    return faults.process_state(pid)[0] not in ("gone", "Z")


def wait_a_while(rig, run, sets):
    """Until a random moment; in the short form one at which the run is not over."""
    if rig.long:
        time.sleep(rig.random.uniform(0.1, 2.5))
        return
    steps = sets.get("train.max_steps", 400) * rig.random.uniform(0, 0.7)
    while faults.reported_step(run) < steps and run.process.poll() is None:
        time.sleep(0.01)


def one_run(rig, number, n_kills, victim, sets):
    """Number of kills that hit a live run."""
    n_ranks = 2 + number % 3
    out = rig.folder("killed")
    expected = rig.reference(n_ranks, sets)
    done = 0
    for _ in range(4 * n_kills):
        if done == n_kills:
            break
        run = rig.start(n_ranks, out, sets=sets)
        wait_a_while(rig, run, sets)
        pids = run.ranks()
        hit = kill_some(rig, run, victim)
        wait_for_mpirun(rig, run)
        left = wait_for_ranks(pids)
        rig.check(not left, f"{victim} killed, but {len(left)} rank(s) remain")
        rig.check(hit or rig.long, f"run {number}: ended before a kill:\n{run.text()}")
        if not hit:
            break
        done += 1
        kept, reported = faults.newest_step(out), faults.reported_step(run)
        rig.check(kept >= reported, f"run {number}: reported step {reported}, found {kept}")
        problems = [line for line in run.text().splitlines() if "is not usable" in line]
        rig.check(not problems, f"run {number}: a kill damaged a checkpoint: {problems}")
    rig.finish(n_ranks, out, sets=sets)
    rig.check(
        faults.state_of(out) == expected,
        f"run {number} on {n_ranks} ranks, {done} kills: the final state differs",
    )
    return done


def campaign(rig):
    few = {**DETECTOR, "train.max_steps": 8, "checkpoint.every_steps": 2}
    plan = [("rank", 1, 2, {"train.max_steps": 150}), ("rank", 1, 1, few)]
    if rig.long:
        plan = [("rank", 20, 10, LONG), ("mpirun", 5, 10, LONG), ("all", 2, 5, LONG), ("rank", 10, 5, DETECTOR)]
    for victim, n_runs, n_kills, sets in plan:
        total = sum(one_run(rig, number, n_kills, victim, sets) for number in range(n_runs))
        name, failed = sets.get("model.name", "classifier"), len(rig.failed)
        print(f"{name}, kills of {victim}: {total} in {n_runs} runs, {failed} failures so far", flush=True)
        hung = rig.n_hung_starts
        print(f"    mpirun itself hung after a kill during its start: {hung}", flush=True)
        faults.remove_shared_memory()


if __name__ == "__main__":
    faults.main(campaign, __doc__)
