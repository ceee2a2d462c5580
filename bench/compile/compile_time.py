#!/usr/bin/env python3
"""What including and using the library costs a compiler at -O2: CPU seconds and memory, the least
of some runs, and the size of the code.

Usage: compile_time.py [COMPILER [RUNS]]; g++ and 3 unless told otherwise.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from model_program import UMBRELLA, model_program

ROOT = pathlib.Path(__file__).resolve().parents[2]


def standard_headers(compiler, folder):
    """A program that includes what the umbrella comes to include of the standard library."""
    source = folder / "umbrella.cpp"
    source.write_text(UMBRELLA)
    rule = subprocess.run(
        [compiler, "-std=c++20", f"-I{ROOT}/include", "-MM", source],
        check=True, capture_output=True, text=True).stdout
    headers = re.findall(r"\S+/shardwise/\S+\.hpp", rule)
    included = {line for header in headers
                for line in re.findall(r"^#include <[a-z_]+>", pathlib.Path(header).read_text(), re.M)}
    return "\n".join(sorted(included)) + "\nint main() {}\n"


def compile_once(compiler, source, out):
    """CPU seconds and MB at most."""
    child = subprocess.Popen(
        [compiler, "-std=c++20", "-O2", f"-I{ROOT}/include", "-c", source, "-o", out])
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"compile_time.py: {compiler} refused {source}")
    return used.ru_utime, used.ru_maxrss / 1000


def text_bytes(out):
    """Bytes of code in an object file."""
    return int(subprocess.run(["size", out], check=True, capture_output=True, text=True)
               .stdout.splitlines()[1].split()[0])


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "g++"
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    print(f"{version.stdout.splitlines()[0]}, -O2, the least of {runs}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = {"standard headers": standard_headers(compiler, folder),
                    "umbrella headers": UMBRELLA}
        for layers in (2, 8, 32, 128):
            programs[f"model of {layers} linear layers"] = model_program(layers)
        for what, program in programs.items():
            (folder / "program.cpp").write_text(program)
            measured = [compile_once(compiler, folder / "program.cpp", folder / "out.o")
                        for _ in range(runs)]
            print(f"{what:<28} {min(s for s, _ in measured):6.2f} s "
                  f"{min(m for _, m in measured):6.0f} MB "
                  f"{text_bytes(folder / 'out.o') / 1000:6.0f} kB of code", flush=True)


if __name__ == "__main__":
    main()
