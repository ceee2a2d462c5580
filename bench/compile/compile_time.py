#!/usr/bin/env python3
"""What including and using the library costs a compiler at -O2.

usage: compile_time.py [--rounds N] [--out FILE] [--quick] [COMPILER...]

Compiles the standard headers that the umbrella comes to include, the umbrella, and programs that train
a model of 2, 8, 32 and 128 linear layers of different types; in every round each once, in the reverse
order every second time. Without COMPILER these are g++ and clang++, or the one that is installed.
Prints of each program the CPU seconds as median [10 %, 90 %] of the rounds, how many times as fast it
is compiled as the one before it and how much longer that takes, the most memory, and the sizes of the
code and of the object file.

FILE is JSON as Google Benchmark writes it, anew after each program: what stops the script loses the
figures of none that was compiled.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple

from model_program import UMBRELLA, model_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
import report  # noqa: E402

STANDARD = "standard headers"
LAYERS = (2, 8, 32, 128)
IT, BEFORE = "it", "the one before"  # what is compared, in the file

# Of one run: CPU seconds, the most memory in MB, kB of code and of the whole object file.
Compiled = namedtuple("Compiled", "seconds memory code file")


class Refused(Exception):
    """A compiler did not compile a program; the text says how it ended."""


def programs_of(layers):
    """{name: (text, or None for what each compiler's own standard headers are; linear layers)}."""
    models = {f"model of {count} linear layers": (model_program(count), count) for count in layers}
    return {STANDARD: (None, 0), "umbrella headers": (UMBRELLA, 0), **models}


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


def compile_once(compiler, text, folder):
    """Compiles the program, whose text is `text`."""
    source, out = folder / "program.cpp", folder / "program.o"
    source.write_text(text if text is not None else standard_headers(compiler, folder))
    child = subprocess.Popen(
        [compiler, "-std=c++20", "-O2", f"-I{ROOT}/include", "-c", source, "-o", out])
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
    entry = report.compared(name, seconds)
    entry[f"{IT}: MB of memory"] = max(run.memory for run in runs)
    entry[f"{IT}: kB of code"] = runs[-1].code
    entry[f"{IT}: kB of object file"] = runs[-1].file
    if before:
        more = [own - its for its, own in zip(seconds[BEFORE], seconds[IT])]
        median = report.spread(more)[0]
        entry[f"{IT}: s more"] = median
        if before[1] > 0:
            entry[f"{IT}: s a further layer"] = median / (layers - before[1])
    return entry


def entries_of(compilers, programs, measured, wrong):
    """All comparisons of what was measured so far."""
    entries = []
    for compiler in compilers:
        before = None
        for what, (_, layers) in programs.items():
            name, key = f"{pathlib.Path(compiler).name}/{what}", (compiler, what)
            if key in wrong:
                entries.append(report.failed(name, wrong[key]))
            elif key in measured:
                entries.append(entry_of(name, measured[key], layers, before))
                before = measured[key], layers
    return entries


def table(entries):
    """For people."""
    def in_words(entry, what, form):
        return form % tuple(entry[what + ending] for ending in ("", ", 10 %", ", 90 %"))

    lines = []
    for entry in entries:
        if "error_message" in entry:
            lines.append(f"{entry['name']:<34} FAILED: {entry['error_message']}")
            continue
        lines.append(f"{entry['name']:<34}"
                     + in_words(entry, f"{IT}: seconds", "%6.2f s [%6.2f, %6.2f]")
                     + "".join(f"{entry[f'{IT}: {of}']:8.0f} {of}"
                               for of in ("MB of memory", "kB of code", "kB of object file")))
        if f"{IT}: s more" in entry:
            times = in_words(entry, f"{BEFORE}: ours over it", "%.2f [%.2f, %.2f]")
            lines.append(f"    {entry[f'{IT}: s more']:.2f} s more than {BEFORE}, {times} times as fast")
        if f"{IT}: s a further layer" in entry:
            lines[-1] += f"; {entry[f'{IT}: s a further layer']:.3f} s a further layer"
    return "\n".join(lines)


def arguments_of(words):
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0],
                                     description=__doc__.partition("\n")[0])
    parser.add_argument("compilers", nargs="*", metavar="COMPILER")
    parser.add_argument("--rounds", type=report.at_least_one, metavar="N", help="[3, with --quick 1]")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="also write JSON")
    parser.add_argument("--quick", action="store_true",
                        help="for a look in passing: one round, and only the model of 2 layers")
    arguments = parser.parse_args(words)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def compilers_of(named):
    """Those to measure. Ends with 2 where a compiler that was named, or every one, is missing."""
    missing = [compiler for compiler in named or ("g++", "clang++") if not shutil.which(compiler)]
    for compiler in missing:
        print(f"compile_time.py: {compiler} is not there" + (
            "" if named else f" (Debian's {compiler.replace('clang++', 'clang')} has it)"), file=sys.stderr)
    if named and missing or len(missing) == 2:
        sys.exit(2)
    if missing:
        print("compile_time.py: going on without", file=sys.stderr)
    return [compiler for compiler in named or ("g++", "clang++") if compiler not in missing]


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
                run = compile_once(key[0], programs[key[1]][0], folder)
                measured.setdefault(key, []).append(run)
            except Refused as problem:
                wrong[key] = str(problem)
            done(measured, wrong)


def main(words=None):
    arguments = arguments_of(words)
    compilers = compilers_of(arguments.compilers)
    programs = programs_of(LAYERS[:1] if arguments.quick else LAYERS)
    if arguments.out:
        report.claim(arguments.out, __file__)
    context = report.context_of(__file__, arguments.rounds)
    context["options"] = "-std=c++20 -O2"
    for compiler in compilers:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        context[compiler] = said.partition("\n")[0]
    entries = []

    def done(measured, wrong):
        entries[:] = entries_of(compilers, programs, measured, wrong)
        if arguments.out:
            report.write(arguments.out, context, entries)

    status = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(compilers, programs, arguments.rounds, pathlib.Path(folder), done)
        except KeyboardInterrupt:
            print("compile_time.py: stopped", file=sys.stderr)
            status = 1
    if arguments.out:
        report.leave(arguments.out)
    for compiler in compilers:
        print(f"{compiler}: {context[compiler]}, -O2")
    print(table(entries))
    return 1 if any("error_message" in entry for entry in entries) else status


if __name__ == "__main__":
    sys.exit(main())
