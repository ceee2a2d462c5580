#!/usr/bin/env python3
"""What including and using the library costs a compiler at -O2.

usage: compile_time.py [--rounds N] [--out FILE] [--quick] [COMPILER...]

Compiles the standard headers that the umbrella comes to include, the umbrella, and programs that train
a model of 2, 8, 32 and 128 linear layers of different types, that of 2 also with shardwise::compiled and
with the umbrella precompiled, and a Llama; in every round each once, in the reverse order every second time. Without COMPILER these are g++ and clang++, or the one that is
installed. Prints of each program the CPU seconds as median [10 %, 90 %] of the rounds, how many times as
fast it is compiled as the one before it, or the Llama and other forms as the model of 2 layers, and how much
longer that takes, the most memory, and the sizes of the code and of the object file.

FILE is JSON as Google Benchmark writes it, anew after each program: what stops the script loses the
figures of none that was compiled.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple

from model_program import LLAMA, UMBRELLA, model_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
import driver  # noqa: E402

STANDARD = "standard headers"
COMPILED, PRECOMPILED = ", compiled", ", compiled and precompiled"  # what the names of such forms end with
LAYERS = (2, 8, 32, 128)
IT, BEFORE = "it", "the one before"  # what is compared, in the file

# Of one run: CPU seconds, the most memory in MB, kB of code and of the whole object file.
Compiled = namedtuple("Compiled", "seconds memory code file")


class Refused(Exception):
    """A compiler did not compile a program; the text says how it ended."""


def programs_of(layers):
    """{name: (text, or None for what each compiler's own standard headers are; linear layers, or None
    for a model of others or another form)}."""
    first, *more = ((f"model of {count} linear layers", (model_program(count), count))
                    for count in layers)
    forms = {first[0] + form: (first[1][0], None) for form in (COMPILED, PRECOMPILED)}
    return {STANDARD: (None, 0), "umbrella headers": (UMBRELLA, 0), **dict([first]), **forms,
            "Llama": (LLAMA, None), **dict(more)}


def standard_headers(compiler, folder):
    """A program that includes what the umbrella comes to include of the standard library."""
    source = folder / "umbrella.cpp"
    source.write_text(UMBRELLA)
    done = subprocess.run([compiler, "-std=c++20", f"-I{ROOT}/include", "-MM", source],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"exit code {done.returncode} of {compiler} -MM: {done.stderr.strip()[-300:]}")
    headers = re.findall(r"\S+/shardwise/\S+\.hpp", done.stdout)
    included = {line for header in headers
                for line in re.findall(r"^#include <[a-z_]+>", pathlib.Path(header).read_text(), re.M)}
    return "\n".join(sorted(included)) + "\nint main() {}\n"


def code_bytes(out):
    """Bytes of code in an object file, as binutils' `size` says."""
    try:
        said = subprocess.run(["size", out], check=True, capture_output=True, text=True).stdout
        return int(said.splitlines()[1].split()[0])
    except (OSError, subprocess.CalledProcessError) as problem:
        raise Refused(f"`size` of binutils cannot tell the size of the code: {problem}") from None


def options_of(compiler, what, folder):
    """What the program of this name is compiled with."""
    options = ["-std=c++20", "-O2", f"-I{ROOT}/include"]
    if what.endswith((COMPILED, PRECOMPILED)):
        options.append("-DSHARDWISE_COMPILED")
    if what.endswith(PRECOMPILED):
        header = folder / f"{str(compiler).replace('/', '_')}.hpp"
        if not header.exists():
            header.write_text('#include "shardwise/shardwise.hpp"\n')
            subprocess.run([compiler, *options, "-x", "c++-header", "-c", header, "-o", f"{header}.gch"], check=True)
        options += ["-include", header, "-Winvalid-pch", "-Werror=invalid-pch"]
    return options


def compile_once(compiler, what, text, folder):
    """Compiles the program of this name, whose text is `text`."""
    source, out = folder / "program.cpp", folder / "program.o"
    source.write_text(text if text is not None else standard_headers(compiler, folder))
    child = subprocess.Popen([compiler, *options_of(compiler, what, folder), "-c", source, "-o", out])
    try:
        _, status, used = os.wait4(child.pid, 0)
    except KeyboardInterrupt:
        child.kill()
        raise
    if status != 0:
        raise Refused(f"{compiler} ended with exit code {os.waitstatus_to_exitcode(status)}")
    return Compiled(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000, code_bytes(out) / 1000,
                    out.stat().st_size / 1000)


def entry_of(name, runs, layers, before):
    """One program's comparison with the program before it, which is (runs, layers) if there is one."""
    rounds = list(zip(before[0], runs) if before else zip(runs))
    seconds = {which: [one[place].seconds for one in rounds]
               for place, which in enumerate([BEFORE, IT] if before else [IT])}
    also = {"MB of memory": max(run.memory for run in runs), "kB of code": runs[-1].code,
            "kB of object file": runs[-1].file}
    if before:
        also["s more"] = driver.spread(own - its for its, own in zip(seconds[BEFORE], seconds[IT]))[0]
        if before[1] > 0 and layers:
            also["s a further layer"] = also["s more"] / (layers - before[1])
    return driver.compared(name, seconds, {IT: also})


def entries_of(compilers, programs, measured, wrong):
    """All comparisons of what was measured so far."""
    entries = []
    for compiler in compilers:
        before = None
        for what, (_, layers) in programs.items():
            name, key = f"{pathlib.Path(compiler).name}/{what}", (compiler, what)
            if key in wrong:
                entries.append(driver.failed(name, wrong[key]))
            elif key in measured:
                entries.append(entry_of(name, measured[key], layers, before))
                if layers is not None:
                    before = measured[key], layers
    return entries


def compilers_of(named):
    """Those to measure. Ends with 2 where a compiler that was named, or every one, is missing."""
    there = [compiler for compiler in named or ("g++", "clang++") if shutil.which(compiler)]
    for compiler in set(named or ("g++", "clang++")) - set(there):
        driver.complain(f"{compiler} is not there")
    if not there or named and len(there) < len(named):
        sys.exit(2)
    return there


def measure(compilers, programs, rounds, folder, done):
    """Compiles everything so often. Calls done(measured, wrong) after each program: the runs of each
    (compiler, program), and why one was refused, which is not tried again."""
    measured, wrong = {}, {}
    turns = [(compiler, what) for compiler in compilers for what in programs]
    for number in range(rounds):
        for turn, key in enumerate(turns if number % 2 == 0 else reversed(turns)):
            if key in wrong:
                continue
            print(f"[{number * len(turns) + turn + 1} of {rounds * len(turns)}] {key[0]}, {key[1]}",
                  file=sys.stderr, flush=True)
            try:
                run = compile_once(*key, programs[key[1]][0], folder)
                measured.setdefault(key, []).append(run)
            except Refused as problem:
                wrong[key] = str(problem)
            done(measured, wrong)


def main(words=None):
    parser = driver.parser_of(__doc__, 3)
    parser.add_argument("compilers", nargs="*", metavar="COMPILER")
    parser.add_argument("--quick", action="store_true",
                        help="for a look in passing: one round, and the largest models left out")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds = 1
    compilers = compilers_of(arguments.compilers)
    programs = programs_of(LAYERS[:1] if arguments.quick else LAYERS)
    report = driver.Report(arguments.out, arguments.rounds)
    report.context["options"] = "-std=c++20 -O2"
    for compiler in compilers:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        report.context[compiler] = said.partition("\n")[0]
    stopped = False
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(compilers, programs, arguments.rounds, pathlib.Path(folder),
                    lambda *so_far: report.put(entries_of(compilers, programs, *so_far)))
        except KeyboardInterrupt:
            driver.complain("stopped")
            stopped = True
    report.show(report.entries)
    return report.end() or stopped


if __name__ == "__main__":
    sys.exit(main())
