#!/usr/bin/env python3
"""Tables of a file as bench_kernels_linear writes it, shortened, and of files that are not whole."""

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
        self.assertIn("\n| float/forward/plain/rows:16/1024->4096 | 2.66 [2.5, 2.9] ms | "
                      "matmul by hand: 0.991 [0.98, 1.01]<br>"
                      "inner product by hand: 1.4 [1.2, 1.5] | "
                      "bytes 65,536<br>efficiency 0.75<br>inner product by hand: efficiency 0.5 |\n",
                      page_of(RECORDED))

    def test_failed_comparison_is_in_the_table(self):
        self.assertIn("\n| bf16/backward_weight/rows:16/1024->4096 | **failed** | "
                      "ours: element 3 is 1, not 2 |  |\n", page_of(RECORDED))

    def test_files_that_are_not_whole(self):
        for text in (None, "", RECORDED[:-40], "{}"):
            with self.subTest(text=text and text[:10]):
                self.assertIn("\n**failed**: ", page_of(text))

    def test_units(self):
        def time(seconds):
            return tables.time_of({"seconds": seconds, "seconds, 10 %": seconds,
                                   "seconds, 90 %": seconds})
        self.assertEqual(time(2.5), "2.5 [2.5, 2.5] s")
        self.assertEqual(time(2.5e-5), "25 [25, 25] us")
        self.assertEqual(time(2.5e-10), "0.25 [0.25, 0.25] ns")


if __name__ == "__main__":
    unittest.main()
