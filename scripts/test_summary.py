#!/usr/bin/env python3
"""What `ctest --output-junit FILE` says of its tests: the slowest, the sum, and which were skipped and why. Fails in
CI (a variable that such services set) if any were skipped but those that need a GPU.

    scripts/test_summary.py FILE...
"""

import collections
import os
import re
import sys
import xml.etree.ElementTree

N_SLOWEST = 10


def reason(test):
    """The line of its output that says "skipped"."""
    line = re.search(r".*skipped.*", test.findtext("system-out") or "")
    return re.sub(r"^skipped: |: skipped(?=:|$)", "", line[0]) if line else "it does not say why"


def main():
    tests = []  # (seconds, folder, test)
    for path in sys.argv[1:]:
        folder = os.path.relpath(os.path.dirname(path) or ".")
        for test in xml.etree.ElementTree.parse(path).iter("testcase"):
            tests.append((float(test.get("time")), folder, test))
    print(f"{len(tests)} tests took {sum(seconds for seconds, *_ in tests):.0f} s, one after the other; the slowest:")
    for seconds, folder, test in sorted(tests, key=lambda row: -row[0])[:N_SLOWEST]:
        print(f"{seconds:7.1f} s  {folder}: {test.get('name')}")

    skipped = [test for *_, test in tests if test.find("skipped") is not None]
    others = [test.get("name") for test in skipped if not test.get("name").startswith("gpu/")]
    by_reason = collections.defaultdict(set)
    for test in skipped:
        by_reason[reason(test)].add(test.get("name") if test.get("name") in others else "gpu/*")
    print(f"{len(skipped)} tests skipped, {len(skipped) - len(others)} of them for want of a GPU")
    for why, names in by_reason.items():
        print(f"  {' '.join(sorted(names))}: {why}")
    if others and os.environ.get("CI"):
        sys.exit(f"in CI these may not be skipped: {' '.join(others)}")


main()
