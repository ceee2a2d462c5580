#!/usr/bin/env python3
"""Tables of a file as bench_kernels_linear writes it, shortened, and of files that are not whole."""

import json
import tempfile
import unittest
from pathlib import Path

import tables


def spread(what, median):
    return {what: median, f"{what}, 10 %": median / 2, f"{what}, 90 %": median * 2}


RECORDED = json.dumps({
    "context": {"date": "2026-11-21T19:34:44+00:00", "host_name": "machine", "num_cpus": 2,
                "oneDNN instruction set": "amx", "processor": "a processor", "rounds": "31"},
    "benchmarks": [
        {"name": "rows:16/iterations:1/manual_time", **spread("by hand: ours over it", 1.5),
         **spread("by hand: seconds", 4e-3), "by hand: efficiency": 0.5, "by hand: bytes": 65536,
         "ours: bytes": 65536, "ours: efficiency": 0.75, **spread("ours: seconds", 2.66e-3),
         "label": "by hand | ours"},
        {"name": "rows:1/iterations:1/manual_time", **spread("ours: seconds", 2.5e-5), "label": "ours"},
        {"name": "bf16", "error_occurred": True, "error_message": "ours: element 3 is 1, not 2"}]},
    indent=2)


def page_of(text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_kernels_linear.json"
        if text is not None:
            file.write_text(text)
        return tables.page_of([file])


class Page(unittest.TestCase):
    def test_page(self):
        page = page_of(RECORDED)
        self.assertIn("## bench_kernels_linear\n\n2026-11-21T19:34:44+00:00; 2 x a processor; "
                      "31 rounds; oneDNN instruction set: amx\n", page)
        self.assertNotIn("machine", page)
        self.assertIn("\n**failed**: bf16: ours: element 3 is 1, not 2\n", page)
        self.assertIn("\n| comparison | ours takes | speed over by hand | bytes | efficiency | "
                      "by hand: efficiency |\n|---|---|---|---|---|---|\n"
                      "| rows:16 | 2.66 [1.33, 5.32] ms | 1.5 [0.75, 3] | 65,536 | 0.75 | 0.5 |\n\n"
                      "| comparison | ours takes |\n|---|---|\n"
                      "| rows:1 | 25 [12.5, 50] us |\n", page)

    def test_files_that_are_not_whole(self):
        for text in (None, "", RECORDED[:400], "{}"):
            with self.subTest(text=text and text[:10]):
                self.assertIn("\n**failed**: ", page_of(text))

    def test_of_a_program_that_was_stopped_what_it_wrote_before(self):
        page = page_of(RECORDED[:RECORDED.index('"bf16"')])
        self.assertRegex(page, r"\n\*\*failed\*\*: \S+ ends too early: .*What it has:\n")
        self.assertIn("\n| rows:16 | 2.66 [1.33, 5.32] ms |", page)
        self.assertNotIn("bf16", page)


if __name__ == "__main__":
    unittest.main()
