#!/usr/bin/env python3
"""compile_time.py with a compiler that is a few lines of shell."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compile_time
from compile_time import Compiled

# Refuses programs with the word REFUSES in them.
COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo 'fake 1.2'; exit ;;
  *-MM*) echo 'umbrella.o: ROOT/include/shardwise/core/error.hpp'; exit ;;
esac
while [ "$1" != -c ]; do shift; done
if grep -q 'REFUSES' "$2"; then exit 3; fi
printf 0123456789 >"$4"
"""
SIZE = "#!/bin/sh\necho 'text data bss'\necho '2000 1 2'\n"


class Arithmetic(unittest.TestCase):
    PROGRAMS = {"umbrella headers": ("", 0), "model of 2 linear layers": ("", 2), "Llama": ("", None),
                "model of 8 linear layers": ("", 8)}

    def entries(self, *seconds, wrong=()):
        measured = {("g++", what): [Compiled(one, 100 + one, 5, 6) for one in of]
                    for what, of in zip(self.PROGRAMS, seconds) if of}
        return compile_time.entries_of(["g++"], self.PROGRAMS, measured,
                                       {("g++", what): "no" for what in wrong})

    def test_each_is_compared_with_the_one_before_in_the_same_round(self):
        umbrella, two, llama, eight = self.entries([1, 2, 9], [2, 4, 9], [4, 8, 18], [5, 7, 9])
        self.assertEqual((umbrella["name"], umbrella["label"]), ("g++/umbrella headers", "it"))
        self.assertEqual(two["the one before: ours over it"], 0.5)
        self.assertEqual((two["it: s more"], two["it: MB of memory"]), (1, 109))
        self.assertNotIn("it: s a further layer", two)
        self.assertEqual((llama["the one before: ours over it"], llama["it: s more"]), (0.5, 4))
        self.assertNotIn("it: s a further layer", llama)
        self.assertEqual(eight["it: s a further layer"], 0.5)

    def test_what_was_refused_has_no_figures_and_the_next_one_another_to_compare_with(self):
        _, two, eight = self.entries([2], [], [], [6], wrong=["model of 2 linear layers"])
        self.assertEqual(two["error_message"], "no")
        self.assertEqual(eight["it: s more"], 4)
        self.assertNotIn("it: s a further layer", eight)


class Runs(unittest.TestCase):
    def run_script(self, refuses, *words):
        """Exit status, output, and what the file has, for a compiler that refuses such programs."""
        with tempfile.TemporaryDirectory() as folder:
            compiler = COMPILER.replace("ROOT", str(compile_time.ROOT)).replace("REFUSES", refuses)
            for name, text in (("g++", compiler), ("size", SIZE)):
                (Path(folder) / name).write_text(text)
                (Path(folder) / name).chmod(0o755)
            out, said = Path(folder) / "out.json", io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), \
                    mock.patch.dict(os.environ, PATH=f"{folder}:/bin:/usr/bin"):
                try:
                    status = compile_time.main(["--out", str(out), *words])
                except SystemExit as end:
                    status = end.code
            return status, said.getvalue(), out.exists() and json.loads(out.read_text())["benchmarks"]

    def test_all_programs(self):
        status, said, entries = self.run_script("nothing like this", "--rounds", "2", "g++")
        self.assertEqual((status, len(entries)), (0, 9))
        self.assertIn("[18 of 18] g++, standard headers", said)
        self.assertIn("| g++/model of 128 linear layers | ", said)

    def test_a_program_that_is_refused_is_told_and_the_others_are_measured(self):
        status, said, entries = self.run_script("sw::Model", "--quick", "g++")
        self.assertEqual((status, len(entries)), (1, 6))
        self.assertIn("g++ ended with exit code 3", entries[2]["error_message"])
        self.assertEqual(entries[1]["it: kB of code"], 2)


if __name__ == "__main__":
    unittest.main()
