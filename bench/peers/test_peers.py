#!/usr/bin/env python3
"""The driver with contenders that are a few lines of Python: no PyTorch, no MPI, nothing built."""

import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import peers
from contender import Contender, Failed, processes_of, take_turns

# Says what a contender says. Each call takes argv[1] ms of sleep; argv[2] is what goes wrong.
FAKE = """
import subprocess, sys, time
sleep, wrong = float(sys.argv[1]) / 1000, sys.argv[2]
if wrong == "result":
    sys.exit("y is wrong: |got - exact| / |exact| is 0.5")
if wrong == "silent":
    time.sleep(60)
if wrong == "leaves_a_child":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("version fake 1.2 (of today)")
print("difference y of evaluate 0.25")
print("ready", flush=True)
turns = 0
while wrong == "spins" and not __import__("select").select([sys.stdin], [], [], 0)[0]:
    pass
for line in sys.stdin:
    mode, calls = line.split()
    turns += 1
    if wrong == "dies" and turns == 3:
        sys.exit("no more memory")
    if wrong == "babbles":
        print("nothing to tell", flush=True)
        continue
    began = time.perf_counter_ns()
    time.sleep(sleep)
    print(*[time.perf_counter_ns() - began] * int(calls), flush=True)
    while wrong == "spins" and not __import__("select").select([sys.stdin], [], [], 0)[0]:
        pass
"""


def fake(name, milliseconds=1, wrong="", patience=20):
    return Contender(name, [sys.executable, "-c", FAKE, str(milliseconds), wrong],
                     patience=patience)


class Contenders(unittest.TestCase):
    def start(self, *arguments, **named):
        contender = fake(*arguments, **named)
        self.addCleanup(contender.end)
        return contender

    def play(self, *contenders, rounds=5):
        failures = []
        blocks = take_turns(contenders, "forward", rounds, 0.01, 0.001, random.Random(1),
                            lambda contender, problem: failures.append(str(problem)))
        return {contender.name: times for contender, times in blocks.items()}, failures

    def test_what_it_says_of_itself(self):
        contender = self.start("a")
        self.assertEqual(contender.versions, {"fake": "1.2 (of today)"})
        self.assertEqual(contender.differences, {"y of evaluate": 0.25})

    def test_ratio_of_two(self):
        blocks, failures = self.play(self.start("ours", 5), self.start("peer", 20))
        self.assertEqual(failures, [])
        self.assertEqual([len(times) for times in blocks.values()], [5, 5])
        of = peers.summary(blocks)
        self.assertEqual(of["ours"]["over"], {})
        self.assertTrue(2 < of["peer"]["over"]["ours"][1] < 6, of)

    def test_a_wrong_result_is_told_and_never_timed(self):
        with self.assertRaisesRegex(Failed, "peer: ended, with exit code 1.*\n.*y is wrong"):
            fake("peer", wrong="result")

    def test_who_dies_is_left_out_and_the_others_go_on(self):
        blocks, failures = self.play(self.start("ours"), self.start("peer", wrong="dies"))
        self.assertEqual(list(blocks), ["ours"])
        self.assertEqual(len(blocks["ours"]), 5)
        self.assertRegex(failures[0], "peer: ended.*\n.*no more memory")

    def test_who_prints_no_times_is_left_out_and_ended(self):
        peer = self.start("peer", wrong="babbles")
        blocks, failures = self.play(self.start("ours"), peer)
        self.assertEqual(list(blocks), ["ours"])
        self.assertEqual(processes_of(peer._process.pid), [])
        self.assertRegex(failures[0], "asked for 3 calls and printed 'nothing to tell'")

    def test_silence_ends(self):
        with self.assertRaisesRegex(Failed, "peer: said nothing for 0.5 s"):
            fake("peer", wrong="silent", patience=0.5)

    def test_a_command_that_is_not_there(self):
        with self.assertRaisesRegex(Failed, "peer: /nowhere/peer cannot be started: No such file"):
            Contender("peer", ["/nowhere/peer"])

    def test_nothing_is_left_behind(self):
        contender = fake("peer", wrong="leaves_a_child")
        session = contender._process.pid
        self.assertEqual(len(processes_of(session)), 2)
        contender.end()
        until = time.monotonic() + 5
        while processes_of(session) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(processes_of(session), [])

    def test_who_spins_while_others_have_turns_is_seen(self):
        sleeper, spinner = self.start("ours", 50), self.start("peer", 50, wrong="spins")
        self.play(sleeper, spinner, rounds=8)
        self.assertGreater(spinner.spun / spinner.slept, 0.1)
        self.assertLess(sleeper.spun / sleeper.slept, 0.05)


class Tables(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = Path(work.name)

    def run_with_results(self):
        run = peers.Run(self.work / "out", {"cpu": "a CPU", "cores": 2, "system": "a system"}, 4, 0.1)
        blocks = {"ours, threads": [1e6, 2e6, 3e6, 4e6], "PyTorch": [2e6, 6e6, 6e6, 4e6]}
        run.add("perceptron", "16 rows", "float", "forward", blocks, {})
        return run

    def test_medians_and_ratios_of_rounds(self):
        run = self.run_with_results()
        text = run.markdown()
        self.assertIn("| 16 rows | float | forward | ours, threads | 2500 [1750, 3250] |  |", text)
        # The rounds' ratios are 2, 3, 2 and 1.
        self.assertIn("| PyTorch | 5000 [3500, 6000] | 2.00 [1.75, 2.25] |", text)
        self.assertIn("| PyTorch | ours, threads | 2.00 [1.75, 2.25] |", text)

    def test_the_fastest_of_each_side(self):
        run = peers.Run(self.work / "out", {}, 2, 0.1)
        blocks = {"ours, threads": [4e6, 4e6], "ours, processes": [2e6, 2e6],
                  "PyTorch, a": [9e6, 9e6], "PyTorch, b": [6e6, 10e6], "by hand": [1e6, 1e6]}
        run.add("perceptron", "16 rows", "float", "forward", blocks, {})
        self.assertEqual(peers.fastest(run.data["results"])[2:],
                         ["| 16 rows | float | forward | PyTorch, b | ours, processes | "
                          "4.00 [3.50, 4.50] |"])

    def test_files(self):
        run = self.run_with_results()
        run.data["left_out"]["gloo"] = "not there"
        run.data["failed"].append("by hand: ended")
        run.write()
        self.assertIn("- left out: gloo: not there\n- FAILED: by hand: ended\n",
                      (self.work / "out.md").read_text())
        read = json.loads((self.work / "out.json").read_text())
        self.assertEqual(read["results"][0]["contenders"]["PyTorch"]["over"]["ours, threads"][1], 2)

    def main(self, *arguments):
        """What peers.py says to a command line, and its exit code."""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["peers.py", *map(str, arguments)]), \
                mock.patch.dict(os.environ), contextlib.redirect_stderr(said), \
                contextlib.redirect_stdout(said):
            try:
                code = peers.main()
            except SystemExit as end:
                code = end.code
        return f"{said.getvalue()}{code}"

    def built(self):
        """A build folder in which nothing but the maker of problems is, which makes none."""
        program = self.work / "peer_make_problem"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        return ["--build", self.work, "--python", self.work / "python", "--rounds", 1]

    def test_bad_command_lines(self):
        built = self.built()
        self.assertIn("no problem has '7 rows' in its name", self.main(*built, "--only", "7 rows"))
        self.assertIn("is no regular expression", self.main(*built, "--only", "("))
        self.assertIn("must be above 0", self.main(*built, "--rounds", "0"))
        self.assertIn("peer_make_problem is not there", self.main("--build", self.work / "nowhere"))
        file = self.work / "file"
        file.write_text("")
        self.assertIn("cannot be written: ", self.main(*built, "--output", file / "out"))
        (self.work / "a.json").write_text("measured before")
        self.assertIn("a.json is there already", self.main(*built, "--output", self.work / "a"))
        self.assertFalse((self.work / "a.md").exists())
        self.assertEqual((self.work / "a.json").read_text(), "measured before")

    def test_without_anything_it_says_what_is_missing(self):
        said = self.main(*self.built(), "--output", self.work / "out", "--only", "16 rows, float")
        self.assertIn("left out: PyTorch, 2 threads: " + str(self.work / "python") +
                      " is not there; bench/peers/get_torch gets it", said)
        self.assertIn("left out: ours, threads: peer_threads was not built", said)
        self.assertIn("- left out: PyTorch, 2 processes, gloo", (self.work / "out.md").read_text())


if __name__ == "__main__":
    unittest.main()
