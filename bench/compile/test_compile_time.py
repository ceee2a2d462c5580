#!/usr/bin/env python3
"""compile_time.py with compilers that are a few lines of shell."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compile_time
from compile_time import Compiled

sys.path.insert(0, str(compile_time.ROOT / "bench"))
import tables  # noqa: E402

# Leaves a line in TURNS for each program that it compiles; REFUSES is a word in those that it does not.
COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo 'fake 1.2'; echo 'more'; exit ;;
  *-MM*) echo 'umbrella.o: ROOT/include/shardwise/core/error.hpp /usr/include/c++/string'; exit ;;
esac
while [ "$1" != -c ]; do shift; done
if grep -q 'REFUSES' "$2"; then exit 3; fi
case $(cat "$2") in
  *shardwise.hpp*sw::Model*) echo "${0##*/} model" ;;
  *shardwise.hpp*) echo "${0##*/} umbrella" ;;
  *'#include <'*) echo "${0##*/} standard" ;;
esac >>TURNS
printf 0123456789 >"$4"
"""
SIZE = """#!/bin/sh
echo 'text data bss'
echo '2000 1 2'
"""


class Arithmetic(unittest.TestCase):
    PROGRAMS = {"standard headers": (None, 0), "umbrella headers": ("", 0),
                "model of 2 linear layers": ("", 2), "model of 8 linear layers": ("", 8)}

    def entries(self, *seconds, wrong=None):
        measured = {("/bin/g++", what): [Compiled(one, 100 + one, 5, 6) for one in of]
                    for what, of in zip(self.PROGRAMS, seconds) if of}
        return compile_time.entries_of(["/bin/g++"], self.PROGRAMS, measured,
                                       {("/bin/g++", what): why for what, why in (wrong or {}).items()})

    def test_each_is_compared_with_the_one_before(self):
        standard, umbrella, two, eight = self.entries([1, 2, 9], [2, 4, 9], [8, 8, 9], [11, 14, 9])
        self.assertEqual((standard["name"], standard["label"]), ("g++/standard headers", "it"))
        self.assertEqual(umbrella["label"], "the one before | it")
        self.assertEqual(umbrella["the one before: ours over it"], 0.5)  # of the same round
        self.assertEqual(umbrella["it: s more"], 1)
        self.assertEqual(umbrella["it: MB of memory"], 109)
        self.assertNotIn("it: s a further layer", two)
        self.assertEqual(eight["it: s a further layer"], 0.5)

    def test_a_round_that_was_cut_short_compares_whole_ones(self):
        standard, umbrella, *none = self.entries([1, 2], [3], [], [])
        self.assertEqual(standard["it: seconds, 90 %"], 2)
        self.assertEqual(umbrella["it: s more"], 2)
        self.assertEqual(none, [])

    def test_what_was_refused_has_no_figures_and_the_next_one_another_to_compare_with(self):
        _, _, two, eight = self.entries([1], [2], [], [6],
                                        wrong={"model of 2 linear layers": "no"})
        self.assertEqual((two["error_occurred"], two["error_message"]), (True, "no"))
        self.assertEqual(eight["it: s more"], 4)  # than the umbrella
        self.assertNotIn("it: s a further layer", eight)


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out.json"
        self.turns = self.folder / "turns"
        self.executable("size", SIZE)
        path = mock.patch.dict(os.environ, PATH=f"{self.folder}:/bin:/usr/bin")
        path.start()
        self.addCleanup(path.stop)

    def executable(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)
        return str(self.folder / name)

    def compiler(self, name, refuses="nothing like this"):
        text = COMPILER.replace("ROOT", str(compile_time.ROOT)).replace("TURNS", str(self.turns))
        return self.executable(name, text.replace("REFUSES", refuses))

    def run_script(self, *words):
        """Exit status, output and complaints."""
        output, complaints = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
            try:
                status = compile_time.main(["--out", str(self.out), *words])
            except SystemExit as end:
                status = end.code
        return status, output.getvalue(), complaints.getvalue()

    def written(self):
        return json.loads(self.out.read_text())

    def test_programs_take_turns(self):
        a, b = self.compiler("a"), self.compiler("b")
        status, output, complaints = self.run_script("--rounds", "2", a, b)
        self.assertEqual(status, 0)
        there = ["standard", "umbrella", "model", "model", "model", "model"]
        self.assertEqual(self.turns.read_text().splitlines(),
                         [f"a {what}" for what in there] + [f"b {what}" for what in there]
                         + [f"b {what}" for what in there[::-1]] + [f"a {what}" for what in there[::-1]])
        self.assertIn(f"[24 of 24] {a}, standard headers", complaints)
        self.assertIn("b/model of 128 linear layers", output)
        self.assertEqual(self.written()["context"][a], "fake 1.2")

    def test_tables_read_what_is_written(self):
        self.run_script("--quick", self.compiler("g++"))
        page = tables.page_of([self.out])
        self.assertIn("1 rounds", page)
        spread = r"\S+ \[\S+ \S+\]"
        self.assertRegex(page, r"\| comparison \| it takes \| speed over the one before \| MB of memory "
                               r"\| kB of code \| kB of object file \| s more \|\n\S+\n\|.*\n"
                               r"\| g\+\+/model of 2 linear layers \| " + spread + r" \S+ \| " + spread
                         + r" \| \S+ \| 2 \| 0.01 \| \S+ \|\n")
        self.assertNotIn("failed", page)

    def test_a_program_that_is_refused_is_in_the_file_and_the_others_are_measured(self):
        status, output, _ = self.run_script("--rounds", "2", self.compiler("g++", "sw::Model"))
        self.assertEqual(status, 1)
        self.assertRegex(output, "model of 8 linear layers *FAILED: ")
        entries = self.written()["benchmarks"]
        self.assertEqual(len(entries), 6)
        self.assertRegex(entries[3]["error_message"], "g\\+\\+ ended with exit code 3")
        self.assertEqual(entries[1]["it: kB of code"], 2)

    def test_what_was_compiled_survives_an_interruption(self):
        runs = iter([Compiled(1, 1, 1, 1), Compiled(2, 1, 1, 1)])

        def compile_once(*_):
            try:
                return next(runs)
            except StopIteration:
                raise KeyboardInterrupt from None
        with mock.patch("compile_time.compile_once", compile_once):
            status, output, complaints = self.run_script(self.compiler("g++"))
        self.assertEqual(status, 1)
        self.assertIn("compile_time.py: stopped", complaints)
        self.assertIn("umbrella headers", output)
        self.assertEqual(len(self.written()["benchmarks"]), 2)

    def only(self, *there):
        which = mock.patch("shutil.which", lambda name: name if name in there else None)
        which.start()
        self.addCleanup(which.stop)

    def test_goes_on_without_a_compiler_that_nobody_named(self):
        self.compiler("g++")
        self.only("g++")
        status, _, complaints = self.run_script("--quick")
        self.assertEqual(status, 0)
        self.assertIn("clang++ is not there (Debian's clang has it)", complaints)
        self.assertEqual(len(self.written()["benchmarks"]), 3)

    def test_refuses_bad_arguments_before_it_compiles(self):
        fake = self.compiler("g++")
        for words, complaint in ((["--rounds", "0"], "0 is below 1"), (["--rounds", "x"], "invalid"),
                                 (["/no/such/compiler", fake], "/no/such/compiler is not there\n"),
                                 (["--out", "/no/such/folder/x.json", fake], "cannot be written")):
            with self.subTest(words):
                status, _, complaints = self.run_script(*words)
                self.assertEqual(status, 2)
                self.assertIn(complaint, complaints)
        self.only()
        self.assertEqual(self.run_script()[0], 2)
        self.assertFalse(self.turns.exists() or self.out.exists())


if __name__ == "__main__":
    unittest.main()
