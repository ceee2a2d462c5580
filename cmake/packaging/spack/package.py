"""Spack: copy this file to packages/shardwise/ of a repository of recipes, and build a checkout with
`spack develop --path <checkout> shardwise@=main`, since no release can be downloaded yet.
"""

from spack.package import *


class Shardwise(CMakePackage):
    """Header-only C++20 library of tensor-parallel layers: one source on one rank, on threads of a
    process, and on processes over MPI."""

    license("Apache-2.0")

    version("main", branch="main")

    variant("onednn", default=False, description="Bring oneDNN for shardwise::onednn")
    variant("cblas", default=False, description="Bring OpenBLAS for shardwise::cblas")
    variant("mpi", default=False, description="Bring an MPI for shardwise::mpi")
    variant("checkpoint", default=False, description="Bring nlohmann-json for shardwise::checkpoint")
    variant("cuda", default=False, description="Bring CUDA and cuDNN for shardwise::cuda")
    variant("nccl", default=False, description="Bring CUDA and NCCL for shardwise::nccl")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("onednn@2:3", when="+onednn")
    depends_on("openblas", when="+cblas")
    depends_on("mpi", when="+mpi")
    depends_on("nlohmann-json", when="+checkpoint")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9.8:", when="+cuda")
    depends_on("cuda", when="+nccl")
    depends_on("nccl@2.18.1-1:", when="+nccl")

    def cmake_args(self):
        return [
            self.define_from_variant(f"SHARDWISE_{part.upper()}", part)
            for part in ("onednn", "cblas", "mpi", "checkpoint", "cuda", "nccl")
        ] + [self.define(f"SHARDWISE_{extra}", False) for extra in ("TESTS", "EXAMPLES", "BENCH", "INFO")]
