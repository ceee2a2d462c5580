#!/usr/bin/env python3
"""Lists the public names that nothing tells a user of: those in no page and in no example.

usage: public_names.py

A public name is a type, function, concept, variable or alias declared directly in the namespace
shardwise, or in one below it that is not called detail; members, friends, operators and enumerators
are none. `./dev docs` finds them, and leaves them in build/docs/names.xml. Each must stand as a whole
word in README.md, in a page below docs or include, or in a file below examples; one that has no place
there belongs in `detail`. Prints a line for each that does not, and how many there are.
"""

import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

MEMBERS = {"function", "variable", "typedef", "enumeration"}  # of a namespace, as the tags say
ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/**/*.md", "include/**/*.md", "examples/**/*.?pp")


def public_names(tags):
    """Each name with the header that declares it first."""
    namespaces = {tag.findtext("name") for tag in tags if tag.get("kind") == "namespace"}
    names = {}
    for file in tags:
        if file.get("kind") != "file":
            continue
        header = "include/" + (file.findtext("path") + file.findtext("name")).rpartition("include/")[2]
        for kind in ("class", "concept"):  # a full name, maybe of a specialisation
            for tag in file.iter(kind):
                scope, _, name = tag.text.split("<")[0].rstrip().rpartition("::")
                if scope in namespaces:
                    names.setdefault(name, header)
        for tag in file.iter("member"):
            if tag.get("kind") in MEMBERS and not tag.findtext("name").startswith("operator"):
                names.setdefault(tag.findtext("name"), header)
    return names


def main():
    names = public_names(xml.parse(ROOT / "build/docs/names.xml").getroot())
    told = {
        word
        for pages in PAGES
        for page in ROOT.glob(pages)
        for word in re.findall(r"\w+", page.read_text())
    }
    untold = [(header, name) for name, header in names.items() if name not in told]
    for header, name in sorted(untold):
        print(f"{header}: {name} is in no page and no example")
    print(f"public names: {len(names)}, {len(untold)} of them in no page and no example")
    return 1 if untold or not names else 0


if __name__ == "__main__":
    sys.exit(main())
