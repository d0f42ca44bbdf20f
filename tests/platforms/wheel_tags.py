"""The tags of attn_wheel.platform_tag beside those that pip's own library lists for the same platforms.

    PYTHONPATH=examples/python/building python3 tests/platforms/wheel_tags.py
"""

import sys

from attn_wheel import platform_tag
from pip._vendor.packaging import tags

# What sysconfig.get_platform() says: the system for which that Python was built.
MACS = [(f"macosx-{release}-{kind}", processor, True) for release in ("10.9", "10.15", "11", "11.0", "12", "13.3", "14", "14.0", "26.0")
        for kind, processor in (("universal2", "arm64"), ("universal2", "x86_64"), ("x86_64", "x86_64"))]
LINUX = [("linux-x86_64", "x86_64", True), ("linux-x86_64", "x86_64", False), ("linux-i686", "i686", False), ("linux-aarch64", "aarch64", True),
         ("linux-aarch64", "aarch64", False), ("linux-armv7l", "armv7l", False), ("linux-armv8l", "armv8l", False), ("linux-riscv64", "riscv64", True),
         ("linux-s390x", "s390x", True), ("linux-ppc64le", "ppc64le", True), ("linux-loongarch64", "loongarch64", True)]
OTHER = [("win-amd64", "AMD64", True), ("mingw_x86_64_ucrt_gnu", "AMD64", True)]


def taken(platform: str, processor: str, is_64_bit: bool) -> set[str]:
    if platform.startswith("macosx"):
        return set(tags.mac_platforms((26, 0), processor))
    tags.sysconfig.get_platform = lambda: platform
    return set(tags._linux_platforms(is_32bit=not is_64_bit) if platform.startswith("linux") else tags._generic_platforms())


rows = MACS + LINUX + OTHER
wrong = [(row, platform_tag(*row)) for row in rows if platform_tag(*row) not in taken(*row)]
print(len(rows), "platforms; not taken:", wrong)
sys.exit(len(rows) != 40 or bool(wrong))
