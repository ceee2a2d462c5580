#!/usr/bin/env python3
"""Prints how large the interfaces of the core are: numbers that are to fall, or to stay.

usage: house_numbers.py

Counts what a layer's author and a reader of the core meet: the optional members of a layer, the public
functions of a frame and of a model, the fields of Run, words of a second algebra for the axes of a mesh, and
the frames of a real stack from train_step to the product of a linear layer, which needs gdb. A function is counted once for each of its overloads.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "include/shardwise"
WORDS = ("rows_taken", "rows_given", "keeps_rows", "token_by_token", "mixes_samples", "SliceOfBatch",
         "SumOverSamples", "CountOverSamples", "ExchangeOverRows", "CutOverContext", "of_whole_batch")
OPTIONAL = re.compile(r"///     (template|using|static|std::|auto)")
NO_FUNCTION = re.compile(r"\b(using|friend|static_assert|struct|class|enum|operator)\b(?!.*>)|~")
NO_FIELD = re.compile(r"(using|static|struct|friend)\b")


def code_of(file):
    return re.sub(r"//[^\n]*", "", (INCLUDE / file).read_text())


def body_of(code, head):
    """What stands between the braces behind a line that begins with `head`."""
    begin = code.index("{", re.search(rf"^{head}\b", code, re.MULTILINE).end()) + 1
    depth, end = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    return code[begin:end - 1]


def declarations(body):
    """The public ones, each without what stands in braces."""
    body = re.sub(r"= *\{[^{}]*\}", "= 0", body)
    while "{" in body:
        body = re.sub(r"\{[^{}]*\};?", ";", body)
    access, text = "public", []
    for part in re.split(r"\b(public|private|protected):", body):
        if part in ("public", "private", "protected"):
            access = part
        elif access == "public":
            text += [re.sub(r"\s+", " ", one).strip() for one in part.split(";")]
    return [one for one in text if one]


def functions(body):
    return [one for one in declarations(body) if "(" in one and not NO_FUNCTION.search(one.split("(")[0])]


def fields(body):
    return [one for one in declarations(body) if "(" not in one.split("=")[0] and not NO_FIELD.match(one)]


def optional_members():
    text = (INCLUDE / "layers/layer.hpp").read_text()
    contract = text[text.index("/// Optional members:"):text.index("/// A layer with `backward_in_parts`")]
    return OPTIONAL.findall(contract)


def frames_to_the_product():
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        subprocess.run(["g++", "-std=c++20", "-O0", "-g", f"-I{ROOT}/include", ROOT / "examples/00_first_model.cpp",
                        "-o", program, "-pthread"], check=True)
        stack = subprocess.run(["gdb", "-q", "-batch", "-ex", "rbreak Reference::Linear<.*>::forward", "-ex", "run",
                                "-ex", "bt", program], capture_output=True, text=True).stdout
    return 1 + int(re.search(r"^#(\d+) .*\bshardwise::train_step<", stack, re.MULTILINE)[1])


def main():
    include = "\n".join(file.read_text() for file in INCLUDE.rglob("*.hpp"))
    words = sum(len(re.findall(rf"\b{word}\b", include)) for word in WORDS)
    model = functions(body_of(code_of("model/model.hpp"), "class Model"))
    base = functions(body_of(code_of("model/model_base.hpp"), "class ModelBase"))
    print(f"optional members of a layer: {len(optional_members())}")
    print(f"functions of a frame: {len(functions(body_of(code_of('model/frame.hpp'), 'class Frame')))}")
    print(f"fields of Run: {len(fields(body_of(code_of('model/run.hpp'), 'struct Run')))}")
    print(f"functions of Model: {len(model)}, and {len(base)} of its base")
    print(f"words of a second algebra: {words}")
    if shutil.which("gdb"):
        print(f"frames from train_step to the product: {frames_to_the_product()}")


if __name__ == "__main__":
    main()
