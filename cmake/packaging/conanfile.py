"""Conan 2: `conan create cmake/packaging -s compiler.cppstd=20`.

The package is the installed prefix, and CMake projects use the shardwiseConfig.cmake in it: the same
targets and the same sentences about missing parts as without Conan. The libraries behind parts are the
consumer's to require (onednn, nlohmann_json, ...) or to have installed; the core needs none.
"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load


class Shardwise(ConanFile):
    name = "shardwise"
    description = "Header-only C++20 library of tensor-parallel layers"
    license = "Apache-2.0"
    topics = ("tensor-parallelism", "neural-networks", "mpi", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    no_copy_source = True

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._root, "include", "shardwise", "version.hpp"))
        self.version = re.search(r'SHARDWISE_VERSION "([0-9.]+)"', header).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("ONEDNN", "CBLAS", "MPI", "CHECKPOINT", "CUDA", "NCCL"):
            toolchain.cache_variables[f"SHARDWISE_{part}"] = "OFF"
        for extra in ("TESTS", "EXAMPLES", "BENCH", "INFO"):
            toolchain.cache_variables[f"SHARDWISE_{extra}"] = "OFF"
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "shardwise")]
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
