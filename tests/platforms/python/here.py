"""The build under test, for the tests beside this file. Import it before attn: it says where the package and its library
are. ATTN_BUILD (default: build) holds libattn.so, the programs and the models."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = (ROOT / os.environ.get("ATTN_BUILD", "build")).resolve()
PACKAGES = str(ROOT / "examples" / "python")
os.environ.setdefault("ATTN_LIBRARY", str(next(BUILD.glob("libattn.so*"), BUILD / "libattn.so")))
sys.path.insert(0, PACKAGES)
