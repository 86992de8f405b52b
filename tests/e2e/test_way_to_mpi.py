"""The functions between main and MPI_Isend are those that src/README.md lists, in that order.

    python3 test_way_to_mpi.py BUILD/dtrain"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, TESTS, rig, train, write_config  # noqa: E402

PRELOADED = rig.preloaded(DTRAIN, "isend_stack.so")


def listed():
    with open(os.path.join(TESTS, "..", "src", "README.md")) as readme:
        section = readme.read().split("**From main to the all-reduce**", 1)[1].split("\n`dt_comm_reduce`", 1)[0]
    return re.findall(r"^(\w+) +[\w/.]+\.c\b", section, re.M)


def named(addresses):
    """The functions of a stack, inlined ones too, the outermost first."""
    command = ["addr2line", "--inlines", "--functions", f"--exe={DTRAIN}", *addresses]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return lines[::2][::-1]


if not PRELOADED:
    print("skipped: this build has no isend_stack.so, as with sanitizers")
    sys.exit(77)
write_config({"data": {"source": "synthetic"}, "model": {"name": "tiny", "num_classes": 10}})
short = {"train.max_steps": 1, "train.global_batch_size": 8, "data.synthetic_train": 8, "comm.algorithm": "ring"}
said = train("run", short, ranks=2, env={"LD_PRELOAD": PRELOADED}).said
stacks = [named(line.split()) for line in sorted(set(re.findall(r"stack:((?: [0-9a-f]+)+)", said)))]
if not any("main" in stack for stack in stacks):
    print("skipped: this build has no line numbers")
    sys.exit(77)
ways = [stack[stack.index("main") :] for stack in stacks if "dt_plan_train" in stack and "advance_queue" in stack]
begun = [way for way in ways if "dt_comm_reduce" in way]
assert begun, f"no message of a training step among {len(stacks)} stacks: {said}"
for way in begun:
    assert way == listed(), f"src/README.md lists {listed()}, but the way is {way}"
assert len(listed()) + 1 <= 13, "more than 13 functions with MPI_Isend"
