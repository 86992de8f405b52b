#!/usr/bin/env python3
"""Says which tests of `ctest --output-junit FILE` were skipped, and why. Fails in CI (a variable that such services
set) if there are any but those that need a GPU.

    scripts/skipped.py FILE
"""

import collections
import os
import re
import sys
import xml.etree.ElementTree


def skipped(path):
    """Pairs of a reason, which is the line of the output that says "skipped", and the test."""
    for test in xml.etree.ElementTree.parse(path).iter("testcase"):
        if test.find("skipped") is not None:
            line = re.search(r".*skipped.*", test.findtext("system-out") or "")
            reason = re.sub(r"^skipped: |: skipped(?=:|$)", "", line[0]) if line else "it does not say why"
            yield reason, test.get("name")


def main():
    tests, by_reason = list(skipped(sys.argv[1])), collections.defaultdict(list)
    others = [name for _, name in tests if not name.startswith("gpu/")]
    print(f"{len(tests)} tests skipped, {len(tests) - len(others)} of them for want of a GPU")
    for reason, name in tests:
        by_reason[reason].append(name if name in others else "gpu/*")
    for reason, names in by_reason.items():
        print(f"{len(names):5}  {' '.join(sorted(set(names)))}: {reason}")
    if others and os.environ.get("CI"):
        sys.exit(f"in CI these may not be skipped: {' '.join(others)}")


main()
