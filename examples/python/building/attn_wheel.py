#!/usr/bin/env python3
"""Builds the package attn: pip calls build_wheel, and `make wheels` runs this file.

    python3 examples/python/building/attn_wheel.py DIRECTORY [TARGET...]

A wheel has the package, the library, the two included models and the autoencoder. For pip the compiler is
$CC (cc) with $CFLAGS (-O2). As a program it makes a wheel for each TARGET below (all of them if none is named)
by `zig cc`, of the Python package ziglang. Threads are the library's own: those of OpenMP would meet a second
OpenMP in other packages.
"""
from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
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
CONVERTER = ["-std=c99", "-I.", "-DATTN_STATIC", "-DATTN_NO_SIMD", "-O1", "tools/convert/attn-convert.c"]


def version() -> str:
    """The version that attn.h has."""
    text = (ROOT / "attn.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define ATTN_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)$", text, re.M))


def compiled(command: Sequence[str], output: pathlib.Path, flags: Iterable[str]) -> None:
    """Runs a compiler in the root of the checkout."""
    done = subprocess.run([*command, *flags, "-o", str(output), "-lm"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} could not build {output.name}:\n{done.stderr}")


def build_library(command: Sequence[str], output: pathlib.Path, flags: Sequence[str]) -> None:
    """The shared library of all headers."""
    shared = ["-dynamiclib"] if output.suffix == ".dylib" else ["-shared"]
    position = [] if output.suffix == ".dll" else ["-fPIC"]
    compiled(command, output, ["-std=c99", "-I.", "-fvisibility=hidden", "tools/lens/library.c", *position, *shared, *flags])


def library_name(platform: str) -> str:
    return "libattn.dylib" if platform.startswith("macosx") else "attn.dll" if platform.startswith("win") else "libattn.so"


def models(directory: pathlib.Path, command: Sequence[str]) -> dict[str, bytes]:
    """The included models, by their paths in the package."""
    converter = directory / ("attn-convert" + (sysconfig.get_config_var("EXE") or ""))
    compiled(command, converter, CONVERTER)
    found = {}
    for name in ("tiny-stories", "induction"):
        path = directory / f"{name}.attn"
        subprocess.run([converter, "--quiet", ROOT / "examples" / name, path], check=True, stderr=subprocess.DEVNULL)
        found[f"attn/models/{name}.attn"] = path.read_bytes()
    for name in ("cfg.json", "sae_weights.safetensors"):
        found[f"attn/models/sae/{name}"] = (ROOT / "examples" / "sae" / name).read_bytes()
    return found


def metadata() -> dict[str, bytes]:
    """What .dist-info says; RECORD comes last."""
    project = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")

    def field(name: str) -> str:
        found = re.search(rf"^{name} = .*?\"([^\"]+)\"", project, re.M)
        assert found, name
        return found[1]

    text = (f"Metadata-Version: 2.1\nName: {field('name')}\nVersion: {version()}\nSummary: {field('description')}\n"
            f"License: {field('license')}\nRequires-Python: {field('requires-python')}\n"
            f"Requires-Dist: {field('dependencies')}\nDescription-Content-Type: text/markdown\n\n")
    return {"METADATA": (text + (PROJECT / "README.md").read_text(encoding="utf-8")).encode(),
            "LICENSE": (ROOT / "LICENSE").read_bytes()}


def write_wheel(directory: pathlib.Path, platform: str, library: bytes, data: dict[str, bytes]) -> str:
    """A wheel with the same bytes wherever it is made. Its file name."""
    files = {path.relative_to(PROJECT).as_posix(): path.read_bytes()
             for path in sorted((PROJECT / "attn").rglob("*")) if path.suffix in (".py", ".typed")}
    files.update({f"attn/{library_name(platform)}": library, **data})
    info, tag = f"attn-{version()}.dist-info", f"py3-none-{platform}"
    files.update({f"{info}/{name}": text for name, text in metadata().items()})
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


def build_wheel(wheel_directory: str, config_settings: Optional[dict[str, Any]] = None,
                metadata_directory: Optional[str] = None) -> str:
    """A wheel for this machine."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    command = shlex.split(os.environ.get("CC", "cc"))
    flags = shlex.split(os.environ.get("CFLAGS", "-O2"))
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        data, library = models(made, command), made / library_name(platform)
        try:
            build_library(command, library, ["-fopenmp", *flags])
        except SystemExit:  # a compiler without OpenMP
            build_library(command, library, flags)
        return write_wheel(pathlib.Path(wheel_directory), platform, library.read_bytes(), data)


def build_sdist(sdist_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    """There is none: the library's sources are above the project's directory."""
    raise NotImplementedError("build a wheel, in a checkout of attn.h")


# ---- make wheels ----


def main(directory: str, *platforms: str) -> None:
    for unknown in set(platforms) - set(TARGETS):
        raise SystemExit(f"no target is named {unknown}; the targets are {', '.join(TARGETS)}")
    zig = [sys.executable, "-m", "ziglang", "cc"]
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        data = models(made, zig)
        for platform in platforms or TARGETS:
            library = made / library_name(platform)
            build_library([*zig, "-target", TARGETS[platform]], library, ["-O2", "-s"])
            name = write_wheel(out, platform, library.read_bytes(), data)
            print(f"{(out / name).stat().st_size / 2**20:.1f} MiB  {out / name}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit((__doc__ or "").split("\n\n")[1].strip())
    main(*sys.argv[1:])
