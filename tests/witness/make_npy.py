#!/usr/bin/env python3
"""Makes values/npy/*.npy: arrays as NumPy saves them, in every version of the format and in types
that are read and that are not. With --check FOLDER, reads files of ours with NumPy instead. Run it
with a Python that has NumPy and ml_dtypes; see README.md."""

import argparse
import pathlib

import ml_dtypes
import numpy

HERE = pathlib.Path(__file__).parent / "values" / "npy"


def made(dtype, *shape):
    """0, 0.5, 1, ..., exact in every type of floats; 0, 1, 2, ... in integers."""
    step = 1 if numpy.dtype(dtype).kind in "iu" else 0.5
    return (numpy.arange(numpy.prod(shape, dtype=int)) * step).astype(dtype).reshape(shape)


ARRAYS = {
    "float32": made("<f4", 2, 3),
    "float64": made("<f8", 4),
    "float16": made("<f2", 2, 2, 2),
    "bfloat16": made(ml_dtypes.bfloat16, 3, 2),
    "int32": made("<i4", 5),
    "int64": made("<i8", 1, 2),
    "uint8": made("|u1", 3),
    "scalar": numpy.array(0.5, "<f4"),
    "empty": made("<f4", 0, 3),
}
REFUSED = {
    "fortran": numpy.asfortranarray(made("<f4", 2, 3)),
    "big_endian": made(">f4", 2, 3),
    "complex": made("<c8", 2),
    "fields": numpy.zeros(2, [("a", "<f4"), ("b", "<i4")]),
    "objects": numpy.array([None], object),
}


def make():
    HERE.mkdir(exist_ok=True)
    for name, array in {**ARRAYS, **REFUSED}.items():
        numpy.save(HERE / f"{name}.npy", array)
    for version in (2, 3):
        with open(HERE / f"version{version}.npy", "wb") as file:
            numpy.lib.format.write_array(file, ARRAYS["float32"], version=(version, 0))


def check(folder):
    for name, array in ARRAYS.items():
        read = numpy.load(folder / f"{name}.npy", allow_pickle=False)
        if name == "bfloat16":
            assert read.dtype == "|V2", read.dtype
            read = read.view(ml_dtypes.bfloat16)
        assert read.dtype == array.dtype and read.shape == array.shape, (name, read)
        assert (read == array).all(), (name, read)
        print(f"{name}: {read.dtype} {read.shape}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=pathlib.Path)
    folder = parser.parse_args().check
    check(folder) if folder else make()
