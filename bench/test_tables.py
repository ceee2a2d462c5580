#!/usr/bin/env python3
"""Tables of a file as bench_kernels_linear writes it, shortened, and of files that are not whole."""

import json
import tempfile
import unittest
from pathlib import Path

import tables

RECORDED = """{
  "context": {
    "date": "2026-11-21T19:34:44+00:00", "host_name": "machine", "executable": "bench_kernels_linear",
    "num_cpus": 2, "mhz_per_cpu": 2100, "cpu_scaling_enabled": false, "caches": [],
    "load_avg": [2.1, 1.9, 2.0], "library_build_type": "release",
    "oneDNN instruction set": "cpu_isa_avx512_core_amx", "processor": "a processor", "rounds": "31"
  },
  "benchmarks": [
    {
      "name": "float/forward/plain/rows:16/1024->4096/iterations:1/manual_time",
      "run_type": "iteration", "iterations": 1, "real_time": 2.659e+03, "time_unit": "us",
      "inner product by hand: ours over it": 1.397, "inner product by hand: ours over it, 10 %": 1.2,
      "inner product by hand: ours over it, 90 %": 1.5,
      "inner product by hand: seconds": 3.714e-03, "inner product by hand: seconds, 10 %": 3.7e-03,
      "inner product by hand: seconds, 90 %": 3.8e-03, "inner product by hand: efficiency": 0.5,
      "matmul by hand: bytes": 6.5536e+04,
      "matmul by hand: ours over it": 0.991, "matmul by hand: ours over it, 10 %": 0.98,
      "matmul by hand: ours over it, 90 %": 1.01,
      "matmul by hand: seconds": 2.637e-03, "matmul by hand: seconds, 10 %": 2.6e-03,
      "matmul by hand: seconds, 90 %": 2.7e-03,
      "ours: bytes": 6.5536e+04, "ours: efficiency": 0.75,
      "ours: seconds": 2.659e-03, "ours: seconds, 10 %": 2.5e-03, "ours: seconds, 90 %": 2.9e-03,
      "label": "matmul by hand | inner product by hand | ours"
    },
    {
      "name": "bf16/backward_weight/rows:16/1024->4096/iterations:1/manual_time",
      "run_type": "iteration", "error_occurred": true,
      "error_message": "ours: element 3 is 1, not 2", "iterations": 0, "real_time": 0
    }
  ]
}
"""


def page_of(text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_kernels_linear.json"
        if text is not None:
            file.write_text(text)
        return tables.page_of([file])


class Page(unittest.TestCase):
    def test_circumstances(self):
        self.assertIn("## bench_kernels_linear\n\n2026-11-21T19:34:44+00:00; 2 x a processor; "
                      "31 rounds; oneDNN instruction set: cpu_isa_avx512_core_amx\n",
                      page_of(RECORDED))
        self.assertNotIn("machine", page_of(RECORDED))

    def test_row(self):
        self.assertIn("\n| comparison | ours takes | speed over matmul by hand | "
                      "speed over inner product by hand | bytes | efficiency | "
                      "inner product by hand: efficiency |\n|---|---|---|---|---|---|---|\n"
                      "| float/forward/plain/rows:16/1024->4096 | 2.66 [2.5, 2.9] ms | "
                      "0.991 [0.98, 1.01] | 1.4 [1.2, 1.5] | 65,536 | 0.75 | 0.5 |\n",
                      page_of(RECORDED))

    def test_what_is_compared_with_others_is_another_table(self):
        def one(name, other, more):
            figures = {f"{who}: seconds{ending}": 1 for who in ("ours", other)
                       for ending in ("", ", 10 %", ", 90 %")}
            over = {f"{other}: ours over it{ending}": 2 for ending in ("", ", 10 %", ", 90 %")}
            return {"name": name, "label": f"{other} | ours", **figures, **over, **more}
        page = page_of(json.dumps({"context": {}, "benchmarks": [
            one("a", "x", {}), one("b", "y", {}), one("c", "x", {"ours: bytes": 7})]}))
        self.assertIn("\n| comparison | ours takes | speed over x | bytes |\n|---|---|---|---|\n"
                      "| a | 1 [1, 1] s | 2 [2, 2] |  |\n| c | 1 [1, 1] s | 2 [2, 2] | 7 |\n\n"
                      "| comparison | ours takes | speed over y |\n|---|---|---|\n"
                      "| b | 1 [1, 1] s | 2 [2, 2] |\n", page)

    def test_failed_comparison_is_told(self):
        self.assertIn("\n**failed**: bf16/backward_weight/rows:16/1024->4096: ours: element 3 is 1, "
                      "not 2\n", page_of(RECORDED))

    def test_files_that_are_not_whole(self):
        for text in (None, "", RECORDED[:700], "{}"):
            with self.subTest(text=text and text[:10]):
                self.assertIn("\n**failed**: ", page_of(text))

    def test_of_a_program_that_was_stopped_what_it_wrote_before(self):
        for left in (RECORDED[:-40], RECORDED[:RECORDED.index('"bf16')]):
            page = page_of(left)
            self.assertRegex(page, r"\n\*\*failed\*\*: \S+ ends too early: .*What it has:\n")
            self.assertIn("\n| float/forward/plain/rows:16/1024->4096 | 2.66 [2.5, 2.9] ms |", page)
            self.assertNotIn("bf16", page)

    def test_units(self):
        def time(seconds):
            return tables.time_of({"seconds": seconds, "seconds, 10 %": seconds,
                                   "seconds, 90 %": seconds})
        self.assertEqual(time(2.5), "2.5 [2.5, 2.5] s")
        self.assertEqual(time(2.5e-5), "25 [25, 25] us")
        self.assertEqual(time(2.5e-10), "0.25 [0.25, 0.25] ns")
        self.assertEqual(time(1500), "1,500 [1,500, 1,500] s")


if __name__ == "__main__":
    unittest.main()
