#!/usr/bin/env python3
"""Lists the public names that nothing tells a user of: those in no page and in no example.

usage: public_names.py [ROOT]

A public name is a type, function, concept, variable or alias declared directly in the namespace
shardwise, or in one below it that is not called detail; members, friends, operators and enumerators
are none. Doxygen finds them, with docs/Doxyfile. Each must stand as a whole word in README.md, in a
page below docs or include, or in a file below examples; one that has no place there belongs in
`detail`. Prints a line for each that does not, and how many there are.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

MEMBERS = {"function", "variable", "typedef", "enumeration"}  # of a namespace, as the tags say
PAGES = ("README.md", "docs/**/*.md", "include/**/*.md", "examples/**/*.?pp")


def tags_of(root):
    """What doxygen says of the headers below ROOT."""
    with tempfile.TemporaryDirectory() as folder:
        options = (
            "@INCLUDE = docs/Doxyfile",
            f"OUTPUT_DIRECTORY = {folder}",
            f"GENERATE_TAGFILE = {folder}/tags.xml",
            "GENERATE_HTML = NO",
        )
        subprocess.run(["doxygen", "-"], input="\n".join(options), text=True, cwd=root, check=True)
        return xml.parse(f"{folder}/tags.xml").getroot()


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    names = public_names(tags_of(root))
    told = {
        word
        for pages in PAGES
        for page in root.glob(pages)
        for word in re.findall(r"\w+", page.read_text())
    }
    untold = [(header, name) for name, header in names.items() if name not in told]
    for header, name in sorted(untold):
        print(f"{header}: {name} is in no page and no example")
    print(f"public names: {len(names)}, {len(untold)} of them in no page and no example")
    return 1 if untold or not names else 0


if __name__ == "__main__":
    sys.exit(main())
