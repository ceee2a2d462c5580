#!/usr/bin/env python3
"""Prints a header and all headers of ours that it includes as one.

usage: single_header.py [HEADER]

HEADER is a path below include, shardwise/shardwise.hpp if it is left out. Each header of ours is
there once, where it is first included, and each header of the system is included once.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "include"
INCLUDE = re.compile(r'#include ([<"])(.+)[>"]')
DEFINITIONS = re.compile("^#(ifdef|endif  //) SHARDWISE_INLINE\n", re.MULTILINE)  # one header has them all
CONDITION = re.compile(r" *# *(if|endif)")
PREAMBLE = """\
// shardwise {version} in one header: a header-only C++20 library of tensor-parallel layers.
// SPDX-License-Identifier: Apache-2.0
// Made by cmake/single_header.py from {name}; do not edit.
#pragma once
"""


def lines_of(name, seen):
    """Yields the lines of the header `name` and, in their places, of those not in `seen`."""
    depth = 0
    text = DEFINITIONS.sub("", (ROOT / name).read_text())
    for line in text.splitlines():
        condition, include = CONDITION.match(line), INCLUDE.match(line)
        if condition:
            depth += 1 if condition[1] == "if" else -1
        if include and depth > 0:
            sys.exit(f"{name}: {line} is under a condition, and would be left out elsewhere")
        if line == "#pragma once" or (include and include[2] in seen):
            continue
        if include:
            seen.add(include[2])
        if include and include[1] == '"':
            yield from lines_of(include[2], seen)
        else:
            yield line


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "shardwise/shardwise.hpp"
    version = re.search(r'SHARDWISE_VERSION "(.*)"', (ROOT / "shardwise/version.hpp").read_text())
    sys.stdout.write(PREAMBLE.format(version=version[1], name=f"include/{name}"))
    for line in lines_of(name, {name}):
        print(line)


if __name__ == "__main__":
    main()
