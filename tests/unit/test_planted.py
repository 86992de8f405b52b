"""What each planted defect of tests/tools/mutate.py replaces is there exactly once."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import mutate  # noqa: E402

rotten = [name for name, file, _, old, _ in mutate.parse() if (mutate.ROOT / file).read_text().count(old) != 1]
assert not rotten, f"planted defects that no longer apply: {', '.join(rotten)}"
