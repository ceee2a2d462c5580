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
from contender import Contender, Failed, NotReadyInTime, processes_of, take_turns

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
if wrong != "compares_nothing":
    print("difference y of evaluate 0.25")
    print("difference y 0.125")
if not wrong.startswith("compares_"):
    print("difference grad.0.weight 0.5")
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


def fake(name, milliseconds=1, wrong="", patience=20, **named):
    return Contender(name, [sys.executable, "-c", FAKE, str(milliseconds), wrong],
                     ["y", "grad.0.weight"], patience=patience, **named)


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
        self.assertEqual(contender.differences,
                         {"y of evaluate": 0.25, "y": 0.125, "grad.0.weight": 0.5})

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

    def test_who_compares_nothing_is_never_timed(self):
        with self.assertRaisesRegex(Failed, "peer: is ready and has not said how far y, grad.0.weight "):
            fake("peer", wrong="compares_nothing")
        with self.assertRaisesRegex(Failed, "peer: is ready and has not said how far grad.0.weight "):
            fake("peer", wrong="compares_no_gradient")

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

    def test_a_time_to_be_ready_by(self):
        with self.assertRaisesRegex(NotReadyInTime, "peer: was not ready in time$"):
            fake("peer", wrong="silent", ready_by=time.monotonic() + 0.5)

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


class Commands(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = Path(work.name)

    def two_cpus(self, allowed, *cores):
        """What is chosen of the allowed CPUs, in a machine of these cores."""
        for core in cores:
            for cpu in core.split(","):
                file = self.work / f"cpu{cpu}/topology/thread_siblings_list"
                file.parent.mkdir(parents=True)
                file.write_text(core + "\n")
        with mock.patch.object(os, "sched_getaffinity", return_value=set(allowed)):
            return peers.two_cpus(self.work)

    def test_two_cpus_of_different_cores(self):
        self.assertEqual(self.two_cpus(range(4), "0,1", "2,3"), [0, 2])

    def test_two_cpus_of_those_that_are_allowed(self):
        self.assertEqual(self.two_cpus([1, 5, 6], "0,4", "1,5", "2,6"), [1, 6])

    def test_two_cpus_of_the_only_core(self):
        self.assertEqual(self.two_cpus([0, 1], "0,1"), [0, 1])

    def test_two_cpus_of_a_machine_that_does_not_tell(self):
        self.assertEqual(self.two_cpus([3, 4, 5]), [3, 4])

    def test_mpiexec_is_that_of_the_build(self):
        build = self.work / "bench/peers"
        build.mkdir(parents=True)
        self.assertEqual(peers.mpiexec_of(build), "mpiexec")
        cache = self.work / "CMakeCache.txt"
        cache.write_text("MPIEXEC_EXECUTABLE-ADVANCED:INTERNAL=1\nMPIEXEC_EXECUTABLE:FILEPATH=/a/mpirun\n")
        self.assertEqual(peers.mpiexec_of(build), "/a/mpirun")
        cache.write_text("MPIEXEC_EXECUTABLE:FILEPATH=MPIEXEC_EXECUTABLE-NOTFOUND\n")
        self.assertEqual(peers.mpiexec_of(build), "mpiexec")

    def test_jobs_of_processes_are_bound_to_nothing(self):
        commands = {name: command for name, command, _ in peers.contenders_of(
            "perceptron", "float", Path("/problem"), self.work, "python", "/a/mpirun")}
        job = ["/a/mpirun", "-n", "2", "--bind-to", "none", str(self.work / "peer_mpi_by_hand")]
        self.assertEqual(commands["oneDNN and MPI by hand"], [*job, "/problem"])
        self.assertEqual(peers.missing_of(job, "/a/mpirun", None),
                         "/a/mpirun is not there; openmpi-bin has it")
        job[0] = sys.executable
        self.assertIn("peer_mpi_by_hand was not built", peers.missing_of(job, sys.executable, None))

    def test_results_to_be_compared(self):
        for name in ("x", "y", "0.weight", "grad.0.weight", "grad.0.bias"):
            (self.work / f"{name}.npy").touch()
        self.assertEqual(peers.results_of(self.work, ["forward"]), ["y"])
        self.assertEqual(peers.results_of(self.work, ["forward", "training"]),
                         ["y", "grad.0.bias", "grad.0.weight"])


MACHINE = {"cpu": "a CPU", "cpus": [0, 8], "cpus_of_machine": 16, "system": "a system"}
DIFFERENCES = {"y of evaluate": 0.002, "y": 0.003, "grad.0.weight": 0.0204}


class Tables(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = Path(work.name)
        self.cpus = [0, 8]

    def run_with_results(self, mode="forward"):
        run = peers.Run(self.work / "out", MACHINE, 4, 0.1)
        blocks = {"ours, threads": [1e6, 2e6, 3e6, 4e6], "PyTorch": [2e6, 6e6, 6e6, 4e6]}
        run.add("perceptron", "16 rows", "bf16", mode, blocks, dict.fromkeys(blocks, DIFFERENCES))
        return run

    def test_medians_and_ratios_of_rounds(self):
        run = self.run_with_results()
        text = run.markdown()
        self.assertIn("| 16 rows | bf16 | forward | ours, threads | 2500 [1750, 3250] | 0.003 |  |", text)
        # The rounds' ratios are 2, 3, 2 and 1.
        self.assertIn("| PyTorch | 5000 [3500, 6000] | 0.003 | 2.00 [1.75, 2.25] |", text)
        self.assertIn("| PyTorch | ours, threads | 2.00 [1.75, 2.25] |", text)

    def test_the_largest_difference(self):
        self.assertIn("| PyTorch | 5000 [3500, 6000] | 0.02 | 2.00 [1.75, 2.25] |",
                      self.run_with_results("training").markdown())

    def test_the_machine(self):
        self.assertRegex(self.run_with_results().markdown(), "^On [0-9-]+, CPUs 0 and 8 of 16, a CPU, ")

    def test_the_fastest_of_each_side(self):
        run = peers.Run(self.work / "out", MACHINE, 2, 0.1)
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
        """What peers.py says to a command line, and its exit code. It is not bound to any CPUs, but
        what it starts from then on can see that it would be."""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["peers.py", *map(str, arguments)]), \
                mock.patch.dict(os.environ), mock.patch.object(peers, "two_cpus", lambda: self.cpus), \
                mock.patch.object(os, "sched_setaffinity", side_effect=self.bound), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                code = peers.main()
            except SystemExit as end:
                code = end.code
        return f"{said.getvalue()}{code}"

    def bound(self, process, cpus):
        os.environ["BOUND"] = str(cpus)

    def built(self, maker="true"):
        """A build folder in which nothing but a maker of problems is, that does `maker`."""
        program = self.work / "peer_make_problem"
        program.write_text(f"#!/bin/sh\n{maker}\n")
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

    def test_whoever_compares_nothing_is_told_and_the_run_fails(self):
        built = self.built('mkdir "$1"; touch "$1"/y.npy "$1"/grad.0.bias.npy')
        program = self.work / "peer_threads"
        program.write_text("#!/bin/sh\necho ready; read turn\n")
        program.chmod(0o755)
        said = self.main(*built, "--output", self.work / "out", "--only", "16 rows, float")
        self.assertIn("FAILED: ours, threads: is ready and has not said how far y, grad.0.bias ", said)
        self.assertRegex(said, "\n1$")

    def test_no_problem_to_measure(self):
        output = ["--output", self.work / "out"]
        said = self.main(*self.built("echo no disk >&2; exit 3"), *output)
        self.assertRegex(said, "wrote no problem and ended with exit code 3. It said:\nno disk$")
        self.assertEqual(list(self.work.glob("out*")), [])
        built = self.built()
        (self.work / "peer_make_problem").write_text("#!/nowhere/sh\n")
        self.assertIn("cannot be started: No such file", self.main(*built, *output))

    def test_all_have_the_same_two_cpus_and_none_of_the_users_settings(self):
        output = ["--output", self.work / "out", "--only", "16 rows, float"]
        look = "env >&2; exit 1"  # what children of the driver see
        with mock.patch.dict(os.environ, OMP_PROC_BIND="true", ONEDNN_VERBOSE="1", OMPI_KEPT="1"):
            said = self.main(*self.built(look), *output)
        self.assertNotIn("OMP_PROC_BIND", said)
        self.assertNotIn("ONEDNN_VERBOSE", said)
        self.assertIn("OMPI_KEPT=1", said)
        self.assertIn("BOUND=[0, 8]\n", said)
        self.cpus = [3]
        self.assertIn("there is only CPU 3 to use", self.main(*self.built(), *output))


if __name__ == "__main__":
    unittest.main()
