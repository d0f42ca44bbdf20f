"""conan create tools/packaging/conan: the library and its headers, as CMake installs them."""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load


class Attn(ConanFile):
    name = "attn"
    license = "MIT"
    description = "GPT-2 inference in one C header, with every activation in reach"
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "threads": ["openmp", "own", "none"]}
    default_options = {"shared": False, "threads": "own"}  # own needs nothing of who links the library
    generators = "CMakeToolchain"

    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._root(), "attn.h"))
        self.version = ".".join(re.search(f"ATTN_VERSION_{part} +([0-9]+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for pattern in "attn.h", "LICENSE", "examples/cpp/attn.hpp", "tools/packaging/cmake/*":
            copy(self, pattern, self._root(), self.export_sources_folder)

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self)

    def _cmake(self):
        cmake = CMake(self)
        cmake.configure(variables={"ATTN_THREADS": str(self.options.threads)}, build_script_folder="tools/packaging/cmake")
        return cmake

    def build(self):
        self._cmake().build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        own = self.cpp_info
        own.libs = ["attn"]
        if self.settings.os != "Windows":
            own.system_libs = ["m"] + ["pthread"] * (self.options.threads == "own")
        if self.options.threads == "openmp" and not self.options.shared:
            own.exelinkflags = own.sharedlinkflags = ["-fopenmp"]
