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
from contender import Contender, Failed, NotReadyInTime, compared, processes_of, take_turns

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
print("difference y 0.125")
if wrong != "compares_no_gradient":
    print("difference grad.0.weight 0.5")
print("ready", flush=True)
for turn, line in enumerate(sys.stdin):
    if wrong == "dies" and turn == 2:
        sys.exit("no more memory")
    began = time.perf_counter_ns()
    time.sleep(sleep)
    times = [time.perf_counter_ns() - began] * int(line.split()[1])
    print(*(["nothing to tell"] if wrong == "babbles" else times), flush=True)
"""


def fake(name, milliseconds=1, wrong="", **named):
    return Contender(name, [sys.executable, "-c", FAKE, str(milliseconds), wrong],
                     ["y", "grad.0.weight"], **{"patience": 20, **named})


class Contenders(unittest.TestCase):
    def start(self, *arguments):
        contender = fake(*arguments)
        self.addCleanup(contender.end)
        return contender

    def play(self, *contenders, rounds=5):
        failures = []
        blocks = take_turns(contenders, "forward", rounds, 0.01, 0.001, random.Random(1),
                            lambda contender, problem: failures.append(str(problem)))
        return blocks, failures

    def test_comparisons_of_ours_with_the_others(self):
        contenders = [self.start("ours, a", 5), self.start("ours, b", 5), self.start("peer", 20)]
        self.assertEqual(contenders[0].versions, {"fake": "1.2 (of today)"})
        blocks, failures = self.play(*contenders)
        self.assertEqual((failures, [len(times) for times in blocks.values()]), ([], [5, 5, 5]))
        a, b = compared("it", blocks, "forward")
        self.assertEqual((a["label"], b["label"]), ("peer | ours, a", "peer | ours, b"))
        self.assertTrue(2 < a["peer: ours over it"] < 6, a)
        self.assertEqual(a["peer: from exact"], 0.25)
        self.assertTrue(2 < a["peer: peak MiB"] < 200, a)
        self.assertEqual(compared("it", blocks, "training")[0]["peer: from exact"], 0.5)

    def test_who_is_not_right_is_never_timed(self):
        for wrong, why in (("result", "peer: ended, with exit code 1.*\n.*y is wrong"),
                           ("compares_no_gradient", "has not said how far grad.0.weight ")):
            with self.assertRaisesRegex(Failed, why):
                fake("peer", wrong=wrong)
        with self.assertRaisesRegex(Failed, "peer: said nothing for 0.5 s"):
            fake("peer", wrong="silent", patience=0.5)
        with self.assertRaisesRegex(NotReadyInTime, "peer: was not ready in time$"):
            fake("peer", wrong="silent", ready_by=time.monotonic() + 0.5)
        with self.assertRaisesRegex(Failed, "peer: /nowhere/peer cannot be started: No such file"):
            Contender("peer", ["/nowhere/peer"])

    def test_who_fails_later_is_left_out_and_ended_and_the_others_go_on(self):
        for wrong, why in (("dies", "peer: ended.*\n.*no more memory"),
                           ("babbles", "asked for 3 calls and printed 'nothing to tell'")):
            ours, peer = self.start("ours"), self.start("peer", 1, wrong)
            blocks, failures = self.play(ours, peer)
            self.assertEqual((list(blocks), len(blocks[ours])), ([ours], 5))
            self.assertEqual(processes_of(peer._process.pid), [])
            self.assertRegex(failures[0], why)

    def test_nothing_is_left_behind(self):
        contender = fake("peer", wrong="leaves_a_child")
        session = contender._process.pid
        self.assertEqual(len(processes_of(session)), 2)
        contender.end()
        until = time.monotonic() + 5
        while processes_of(session) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(processes_of(session), [])


class Driver(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = Path(work.name)

    def two_cpus(self, allowed, *cores):
        """What is chosen of the allowed CPUs, in a machine of these cores."""
        with tempfile.TemporaryDirectory() as cpus:
            for core in cores:
                for cpu in core.split(","):
                    file = Path(cpus) / f"cpu{cpu}/topology/thread_siblings_list"
                    file.parent.mkdir(parents=True)
                    file.write_text(core + "\n")
            with mock.patch.object(os, "sched_getaffinity", return_value=set(allowed)):
                return peers.two_cpus(Path(cpus))

    def test_two_cpus_of_different_cores_if_there_are(self):
        self.assertEqual(self.two_cpus(range(4), "0,1", "2,3"), [0, 2])
        self.assertEqual(self.two_cpus([1, 5, 6], "0,4", "1,5", "2,6"), [1, 6])
        self.assertEqual(self.two_cpus([0, 1], "0,1"), [0, 1])
        self.assertEqual(self.two_cpus([3, 4, 5]), [3, 4])  # a machine that does not tell

    def main(self, maker, *words, cpus=(0, 8)):
        """What peers.py says where nothing but a maker of problems was built, and its exit code. It is
        not bound to any CPUs, but what it starts from then on can see that it would be."""
        said = io.StringIO()
        program = self.work / "peer_make_problem"
        program.write_text(f"#!/bin/sh\n{maker}\n")
        program.chmod(0o755)
        with mock.patch.dict(os.environ), mock.patch.object(peers, "two_cpus", lambda: list(cpus)), \
                mock.patch.object(os, "sched_setaffinity",
                                  side_effect=lambda _, to: os.environ.update(BOUND=str(to))), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                code = peers.main(["--build", str(self.work), "--python", str(self.work / "python"),
                                   "--rounds", "1", "--only", "16 rows, float", "--out",
                                   str(self.work / "out.json"), *words])
            except SystemExit as end:
                code = end.code
        return f"{said.getvalue()}{code}"

    def test_bad_use(self):
        self.assertIn("no problem has '7 rows' in its name", self.main("true", "--only", "7 rows"))
        self.assertIn("is no regular expression", self.main("true", "--only", "("))
        self.assertIn("is below 1", self.main("true", "--rounds", "0"))
        self.assertIn("cannot be written: ", self.main("true", "--out", "/no/such/folder/out"))
        self.assertIn("there is only CPU 3 to use", self.main("true", cpus=[3]))
        self.assertRegex(self.main("echo no disk >&2; exit 3"), "wrote no problem and ended with exit code "
                                                                "3. It said:\nno disk\n2$")

    def test_whoever_compares_nothing_is_told_and_the_run_fails(self):
        program = self.work / "peer_threads"
        program.write_text("#!/bin/sh\necho ready; read turn\n")
        program.chmod(0o755)
        said = self.main('mkdir "$1"; touch "$1"/y.npy "$1"/grad.0.bias.npy')
        self.assertIn(": ours, threads: is ready and has not said how far y, grad.0.bias ", said)
        self.assertRegex(said, "\n1$")
        self.assertTrue(json.loads((self.work / "out.json").read_text())["benchmarks"][0]["error_occurred"])

    def test_all_have_the_same_two_cpus_and_none_of_the_users_settings(self):
        with mock.patch.dict(os.environ, OMP_PROC_BIND="true", ONEDNN_VERBOSE="1", OMPI_KEPT="1"):
            said = self.main("env | grep -E 'OMP|DNN|BOUND' >&2; exit 1")  # what children see
        self.assertNotIn("OMP_PROC_BIND", said)
        self.assertNotIn("ONEDNN_VERBOSE", said)
        self.assertIn("OMPI_KEPT=1", said)
        self.assertIn("BOUND=[0, 8]\n", said)


if __name__ == "__main__":
    unittest.main()
