#!/usr/bin/env python3
"""Makes values/perceptron*.safetensors: a two-layer perceptron of PyTorch, inputs, and what it makes
of them. With --check FILE..., reads safetensors files of ours with Python's safetensors instead.
Run it with a Python that has PyTorch and safetensors; see README.md."""

import argparse
import json
import pathlib
import struct

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent / "values"


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(7, 10)
        self.fc2 = torch.nn.Linear(10, 5)

    def forward(self, x):
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


def make():
    torch.manual_seed(1)
    model = Perceptron()
    x = torch.randn(6, 7)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    note = {"made_with": f"PyTorch {torch.__version__}", "format": "pt"}
    save_file(state, HERE / "perceptron.safetensors", note)
    with torch.no_grad():
        y = model.double()(x.double())
    save_file({"x": x, "y": y}, HERE / "perceptron_values.safetensors", note)

    # The same in two files with an index, as Hugging Face's libraries split a model.
    shards = {
        "perceptron-00001-of-00002.safetensors": ["fc1.weight", "fc2.bias"],
        "perceptron-00002-of-00002.safetensors": ["fc1.bias", "fc2.weight"],
    }
    for shard, names in shards.items():
        save_file({name: state[name].bfloat16() for name in names}, HERE / shard, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(2 * tensor.numel() for tensor in state.values())},
        "weight_map": {name: shard for shard, names in shards.items() for name in names},
    }
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (HERE / "perceptron_bf16.safetensors.index.json").write_text(text)


def check(path):
    """What Python reads of one file; an error if that is not what its header says."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    assert length % 8 == 0 and metadata.get("format") == "pt"
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == sorted(header) and file.metadata() == metadata
        for name in file.keys():
            assert list(file.get_tensor(name).shape) == header[name]["shape"]
    tensors = load_file(path)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    print(f"{path}: {len(tensors)} tensors, {size} bytes, metadata {sorted(metadata)}")

    if {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"} <= tensors.keys():
        parameters = {n: t for n, t in tensors.items() if not n.startswith("optimizer.")}
        model = Perceptron()
        model.load_state_dict(parameters)
        values = load_file(HERE / "perceptron_values.safetensors")
        with torch.no_grad():
            difference = (model.double()(values["x"].double()) - values["y"]).abs().max().item()
        print(f"    is the perceptron: outputs differ by at most {difference}")
        assert difference == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", nargs="+", metavar="FILE")
    files = parser.parse_args().check
    if files:
        for path in files:
            check(path)
    else:
        make()
