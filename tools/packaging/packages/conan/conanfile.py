"""conan create tools/packaging/packages/conan: attn as a static or (-o "attn/*:shared=True") a shared library."""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class AttnConan(ConanFile):
    name = "attn"
    description = "GPT-2 inference in one C header"
    license = "MIT"
    topics = ("gpt-2", "inference", "transformer", "interpretability")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "openmp": [True, False]}
    default_options = {"shared": False, "fPIC": True, "openmp": True}
    implements = ["auto_shared_fpic"]
    languages = "C"

    @property
    def _repository(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        parts = re.findall(r"define ATTN_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", load(
            self, os.path.join(self._repository, "attn.h")))
        self.version = self.version or ".".join(parts)

    def export_sources(self):
        for path in ("attn.h", "examples/cpp/attn.hpp", "LICENSE", "tools/packaging/cmake/*"):
            copy(self, path, self._repository, self.export_sources_folder)

    def layout(self):
        cmake_layout(self, src_folder=".")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["ATTN_OPENMP"] = self.options.openmp
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="tools/packaging/cmake")
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["attn"]
        self.cpp_info.set_property("cmake_target_name", "attn::attn")
        if self.settings.os != "Windows":
            self.cpp_info.system_libs = ["m"]
        if self.options.openmp and not self.options.shared and self.settings.compiler in ("gcc", "clang"):
            self.cpp_info.sharedlinkflags = self.cpp_info.exelinkflags = ["-fopenmp"]
