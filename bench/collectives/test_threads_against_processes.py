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
    first = {"name": "all_reduce, sum, 64 B" + ending, **(failed if wrong else measured)}
    second = {"name": "all_gather, 64 B" + ending, **measured}
    json.dump({"context": {"date": "today"}, "benchmarks": [first, second]}, file)
if wrong or "PROBLEM" == "exit code":
    sys.exit(1)
"""
MPIEXEC = """#!/bin/sh
shift 2
exec "$@"
"""


class Arithmetic(unittest.TestCase):
    def test_percentiles_are_those_of_the_programs(self):
        self.assertEqual(driver.spread([5, 1, 4, 2, 3]), [3, 1, 5])
        self.assertEqual(driver.spread(range(21)), [10, 2, 18])
        self.assertEqual(driver.spread([7]), [7, 7, 7])

    def test_bandwidths_are_bytes_of_the_median_call(self):
        entry = driver.compared("x", {"processes": [4, 6, 8], "threads": [2, 2, 3]},
                                {"bytes": 8e9, "least bytes": 12e9})
        self.assertEqual(entry["threads: algorithm GB/s"], 4)
        self.assertEqual(entry["threads: bus GB/s"], 6)
        self.assertAlmostEqual(entry["processes: algorithm GB/s"], 8 / 6)
        self.assertEqual(entry["processes: bus GB/s"], 2)
        self.assertEqual(entry["real_time"], 2e6)

    def test_ratios_are_of_the_same_round(self):
        # Medians alone would say 4 / 2.
        entry = driver.compared("x", {"processes": [1, 4, 20], "threads": [1, 4, 2]}, {})
        self.assertEqual(entry["processes: ours over it"], 1)
        self.assertEqual(entry["processes: ours over it, 90 %"], 10)
        self.assertNotIn("threads: ours over it", entry)
        self.assertNotIn("threads: bus GB/s", entry)  # a barrier moves nothing


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        self.out = self.build / "out.json"
        (self.build / "bench").mkdir()
        self.has_mpi(True)
        self.program("threads")
        self.program("processes")

    def program(self, which, problem=""):
        text = FAKE.replace("TURNS", str(self.build / "turns")).replace("WHICH", which)
        self.executable(f"bench/bench_collectives_{which}", text.replace("PROBLEM", problem))

    def executable(self, name, text):
        (self.build / name).write_text(text)
        (self.build / name).chmod(0o755)

    def has_mpi(self, has):
        self.executable("launcher", MPIEXEC)
        launcher = self.build / ("launcher" if has else "no_launcher")
        (self.build / "CMakeCache.txt").write_text(f"MPIEXEC_EXECUTABLE:FILEPATH={launcher}\n")

    def run_driver(self, *words):
        """Exit status, output and complaints."""
        output, complaints = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
            try:
                status = driver.main(["--build", str(self.build), "--out", str(self.out), *words])
            except SystemExit as end:
                status = end.code
        return status, output.getvalue(), complaints.getvalue()

    def entries(self):
        return {entry["name"]: entry for entry in json.loads(self.out.read_text())["benchmarks"]}

    def test_programs_take_turns_and_are_compared(self):
        status, output, _ = self.run_driver("--rounds", "3")
        self.assertEqual(status, 0)
        turns = (self.build / "turns").read_text().split()
        self.assertEqual(turns, ["threads", "processes", "processes", "threads", "threads",
                                 "processes"])
        both = self.entries()["all_reduce, sum, 64 B"]
        self.assertEqual(both["label"], "processes | threads")
        self.assertEqual(both["processes: ours over it"], 4)
        self.assertEqual(both["threads: bus GB/s"], 6)
        by_hand = self.entries()["all_reduce, sum, 64 B, on processes"]
        self.assertEqual(by_hand["label"], "MPI by hand | processes")
        self.assertEqual(by_hand["MPI by hand: ours over it"], 0.5)
        self.assertIn("4.00 [4.00 4.00]", output)

    def test_quick_is_one_round(self):
        self.assertEqual(self.run_driver("--quick")[0], 0)
        self.assertEqual((self.build / "turns").read_text().split(), ["threads", "processes"])

    def test_threads_alone_without_mpi(self):
        self.has_mpi(False)
        status, _, complaints = self.run_driver("--rounds", "1")
        self.assertEqual(status, 0)
        self.assertIn("no_launcher is not there", complaints)
        self.assertEqual(self.entries()["all_reduce, sum, 64 B"]["label"], "threads")

    def test_threads_alone_where_the_build_left_processes_out(self):
        (self.build / "bench/bench_collectives_processes").unlink()
        (self.build / "skipped.txt").write_text(
            "bench_collectives_processes: not installed: libopenmpi-dev\n")
        status, _, complaints = self.run_driver("--rounds", "1")
        self.assertEqual(status, 0)
        self.assertIn("left out of the build", complaints)

    def test_says_how_to_build_what_is_missing(self):
        (self.build / "bench/bench_collectives_processes").unlink()
        status, _, complaints = self.run_driver("--rounds", "1")
        self.assertEqual(status, 2)
        self.assertIn("--target bench_collectives_processes", complaints)
        self.assertFalse(self.out.exists())

    def test_what_was_measured_survives_a_failure(self):
        self.program("processes", "second turn")
        status, output, complaints = self.run_driver("--rounds", "3")
        self.assertEqual(status, 1)
        self.assertIn("no more memory", complaints)
        self.assertIn("1 rounds", output)
        self.assertEqual(len(self.entries()), 4)

    def test_no_figure_for_a_wrong_result(self):
        for problem in ("wrong", "wrong in the second turn"):
            with self.subTest(problem):
                self.setUp()
                self.program("threads", problem)
                status, output, complaints = self.run_driver("--rounds", "3")
                self.assertEqual(status, 1)
                why = "bench_collectives_threads: not the result"
                self.assertIn(f"all_reduce, sum, 64 B: {why}", complaints)
                entries = self.entries()
                wrong = entries.pop("all_reduce, sum, 64 B")
                self.assertEqual((wrong["error_occurred"], wrong["error_message"]), (True, why))
                self.assertFalse([key for key in wrong if "seconds" in key])
                self.assertEqual(list(entries), ["all_reduce, sum, 64 B, on processes",
                                                 "all_gather, 64 B",
                                                 "all_gather, 64 B, on processes"])
                self.assertEqual(entries["all_gather, 64 B"]["processes: ours over it"], 4)
                self.assertIn("3 rounds", output)

    def test_what_mpi_was_compared_with_has_no_figure_if_it_is_wrong(self):
        self.program("processes", "wrong")
        self.assertEqual(self.run_driver("--rounds", "1")[0], 1)
        self.assertTrue(self.entries()["all_reduce, sum, 64 B"]["error_occurred"])
        self.assertNotIn("all_reduce, sum, 64 B, on processes", self.entries())

    def test_a_program_that_ends_badly_without_a_reason_has_measured_nothing(self):
        self.program("processes", "exit code")
        status, output, complaints = self.run_driver("--rounds", "1")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("exit code 1", complaints)
        self.assertFalse(self.out.exists())

    def test_refuses_bad_arguments_before_it_measures(self):
        for words, complaint in ((["--rounds", "0"], "below 1"), (["--ranks", "x"], "invalid"),
                                 (["--filter", "("], "no regular expression"),
                                 (["--out", "/no/such/folder/x.json"], "cannot be written")):
            status, _, complaints = self.run_driver(*words)
            self.assertEqual(status, 2)
            self.assertIn(complaint, complaints)
        self.assertFalse((self.build / "turns").exists())


if __name__ == "__main__":
    unittest.main()
