#!/usr/bin/env python3
"""What tests/select_tests.py chooses in a build folder, and what it says of a name that it does not know.

Usage: select_tests_test.py BUILD    a folder that is configured
"""

import contextlib
import functools
import io
import re
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
    def run_main(self, *words):
        """Its exit code, the lines that it prints, and what it says of errors."""
        out, said = io.StringIO(), io.StringIO()
        with mock.patch.object(select_tests, "tests_of", tests_of), \
                mock.patch.object(sys, "argv", ["select_tests.py", BUILD, *words]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = 0
            try:
                select_tests.main()
            except SystemExit as end:
                code = end.code
        return code, out.getvalue().splitlines(), said.getvalue()

    def matching(self, line, *words):
        """Those of the lines that it prints."""
        code, lines, said = self.run_main(*words)
        self.assertEqual(code, 0, said)
        return [one for one in lines if re.fullmatch(line, one)]

    def chooses(self, line, *words):
        self.assertTrue(self.matching(line, *words), f"no {line} of {words}")

    def leaves(self, line, *words):
        self.assertEqual(self.matching(line, *words), [], words)

    def test_a_folder(self):
        self.chooses("build tests/unit_comm", "comm")
        self.chooses("build .*/together/static_tests_[0-9]+.cpp.o", "redistribute")
        self.leaves("build tests/unit_core", "redistribute")

    def test_a_test(self):
        self.chooses("build tests/unit_core", "unit.core")
        self.chooses("build .*/all_headers.cpp.o", "static.all_headers")
        self.leaves("build .*/headers_alone/main.cpp.o", "static")

    def test_a_label(self):
        self.chooses("build tests/unit_core", "--label", "quick")
        self.leaves("build tests/laws_halos", "--label", "quick")

    def test_a_changed_file(self):
        header = "include/shardwise/comm/thread_communicator.hpp"
        self.chooses("build tests/unit_comm", "--affected-by", header)
        header = "include/shardwise/interop/npy.hpp"  # not in shardwise::compiled, which tests link
        self.chooses("build tests/unit_interop", "--affected-by", header)
        self.leaves("build tests/unit_core", "--affected-by", header)
        values = "tests/witness/values/layers.safetensors"
        self.chooses("build tests/unit_backend", "--affected-by", values)
        self.leaves("build tests/unit_comm", "--affected-by", values)
        self.leaves("run .*", "--affected-by", "README.md")

    def test_an_unknown_name(self):
        code, lines, said = self.run_main("layer")
        self.assertEqual((code, lines), (2, []), said)
        self.assertIn("no test is named layer. Near it: layers", said)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
