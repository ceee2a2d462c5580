#!/usr/bin/env python3
"""The driver for GPUs with contenders that are a few lines of Python: no GPU, no PyTorch, nothing
built; and what PyTorch's contender does without PyTorch."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import gpu_peers
import gpu_torch_peer as torch_peer

# Ours, PyTorch and a Python with it: says what a contender says. Calls of ours take 1 us, of ours in
# graphs half of it, of PyTorch 3 and of a compiled one 2. WRONG in the environment spoils one of them,
# and SLOW is never ready.
FAKE = """#!{python}
import os, sys
who = sys.argv[1]
if who == "-c":
    sys.exit(os.environ.get("NO_CUDA"))
if who.endswith(".py"):
    who = sys.argv[2]
if os.environ.get("WRONG") == who:
    sys.exit("y is wrong: |got - exact| / |exact| is 0.5")
print("version", who, "1.2", flush=True)
if os.environ.get("SLOW") == who:
    sys.stdin.read()
for result in ("y", "grad.x", "grad.weight", "grad.bias"):
    print("difference", result, "0.001")
print("ready", flush=True)
for line in sys.stdin:
    calls = int(line.split()[1])
    print(*[dict(plain=1000, graph=500, eager=3000, compile=2000)[who]] * calls, flush=True)
"""

PROBLEM = "bf16/expand/4096->14336/rows:16$"


class Driver(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = Path(work.name)
        for program in ("nvidia-smi", "peer_gpu", "python"):
            (self.work / program).write_text(FAKE.format(python=sys.executable))
            (self.work / program).chmod(0o755)
        self.out = self.work / "out.json"

    def main(self, *words, **environment):
        """(what it says, its exit code) on a machine with what lies in the folder alone."""
        said = io.StringIO()
        with mock.patch.dict(os.environ, PATH=str(self.work), **environment), \
                mock.patch.object(gpu_peers, "PAUSE", 0), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                code = gpu_peers.main(["--build", str(self.work), "--python", str(self.work / "python"),
                                       "--rounds", "3", "--block", "1e-6", "--out", str(self.out),
                                       *words])
            except SystemExit as end:
                code = end.code
        return said.getvalue(), code

    def compared(self):
        """[(comparison, its candidates)], as they were written."""
        written = json.loads(self.out.read_text())["benchmarks"]
        return [(one["name"], one["label"]) for one in written if "label" in one]

    def test_one_problem(self):
        said, code = self.main("--only", PROBLEM)
        self.assertEqual(code, 0, said)
        name = "| bf16/expand/4096->14336/rows:16/forward | "
        self.assertIn(f"{name}1 [1, 1] us | 3 [3, 3] | 2 [2, 2] | ", said)
        self.assertIn(f"{name}500 [500, 500] ns | 6 [6, 6] | 4 [4, 4] | ", said)
        self.assertEqual(len(self.compared()), 4)

    def test_who_is_wrong_is_told_and_not_timed(self):
        for wrong, labels in (("compile", {"PyTorch | ours", "PyTorch | ours, graph"}),
                              ("graph", {"PyTorch | torch.compile | ours"}), ("plain", set())):
            said, code = self.main("--only", PROBLEM, WRONG=wrong)
            self.assertEqual(code, 1)
            self.assertIn("ended, with exit code 1. It said:\n    y is wrong", said)
            self.assertEqual({label for _, label in self.compared()}, labels)

    def test_without_pytorch_programs_or_a_gpu(self):
        said, code = self.main("--only", PROBLEM, NO_CUDA="no GPU")
        self.assertRegex(said, "left out: PyTorch: .*no GPU; bench/peers/get_peers gets")
        self.assertEqual({label for _, label in self.compared()}, {"ours", "ours, graph"})
        (self.work / "peer_gpu").unlink()
        self.assertIn("`./dev gpu build` builds it", self.main()[0])
        (self.work / "nvidia-smi").unlink()
        self.assertEqual(self.main()[1], 77)

    def test_who_is_not_ready_in_time_is_left_out_and_has_not_failed(self):
        said, code = self.main("--only", PROBLEM, "--seconds", "5", SLOW="compile")
        self.assertEqual(code, 0, said)
        self.assertIn("left out: bf16/expand/4096->14336/rows:16: torch.compile: was not ready in time", said)
        self.assertEqual({label for _, label in self.compared()}, {"PyTorch | ours", "PyTorch | ours, graph"})
        said, code = self.main("--seconds", "1e-9")
        self.assertEqual(code, 0)
        self.assertIn("and those behind it were not measured", said)


class Torch(unittest.TestCase):
    def test_numbers_are_those_of_uniform_hpp(self):  # tests/unit/bench/gpu_linear.cpp has the same
        self.assertEqual(torch_peer.mixed(1), 179721900)
        self.assertEqual(torch_peer.mixed(0xFFFFFFFF), 3419906276)
        self.assertEqual(torch_peer.uniform_bits(3, 12345) * 2.0 ** -23 - 1, -0.12336409091949463)


if __name__ == "__main__":
    unittest.main()
