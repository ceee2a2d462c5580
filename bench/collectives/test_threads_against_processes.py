#!/usr/bin/env python3
"""The driver with programs that are a few lines of Python: no MPI, nothing built."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import threads_against_processes as driver

# Writes what a program writes: two comparisons, in which a call takes 2 s on threads, 4 s by MPI and
# 8 s on processes. PROBLEM is what goes wrong, WHICH the program; each turn leaves a line in TURNS.
FAKE = """#!/usr/bin/env python3
import json, sys
given = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
with open("TURNS", "a+") as turns:
    turns.write("WHICH\\n")
    turns.seek(0)
    turn = turns.read().split().count("WHICH")
if "PROBLEM" == "second turn" and turn == 2:
    sys.exit("no more memory")
seconds = {"threads": {"threads": 2.0}, "processes": {"MPI by hand": 4.0, "processes": 8.0}}["WHICH"]
measured = {"label": " | ".join(seconds)}
for name, value in seconds.items():
    measured.update({f"{name}: seconds": value, f"{name}: bytes": 8e9, f"{name}: least bytes": 12e9})
wrong = "PROBLEM" == "wrong" or "PROBLEM" == "wrong in the second turn" and turn == 2
failed = {"error_occurred": True, "error_message": "not the result"}
ending = "/iterations:1/manual_time"
with open(given["benchmark_out"], "w") as file:
    first = {"name": "all_reduce, 64 B" + ending, **(failed if wrong else measured)}
    second = {"name": "all_gather, 64 B" + ending, **measured}
    json.dump({"context": {"date": "today"}, "benchmarks": [first, second]}, file)
if wrong:
    sys.exit(1)
"""
MPIEXEC = """#!/bin/sh
shift 2
exec "$@"
"""


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        (self.build / "bench").mkdir()
        self.out = self.build / "out.json"
        (self.build / "CMakeCache.txt").write_text(
            f"MPIEXEC_EXECUTABLE:FILEPATH={self.executable('mpiexec', MPIEXEC)}\n")
        for which in ("threads", "processes"):
            self.program(which)

    def executable(self, name, text):
        (self.build / name).write_text(text)
        (self.build / name).chmod(0o755)
        return self.build / name

    def program(self, which, problem="none"):
        self.executable(f"bench/bench_collectives_{which}",
                        FAKE.replace("TURNS", str(self.build / "turns")).replace("WHICH", which)
                        .replace("PROBLEM", problem))

    def run_driver(self, *words):
        """Exit status, and all that was said."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = driver.main(["--build", str(self.build), "--out", str(self.out), *words])
            except SystemExit as end:
                status = end.code
        return status, said.getvalue()

    def entries(self):
        return {entry["name"]: entry for entry in json.loads(self.out.read_text())["benchmarks"]}

    def test_programs_take_turns_and_are_compared(self):
        status, said = self.run_driver("--rounds", "3")
        self.assertEqual(status, 0, said)
        turns = (self.build / "turns").read_text().split()
        self.assertEqual(turns, ["threads", "processes", "processes", "threads", "threads",
                                 "processes"])
        both = self.entries()["all_reduce, 64 B"]
        self.assertEqual(both["label"], "processes | threads")
        self.assertEqual(both["processes: ours over it"], 4)
        self.assertEqual(both["threads: algorithm GB/s"], 4)
        self.assertEqual(both["threads: bus GB/s"], 6)
        by_hand = self.entries()["all_reduce, 64 B, on processes"]
        self.assertEqual(by_hand["label"], "MPI by hand | processes")
        self.assertEqual(by_hand["MPI by hand: ours over it"], 0.5)
        self.assertIn("| all_reduce, 64 B | 2 [2, 2] s | 4 [4, 4] |", said)

    def test_what_was_measured_survives_a_failure(self):
        self.program("processes", "second turn")
        status, said = self.run_driver("--rounds", "3")
        self.assertEqual(status, 1)
        self.assertIn("no more memory\n1 whole rounds were measured", said)
        self.assertEqual(len(self.entries()), 4)

    def test_no_figure_for_a_wrong_result(self):
        self.program("threads", "wrong in the second turn")
        self.assertEqual(self.run_driver("--rounds", "3")[0], 1)
        entries = self.entries()
        self.assertEqual(entries.pop("all_reduce, 64 B")["error_message"],
                         "bench_collectives_threads: not the result")
        self.assertEqual(list(entries), ["all_reduce, 64 B, on processes", "all_gather, 64 B",
                                         "all_gather, 64 B, on processes"])
        self.program("threads")
        self.program("processes", "wrong")
        self.assertEqual(self.run_driver("--quick")[0], 1)
        self.assertNotIn("all_reduce, 64 B, on processes", self.entries())


if __name__ == "__main__":
    unittest.main()
