"""Cases for the fuzz targets: what the programs <target>_cases.py share.

A case is (name, bytes, expected), see replay_main.c. The hand-made ones are also the seeds of the
fuzzer, with what is found by it in corpus/. Each program is called as
    <target>_cases.py REPLAY [--long]      runs the cases and the corpus by that replay_<target>
    <target>_cases.py --seeds FOLDER       writes the hand-made cases as files
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SEED_BYTES_MAX = 16384


def write_seeds(cases, folder):
    os.makedirs(folder, exist_ok=True)
    for number, (name, data, _) in enumerate(cases):
        if len(data) <= SEED_BYTES_MAX:
            file = f"{number:03}-" + re.sub(r"[^\w.-]+", "-", name)[:60]
            with open(os.path.join(folder, file), "wb") as out:
                out.write(data)


def main(target, hand_made, generated=lambda is_long: (), environment=None):
    if sys.argv[1] == "--seeds":
        write_seeds(hand_made, sys.argv[2])
        return
    cases = list(hand_made) + list(generated("--long" in sys.argv))
    pack = b"".join(
        b"%d\t%s\t%s\n" % (len(data), expected.encode(), repr(name)[1:-1].encode()) + data
        for name, data, expected in cases
    )
    run = subprocess.run(
        [sys.argv[1], os.path.join(HERE, "corpus", target), "-"],
        input=pack,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    lines = run.stdout.decode("utf-8", "replace").splitlines()[-3:]
    print("\n".join(lines[-1:] if run.returncode == 0 else lines))
    n_bad = sum(expected.startswith(("bad", "many")) for _, _, expected in cases)
    print(f"{len(cases)} cases, {n_bad} of them to be refused; replay ended with {run.returncode}")
    sys.exit(run.returncode != 0)
