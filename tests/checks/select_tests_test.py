#!/usr/bin/env python3
"""What tests/select_tests.py chooses in a build folder, and what it says of a name that it does not know.

Usage: select_tests_test.py BUILD    a folder to configure the preset dev in
"""

import contextlib
import functools
import io
import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

TREE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TREE / "tests")]
import select_tests  # noqa: E402

# Asking ninja and ctest what a folder holds takes seconds: once is enough.
tests_of = functools.cache(select_tests.tests_of)


class Choice(unittest.TestCase):
    def chosen(self, *words):
        """The lines that it prints."""
        out = io.StringIO()
        with mock.patch.object(select_tests, "tests_of", tests_of), \
                mock.patch.object(sys, "argv", ["select_tests.py", BUILD, *words]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            select_tests.main()
        return out.getvalue().splitlines()

    def chooses(self, line, *words):
        self.assertTrue([one for one in self.chosen(*words) if re.fullmatch(line, one)], f"no {line} of {words}")

    def leaves(self, line, *words):
        self.assertEqual([one for one in self.chosen(*words) if re.fullmatch(line, one)], [], words)

    def test_a_folder(self):
        self.chooses("build tests/unit_layers", "layers")
        self.chooses("build .*/static/convolution.cpp.o", "layers")
        self.leaves("build tests/unit_core", "layers")

    def test_a_test(self):
        self.chooses("build tests/unit_core", "unit.core")
        self.chooses("build .*/all_headers.cpp.o", "static.all_headers")
        self.leaves("build .*/headers_alone/main.cpp.o", "static")

    def test_a_label(self):
        self.chooses("build tests/unit_core", "--label", "quick")
        self.leaves("build tests/laws_halos", "--label", "quick")

    def test_a_changed_file(self):
        header = "include/shardwise/data/sampler.hpp"
        self.chooses("build tests/unit_data", "--affected-by", header)
        self.leaves("build tests/unit_core", "--affected-by", header)
        values = "tests/witness/values/training.safetensors"
        self.chooses("build tests/unit_train", "--affected-by", values)
        self.leaves("build tests/unit_layers", "--affected-by", values)
        self.leaves("run .*", "--affected-by", "README.md")

    def test_an_unknown_name(self):
        ran = subprocess.run([TREE / "tests/select_tests.py", BUILD, "layer"], text=True, capture_output=True)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn("no test is named layer. Near it: layers", ran.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    configured = subprocess.run(["cmake", "--preset", "dev", "-B", BUILD], cwd=TREE, text=True, capture_output=True)
    if configured.returncode != 0:
        sys.exit(configured.stdout + configured.stderr)
    unittest.main()
