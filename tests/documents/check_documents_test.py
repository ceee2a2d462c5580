#!/usr/bin/env python3
"""What cmake/check_documents.py finds in pages made for it, and what it says."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).parents[2] / "cmake")]
import check_documents  # noqa: E402

SOURCE = """#include <cstdio>

  // begin: answer
  int answer() {
    return 42;
  }
  // end: answer
"""
QUOTE = "<!-- quote: answer.cpp#answer -->\n```cpp\nint answer() {\n  return 42;\n}\n```\n"


def console(tag, *lines):
    return "\n".join([f"<!-- {tag} -->", "```console", *lines, "```", ""])


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "answer.cpp").write_text(SOURCE)

    def check(self, text, *options):
        """What the checker says of a page with this text, but for its last line, the summary."""
        (self.root / "docs/page.md").write_text(text)
        out = io.StringIO()
        arguments = ["check_documents.py", *options, str(self.root)]
        with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(out):
            code = check_documents.main()
        *said, summary = out.getvalue().splitlines()
        self.assertEqual(code, 0 if summary.endswith(" 0 problems") else 1)
        return "\n".join(said)

    def good(self, text, *options):
        said = self.check(text, *options).splitlines()
        self.assertEqual([line for line in said if not line.startswith("$ ")], [])

    def bad(self, text, message, *options):
        self.assertIn(message, self.check(text, *options))


class Links(Documents):
    def test_good_ones(self):
        (self.root / "README.md").write_text("# A `code` title: (really)\n\n## Twice\n\n## Twice\n")
        self.good(
            "# Here\n[a](../README.md#a-code-title-really) [b](../README.md#twice-1) [c](#here) "
            '[d](https://example.org/x_(y)?q#z "title") ![e](../answer.cpp) [f](../docs)\n'
            "`[code](nowhere)` <https://example.org>\n\n[ref]: page.md\n"
            "```text\n[text](nowhere)\n# no heading\n```\n"
        )

    def test_a_missing_file(self):
        self.bad(
            "\nsee [x](nowhere.md)", "docs/page.md:2: the link nowhere.md leads nowhere: there is"
        )

    def test_a_missing_file_over_two_lines(self):
        self.bad(
            "see [a long\ntext](nowhere.md)", "docs/page.md:2: the link nowhere.md leads nowhere"
        )

    def test_a_missing_file_of_a_definition(self):
        self.bad("\n[x]: nowhere.md", "docs/page.md:2: the link nowhere.md leads nowhere")

    def test_a_file_outside(self):
        self.bad(
            "[x](../../../etc/hostname)", "docs/page.md:1: the link ../../../etc/hostname leads"
        )

    def test_a_missing_heading(self):
        self.bad(
            "# One\n[x](#two)",
            "page.md:2: the link #two leads nowhere: docs/page.md has no heading "
            "of that name, only one",
        )

    def test_a_heading_in_code_is_none(self):
        self.bad("```\n# Two\n```\n[x](#two)", "docs/page.md:4: the link #two leads nowhere")

    def test_an_anchor_into_code(self):
        self.bad(
            "[x](../answer.cpp#L3)", "has an anchor into a file that is no page: leave #... out"
        )

    def test_addresses(self):
        self.bad(
            "[x](https:/example.org)", "docs/page.md:1: the link https:/example.org names no host"
        )
        self.bad("[x](htps://example.org)", "is no file and no https address: mend it")


class Pages(Documents):
    def test_all_folders(self):
        wrong = "[x](nowhere.md)\n"
        pages = [f"{x}/a/b/PAGE.md" for x in ("include", "docs", "tests", "bench")]
        for page in [*pages, "PAGE.md", "build/PAGE.md"]:
            (self.root / page).parent.mkdir(parents=True, exist_ok=True)
            (self.root / page).write_text(wrong)
        said = self.check("# Here\n").splitlines()
        self.assertEqual(
            sorted(line.partition(":")[0] for line in said),
            sorted(["PAGE.md", *pages]),
        )


class Quotes(Documents):
    def test_good_ones(self):
        self.good(QUOTE)
        self.good("1. item\n\n   " + QUOTE.replace("\n", "\n   "))
        whole = "#include <cstdio>\n\n  int answer() {\n    return 42;\n  }"
        self.good(f"<!-- quote: answer.cpp -->\n```cpp\n{whole}\n```\n")

    def test_no_tag(self):
        for language in ("cpp", "console", "sh", "bash", "cmake", "python"):
            self.bad(
                f"\n```{language}\nx\n```\n",
                f"docs/page.md:2: a block of {language} does not say "
                "where it comes from: put <!-- quote: file#name -->",
            )
        self.bad("```\nx\n```\n", "docs/page.md:1: a block of no language does not say where it")
        self.good("```text\nx\n```\n")

    def test_a_tag_without_a_block(self):
        self.bad(
            QUOTE.replace("-->\n", "-->\n\n"), "docs/page.md:1: no block of code begins on the next"
        )

    def test_a_tag_without_a_reason(self):
        self.bad(
            "<!-- not run: -->\n```sh\nx\n```", "docs/page.md:2: the comment `not run:` above the"
        )

    def test_no_end(self):
        self.bad("\n```\nx\n", "docs/page.md:2: the block that begins here does not end: close it")

    def test_a_stale_one(self):
        self.bad(
            QUOTE.replace("42", "41"),
            "docs/page.md:2: is not what answer.cpp#answer holds, from "
            "its line 2 on: run cmake/check_documents.py --update",
        )
        self.bad(
            QUOTE.replace("}\n", ""),
            "docs/page.md:2: is not what answer.cpp#answer holds, from its line 3 on",
        )

    def test_an_update(self):
        self.good("before\n\n" + QUOTE.replace("42", "41") + "\nafter\n", "--update")
        self.assertEqual(
            (self.root / "docs/page.md").read_text(), "before\n\n" + QUOTE + "\nafter\n"
        )

    def test_a_missing_source(self):
        text = QUOTE.replace("answer.cpp", "other.cpp")
        for options in ([], ["--update"]):
            self.bad(text, "docs/page.md:2: names other.cpp, which does not exist: mend", *options)

    def test_missing_lines_in_the_source(self):
        self.bad(
            QUOTE.replace("#answer", "#question"),
            "docs/page.md:2: quotes answer.cpp#question, but "
            "answer.cpp has not one line `begin: question`",
        )
        for source in (SOURCE + SOURCE, "// begin: answer\n" + SOURCE, SOURCE + "// end: answer\n"):
            (self.root / "answer.cpp").write_text(source)
            self.bad(
                QUOTE, "has not one line `begin: answer` and one line `end: answer` behind it: add"
            )


class Messages(Documents):
    def setUp(self):
        super().setUp()
        (self.root / "test.cpp").write_text(
            """// it's not "unpaired\nCHECK(what == f("") + "it \\"stops\\"; " \n  "mend it");\n"""
        )

    def said(self, *lines):
        return "\n".join(["<!-- said in: test.cpp -->", "```", *lines, "```", ""])

    def test_good_ones(self):
        self.good(self.said('it "stops"; mend it'))
        self.good(self.said('it "stops";', "  mend it"))

    def test_stale_ones(self):
        for lines in ('it "stops"; mend',), ('it "stops"; mend it now',), ("x",), ():
            self.bad(
                self.said(*lines),
                "docs/page.md:2: is no string in test.cpp, which is where a test should demand",
            )

    def test_a_missing_file(self):
        text = self.said("x").replace("test.cpp", "other.cpp")
        self.bad(text, "docs/page.md:2: names other.cpp, which does not exist: mend the path")

    def test_one_that_is_not_held(self):
        for text in ("it says\n> mend it\n> at once\n", "it says\n   >mend it\n"):
            self.bad(text, "docs/page.md:2: nothing holds what stands behind `>` to what the lib")
        self.assertEqual(self.check("it says\n> mend it\n> at once\n").count("docs/page.md"), 2)
        self.good("a -> b,\n`> x`\n" + self.said('it "stops";', "  mend it"))
        self.good("```text\n> a prompt\n```\n")


class Figures(Documents):
    BLOCK = "<!-- figures: speeds.json#all-reduce -->\n{}<!-- end of figures -->\n"
    TABLE = """`bench x`, EPYC: 1 of 3 goals are reached.

| what | goal | got |
|---|---|---|
| 64 B | <= 150 ns | 83 to **151** ns |
| 1 KiB | >= 1.10 | **1.09** [1.00, 1.20] |
| 4 KiB | = 0 | 0 |
| 1 MiB | >= 2 | not measured |
| 4 MiB |  | 1.50 |
"""

    def measured(self, rows):
        columns = '"columns": ["what", "machine", "goal", "got"]'
        text = f'{{"all-reduce": {{"command": "`bench x`", {columns}, "rows": [{rows}]}}}}'
        (self.root / "speeds.json").write_text(text)

    def setUp(self):
        super().setUp()
        self.measured("""["64 B", "EPYC", "<= 150 ns", [83, 151]], ["1 KiB", "EPYC", ">= 1.10", [1.09, 1.00, 1.20]],
            ["4 KiB", "EPYC", "= 0", 0], ["1 MiB", "EPYC", ">= 2", null], ["4 MiB", "EPYC", "", 1.50]""")

    def test_a_good_one(self):
        self.good(self.BLOCK.format(self.TABLE))

    def test_a_stale_one(self):
        for text in (self.BLOCK.format(""), self.BLOCK.format(self.TABLE).replace("83", "82")):
            self.bad(text, "docs/page.md:1: the table is not what speeds.json makes: run cmake/check")
            self.good(f"before\n\n{text}\nafter\n", "--update")
            expected = f"before\n\n{self.BLOCK.format(self.TABLE)}\nafter\n"
            self.assertEqual((self.root / "docs/page.md").read_text(), expected)

    def test_one_that_cannot_be_made(self):
        text = self.BLOCK.format("")
        self.bad(text.replace("<!-- end of figures -->\n", ""), "docs/page.md:1: no line <!-- end of fig")
        self.bad(text.replace("speeds", "other"), "docs/page.md:1: names other.json, which does not exist")
        self.bad(text.replace("#all-reduce", "#x"), "speeds.json makes no table: there is no table `x`, only all")
        self.measured('["1 KiB", "EPYC", 2]')
        self.bad(text, "the row of `1 KiB` in `all-reduce` has 3 cells for 4 columns")
        self.measured('["1 KiB", "EPYC", "about 2", 2]')
        self.bad(text, "the goal `about 2` is none: write =, <, <= or >=")


class Traps(Documents):
    def setUp(self):
        super().setUp()
        (self.root / "tests/mutants").mkdir(parents=True)

    def plant(self, *traps):
        bugs = (f"bug_{trap}\ntrap {trap}: it\nred laws\nin x.hpp\n-x\n" for trap in traps)
        (self.root / "tests/mutants/core.txt").write_text("\n".join(bugs))

    def traps(self, *numbers):
        rows = "".join(f"| {number} | a trap | a law |\n" for number in numbers)
        (self.root / "docs/traps.md").write_text(f"# Traps\n\n{rows}")

    def test_good_ones(self):
        self.plant(1, 2)
        self.traps(2, 1)
        self.good("# x\n")

    def test_one_without_a_bug(self):
        self.plant(1)
        self.traps(1, 2)
        self.bad("# x\n", "docs/traps.md:4: no bug of tests/mutants is of trap 2: plant the bug")

    def test_a_number_twice(self):
        self.plant(1)
        self.traps(1, 1)
        self.bad("# x\n", "docs/traps.md:3: two traps have the number 1")

    def test_one_without_a_number(self):
        self.plant(1)
        self.traps(1, "a trap")
        self.bad("# x\n", "docs/traps.md:4: this trap has no number: give it the next one")

    def test_a_bug_of_no_trap(self):
        self.plant(1, 7)
        self.traps(1)
        self.bad("# x\n", "docs/traps.md:1: tests/mutants has a bug of trap 7: add its row")


class Commands(Documents):
    def run_good(self, *lines):
        self.good(console("run: release", *lines), "--run", "release")

    def run_bad(self, message, *lines):
        self.bad(console("run: release", *lines), message, "--run", "release")

    def test_good_ones(self):
        self.run_good("$ ls docs", "page.md", "$ printf 'a\\nb\\nc\\n'", "a", "...", "c", "$ true")
        self.run_good("$ echo took 12.3 s \\", "  of time", "took ... s of time")
        self.run_good("$ echo && echo x && echo", "x")

    def test_others_are_left_alone(self):
        self.good(console("not run: no network", "$ false"), "--run", "release")
        self.good(console("run: release", "$ false"))

    def test_a_failing_one(self):
        self.run_bad(
            "docs/page.md:4: `echo why; exit 3` failed with status 3: mend the command or the "
            "program; it printed\n    why",
            "$ true",
            "$ echo why; exit 3",
        )

    def test_other_output(self):
        self.run_bad(
            "docs/page.md:5: `printf 'a\\nb\\n'` does not print `c` there: show what it prints, "
            "with ... for what varies; it printed\n    a\n    b",
            "$ printf 'a\\nb\\n'",
            "a",
            "c",
        )

    def test_missing_output(self):
        self.run_bad("docs/page.md:5: `echo a` does not print `b` there", "$ echo a", "a", "b")
        self.run_bad("docs/page.md:6: `echo \\\na` does not", "$ echo \\", "a", "a", "b")

    def test_more_output(self):
        self.run_bad("docs/page.md:5: `printf 'a\\nb\\n'` prints more", "$ printf 'a\\nb\\n'", "a")

    def test_output_in_another_order(self):
        self.run_bad(
            "does not print `a` there", "$ printf 'a\\nb\\n'", "...", "b", "...", "a", "..."
        )

    def test_a_block_that_begins_without_a_command(self):
        self.bad(console("run: release", "ls"), "docs/page.md:2: begins without a command")

    def test_a_preset_that_nothing_runs(self):
        self.bad(
            console("run: relase", "$ ls"),
            "docs/page.md:2: nothing runs the commands of the preset relase, only those of release",
        )

    def test_a_block_of_another_kind(self):
        self.bad(
            "<!-- run: release -->\n```sh\n$ ls\n```\n",
            "docs/page.md:2: commands that are run stand",
        )


if __name__ == "__main__":
    unittest.main()
