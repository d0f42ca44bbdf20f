#!/usr/bin/env python3
"""Builds the package attn: pip calls build_wheel and build_sdist, and `make wheels` runs this file.

    python3 examples/python/building/attn_wheel.py DIRECTORY [TARGET...]

A wheel has the package, the library, the two included models and the autoencoder; a source distribution has what
makes them. For pip the compiler is $CC (cc); $CPPFLAGS, $CFLAGS and $LDFLAGS come after -O2. As a program it makes a
wheel for each TARGET below (all of them if none is named) by `zig cc`, of the Python package ziglang, and the source
distribution ("sdist"). Threads are the library's own: those of OpenMP would meet a second OpenMP in other packages,
and would not survive a fork.
"""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import pathlib
import platform as machine
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any, Optional

PROJECT = pathlib.Path(__file__).resolve().parents[1]
ROOT = PROJECT.parents[1]
TARGETS = {  # the wheel's platform; what zig calls it
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
PROGRAMS = "[console_scripts]\nattn-convert = attn._convert:convert_program\nattn-download = attn._convert:download_program\n"
PACKAGED = (".py", ".pyi", ".typed", ".txt")  # of the package's own files
THREADS = ["-DATTN_THREADS", "-D_DEFAULT_SOURCE", "-D_DARWIN_C_SOURCE"]
EMBEDDED = "tools/lens/program/draw/lens_embedded.h"
CONVERTER = ["-std=c99", "-I.", "-DATTN_STATIC", "-DATTN_NO_SIMD", "-O1", "tools/convert/attn-convert.c"]


def version() -> str:
    """The version that attn.h has."""
    text = (ROOT / "attn.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define ATTN_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)$", text, re.M))


def compiled(command: Sequence[str], output: pathlib.Path, flags: Iterable[str]) -> None:
    """Runs a compiler in the root of the checkout."""
    try:
        done = subprocess.run([*command, *flags, "-o", str(output), "-lm"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise SystemExit(f"attn needs a C compiler, and there is no {command[0]}: install gcc or clang, or name "
                         "another one in the environment variable CC") from None
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} could not build {output.name}:\n{done.stderr}")


def embedded() -> bytes:
    """The scripts, styles and words of lens's pages as C. A source distribution brings them; in a checkout a script makes them."""
    brought = ROOT / EMBEDDED
    if brought.exists():
        return brought.read_bytes()
    return subprocess.run(["sh", "embed.sh"], cwd=brought.parent, check=True, stdout=subprocess.PIPE).stdout


def build_library(command: Sequence[str], output: pathlib.Path, flags: Sequence[str]) -> None:
    """The shared library of all headers."""
    shared = ["-dynamiclib", f"-Wl,-install_name,@rpath/{output.name}"] if output.suffix == ".dylib" else ["-shared"]
    position = [] if output.suffix == ".dll" else ["-fPIC"]
    linux = ["-pthread"] if output.suffix == ".so" else []
    (output.parent / "lens_embedded.h").write_bytes(embedded())
    compiled(command, output, ["-std=c99", "-I.", f"-I{output.parent}", "-fvisibility=hidden", "tools/lens/library.c", *THREADS, *linux,
                               *position, *shared, *flags])


def library_name(platform: str) -> str:
    return "libattn.dylib" if platform.startswith("macosx") else "attn.dll" if platform.startswith(("win", "mingw", "msys")) else "libattn.so"


def autoencoder() -> dict[str, bytes]:
    """And the transcoders."""
    folder = ROOT / "examples" / "sae"
    return {f"attn/models/sae/{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".safetensors")}


def models(directory: pathlib.Path, command: Sequence[str]) -> dict[str, bytes]:
    """The included models, by their paths in the package."""
    converter = directory / ("attn-convert" + (sysconfig.get_config_var("EXE") or ""))
    compiled(command, converter, CONVERTER)
    found = {}
    for name in ("tiny-stories", "induction"):
        path = directory / f"{name}.attn"
        subprocess.run([converter, "--quiet", ROOT / "examples" / name, path], check=True, stderr=subprocess.DEVNULL)
        found[f"attn/models/{name}.attn"] = path.read_bytes()
    return {**found, **autoencoder()}


def facts() -> dict[str, list[str]]:
    """What tools/packaging/publishing.txt says, by its keys."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "tools" / "packaging" / "publishing.txt").read_text(encoding="utf-8-sig").splitlines():
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            found.setdefault(key, []).extend([value.strip()] if value.strip() else [])
    return found


def description(url: str) -> str:
    """The package's page. Links to files lead to the published tree, or are text where there is none yet."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")

    def absolute(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        if re.match(r"https?://|#", target):
            return link[0]
        path, _, anchor = target.partition("#")
        place = os.path.relpath((PROJECT / path).resolve(), ROOT).replace(os.sep, "/")
        return f"[{words}]({url}/blob/main/{place}{'#' * bool(anchor)}{anchor})" if url else words

    return re.sub(r"\[([^]]*)\]\(([^)\s]+)\)", absolute, text)


def metadata() -> bytes:
    """METADATA of a wheel, PKG-INFO of a source distribution: version 2.4 of the format."""
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    known = facts()

    def field(name: str) -> str:
        found = re.search(rf"^{name} = .*?\"([^\"]+)\"", project, re.M)
        assert found, name
        return found[1]

    def fact(name: str) -> str:
        return " ".join(known.get(name, []))

    url = fact("url").rstrip("/")
    urls = [("Homepage", url), ("Issues", fact("tracker")), ("Changes", url and f"{url}/blob/main/attn.h")]
    lines = ["Metadata-Version: 2.4", f"Name: {field('name')}", f"Version: {version()}",
             f"Summary: {fact('python-summary')}", f"Keywords: {fact('keywords').replace(', ', ',')}",
             *([f"Author-email: {fact('name')} <{fact('email')}>"] if fact("name") and fact("email") else []),
             f"License-Expression: {field('license')}", "License-File: LICENSE",
             *(f"Classifier: {classifier}" for classifier in known["python-classifier"]),
             *(f"Project-URL: {name}, {target}" for name, target in urls if target),
             f"Requires-Python: {field('requires-python')}", f"Requires-Dist: {field('dependencies')}",
             "Description-Content-Type: text/markdown", "", description(url)]
    return "\n".join(lines).encode()


def package() -> dict[str, bytes]:
    """The package without library and models."""
    return {path.relative_to(PROJECT).as_posix(): path.read_bytes()
            for path in sorted((PROJECT / "attn").rglob("*")) if path.suffix in PACKAGED}


def write_package(directory: str, build: str) -> None:
    """The package as files, for distributions: models from a build directory, and no library."""
    files = package()
    files.update({f"attn/models/{name}.attn": (pathlib.Path(build) / f"{name}.attn").read_bytes()
                  for name in ("tiny-stories", "induction")})
    files.update(autoencoder())
    for name, text in files.items():
        path = pathlib.Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def write_wheel(directory: pathlib.Path, platform: str, library: bytes, data: dict[str, bytes]) -> str:
    """A wheel with the same bytes wherever it is made. Its file name."""
    files = package()
    files.update({f"attn/{library_name(platform)}": library, **data})
    info, tag = f"attn-{version()}.dist-info", f"py3-none-{platform}"
    files.update({f"{info}/METADATA": metadata(), f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes()})
    files[f"{info}/entry_points.txt"] = PROGRAMS.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: attn\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip('=')},{len(text)}"
              for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"attn-{version()}-{tag}.whl"
    with zipfile.ZipFile(directory / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, text)
    return name


# ---- what pip calls ----


def platform_tag(platform: str, processor: str, is_64_bit: bool) -> str:
    """The wheel's tag for a library of this machine, as pip takes it there. A Mac's system has no minor version from 11 on,
    and no arm64 before. A 32-bit Python on a 64-bit system names the system."""
    system, *rest = platform.split("-")
    if system == "macosx":
        major, minor = (*map(int, rest[0].split(".")), 0)[:2]
        tag = (processor if rest[1].startswith("universal") else rest[1]).lower()
        release = (max(major, 11), 0) if major > 10 or tag == "arm64" else (major, minor)
        return f"macosx_{release[0]}_{release[1]}_{tag}"
    if system == "linux" and not is_64_bit:
        platform = {"linux-aarch64": "linux-armv7l", "linux-x86_64": "linux-i686"}.get(platform, platform)
    return re.sub(r"[-.]", "_", platform)


def build_wheel(wheel_directory: str, config_settings: Optional[dict[str, Any]] = None,
                metadata_directory: Optional[str] = None) -> str:
    """A wheel for this machine."""
    platform = platform_tag(sysconfig.get_platform(), machine.machine(), sys.maxsize > 2**32)
    command = shlex.split(os.environ.get("CC", "cc"))
    given = [word for name in ("CPPFLAGS", "CFLAGS", "LDFLAGS") for word in shlex.split(os.environ.get(name, ""))]
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        data, library = models(made, command), made / library_name(platform)
        build_library(command, library, ["-O2", *given])
        return write_wheel(pathlib.Path(wheel_directory), platform, library.read_bytes(), data)


def sources() -> dict[str, bytes]:
    """What a wheel is made of, by its path in the checkout."""
    kinds = {"tools": (".c", ".h"), "examples/python/attn": PACKAGED, "examples/python/building": (".py",),
             "examples/tiny-stories": (".json", ".txt", ".safetensors", ".md"), "examples/induction": (".json", ".safetensors", ".md"),
             "examples/sae": (".json", ".safetensors", ".md")}
    paths = [ROOT / name for name in ("attn.h", "LICENSE", "examples/python/README.md", "examples/python/pyproject.toml",
                                      "tools/packaging/publishing.txt")]
    for directory, endings in kinds.items():
        paths += [path for path in (ROOT / directory).rglob("*") if path.suffix in endings]
    left_out = ("examples/tiny-stories/reference.json", "examples/tiny-stories/training/")
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {EMBEDDED: embedded(), **{name: names[name].read_bytes() for name in names if not name.startswith(left_out)}}


def build_sdist(sdist_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    """The sources as an archive that has the same bytes wherever it is made. They keep their places in the checkout;
    pyproject.toml stands at the top, too, where pip looks for it."""
    base = f"attn-{version()}"
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    project = project.replace('"building"', '"examples/python/building"').replace('"README.md"', '"examples/python/README.md"')
    files = {**sources(), "pyproject.toml": project.encode(), "PKG-INFO": metadata()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{base}/{name}")  # of 1970, by nobody
            entry.size, entry.mode = len(files[name]), 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    with open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "wb") as file:
        with gzip.GzipFile("", "wb", 9, file, 0) as packed:
            packed.write(archive.getvalue())
    return f"{base}.tar.gz"


# ---- make wheels ----


def main(directory: str, *platforms: str) -> None:
    for unknown in set(platforms) - set(TARGETS) - {"sdist"}:
        raise SystemExit(f"no target is named {unknown}; the targets are {', '.join(TARGETS)}, sdist")
    zig = [sys.executable, "-m", "ziglang", "cc"]
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        data = models(made, zig) if platforms != ("sdist",) else {}
        for platform in platforms or [*TARGETS, "sdist"]:
            if platform == "sdist":
                name = build_sdist(directory)
            else:
                library = made / library_name(platform)
                build_library([*zig, "-target", TARGETS[platform]], library, ["-O2", "-s"])
                name = write_wheel(out, platform, library.read_bytes(), data)
            print(f"{(out / name).stat().st_size / 2**20:.1f} MiB  {out / name}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit((__doc__ or "").split("\n\n")[1].strip())
    main(*sys.argv[1:])
