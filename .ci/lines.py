#!/usr/bin/env python3
"""Keeps the lines of each folder of include, tests and bench from growing unseen.

usage: lines.py [--update]

Prints the lines of the three, and fails for a folder with more than lines.json says. Numbers may fall freely;
--update writes today's. One that rises is written in a commit of its own, which says what pays for it. The values
of witnesses are data, and are not counted.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / ".ci/lines.json"
DATA = "tests/witness/values/"


def lines_of_folders():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "include", "tests",
                             "bench"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        return None
    lines = Counter()
    for name in listed.stdout.split("\0")[:-1]:
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if name.startswith(DATA) or b"\0" in content:
            continue
        folders = Path(name).parts[:-1]
        lines["/".join(folders[:3 if folders[0] == "include" else 2])] += content.count(b"\n")
    return lines


def main():
    lines = lines_of_folders()
    if lines is None:
        print("lines: not counted, since this is no clone, and nothing tells which files are the project's")
        return 0
    if sys.argv[1:] == ["--update"]:
        NUMBERS.write_text(json.dumps(lines, indent=2, sort_keys=True) + "\n")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    allowed = json.loads(NUMBERS.read_text())
    over = {folder: count for folder, count in lines.items() if count > allowed.get(folder, 0)}
    for folder, count in sorted(over.items()):
        print(f"{folder}: {count} lines, and .ci/lines.json allows {allowed.get(folder, 0)}. Make it shorter, or say in a "
              "commit of its own what pays for them: .ci/lines.py --update")
    for top in ("include", "tests", "bench"):
        print(f"lines of {top}: {sum(count for folder, count in lines.items() if folder.split('/')[0] == top)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
