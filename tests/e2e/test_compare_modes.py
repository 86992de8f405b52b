"""scripts/compare_modes.sh trains in every mode and writes table and picture."""

import csv
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "compare_modes.sh")


def main():
    env = {**os.environ, "DTRAIN": os.path.abspath(sys.argv[1]), "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryDirectory() as work:
        command = [SCRIPT, "--out", work, "--np", "2", "--steps", "16", "--", "--set", "data.synthetic_val=32"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(os.path.join(work, "modes.csv"), newline="", encoding="utf-8") as file:
            rows = {row["mode"]: row for row in csv.DictReader(file)}
        share = {mode: float(row["sent_bytes_per_step"]) / float(rows["allreduce"]["sent_bytes_per_step"]) for mode, row in rows.items()}
        assert share["allreduce-bf16"] == share["allreduce-fp16"] == 0.5, share
        assert share["local-4"] == 1 / 4 and share["local-16"] == 1 / 16, share
        assert rows["central"]["top1"] == rows["allreduce"]["top1"], rows
        assert sum(map(int, rows["async"]["staleness_histogram"].split())) == 16, rows["async"]
        assert "local-4 " in done.stdout and "0.250" in done.stdout, done.stdout
        lines = xml.etree.ElementTree.parse(os.path.join(work, "modes.svg")).getroot().iter("{http://www.w3.org/2000/svg}polyline")
        assert len(list(lines)) == 2 * len(rows)


if __name__ == "__main__":
    main()
