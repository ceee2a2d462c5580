#!/usr/bin/env python3
"""Writes a map by which clang makes a module of each of our headers, and so compiles each as if alone.

usage: header_modules.py FILE STANDARD HEADER... -- FOLDER...

The headers are read once, in one call of the compiler, but each sees only what it includes. STANDARD is
the folder of libc++. Its own map has a module for each file; here its files are parts of one, which the
compiler makes in a tenth of the time. FOLDERs have the headers of other libraries. Those make one module,
but for the C library's, which libc++ includes too.
"""

import re
import sys
from pathlib import Path

C_LIBRARY = {"dlfcn.h", "fcntl.h", "signal.h", "sys/stat.h", "unistd.h"}


def standard_modules(folder):
    text = (folder / "module.modulemap").read_text()
    for line in re.sub(r"^module (\w+)\.(\w+)", r"module \1_\2", text, flags=re.M).splitlines():
        header = re.search(r'header "([^"]+)"', line)
        if header and (header[1] == "__std_clang_module" or not (folder / header[1]).exists()):
            continue  # what nobody may include
        yield re.sub(r"^(module \w+)\s*\[system\]", r"\1", line).replace('header "', f'header "{folder}/')


def headers_of_others(ours, standard, folders):
    names = {name for header in ours for name in re.findall(r"^#include <(.+)>", header.read_text(), re.M)}
    for name in sorted(names - C_LIBRARY):
        if not (standard / name).exists():
            yield next(folder / name for folder in folders if (folder / name).exists())


def main(file, standard, *arguments):
    split = arguments.index("--")
    ours = [Path(header) for header in arguments[:split]]
    folders = [Path(folder) for folder in arguments[split + 1:]]
    standard = Path(standard)
    modules = {
        "standard [system]": standard_modules(standard),
        "others [system]": [*(f'header "{one}"' for one in headers_of_others(ours, standard, folders)), "export *"],
        "shardwise": (f'module m{number} {{ header "{one}" export * }}' for number, one in enumerate(ours)),
    }
    Path(file).write_text("\n".join(f"module {name} {{\n" + "\n".join(lines) + "\n}" for name, lines in modules.items()))


main(*sys.argv[1:])
