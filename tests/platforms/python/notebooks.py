#!/usr/bin/env python3
"""Runs the notebooks of examples/python and compares what their cells give with what they keep.

    tests/platforms/python/notebooks.py [--write] [NOTEBOOK...]

It runs the cells in this Python, without Jupyter: what is printed and the value of a last expression are a cell's
outputs. --write keeps them in the files. With --kernel each notebook is run by nbclient in a kernel instead. Where the
package is not installed, the checkout's is taken. Of a cell with the tag "time" the numbers are not compared."""
import argparse
import ast
import base64
import contextlib
import io
import importlib.util
import json
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python" / "notebooks"
if importlib.util.find_spec("attn") is None:
    sys.path.insert(0, str(FOLDER.parent))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])  # of kernels


PICTURE = re.compile(r"data:image/svg\+xml;base64,([\w+/=]*)")


def decoded(picture):
    """A picture as text, whatever version drew it."""
    return re.sub(r"attn\.h [\d.]+", "attn.h", base64.b64decode(picture[1]).decode())


def lines(text):
    return text.splitlines(keepends=True)


def run_cell(source, names):
    """The outputs of a cell, as a notebook keeps them."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None and not hasattr(value, "_ipython_display_"):
        data = {"text/html": lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {}
        data["text/plain"] = lines(repr(value))
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def run_all(notebook):
    """The notebook with the outputs of a new run."""
    names, count = {"__name__": "__main__"}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"], cell["outputs"] = count, run_cell("".join(cell["source"]), names)
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = count
    return notebook


def run_in_kernel(notebook):
    import nbclient
    import nbformat
    node = nbformat.reads(json.dumps(notebook), as_version=4)
    nbformat.validate(node)
    nbclient.NotebookClient(node, timeout=600, kernel_name="python3").execute()
    return node


def printed(notebook):
    """What the cells gave, joined: a kernel may cut a stream in pieces."""
    found = []
    for cell in notebook["cells"]:
        stream = "".join("".join(output["text"]) for output in cell.get("outputs", ()) if "text" in output)
        stream = re.sub(r" *[\d.]+", " #", stream) if "time" in cell["metadata"].get("tags", ()) else stream
        found += [stream] if stream else []
        for output in cell.get("outputs", ()):
            found += [f"{kind}: " + PICTURE.sub(decoded, "".join(text)) for kind, text in sorted(output.get("data", {}).items())]
    return found


def code(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def texts(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def solutions(notebook):
    """The code of each solution, by its exercise's number."""
    text, = (text for text in texts(notebook) if "<summary>Solutions" in text)
    parts = re.split(r"^(\d+)\. ", text, flags=re.M)[1:]
    return {int(number): "\n".join(re.findall(r"^```python\n(.*?)^```", part, re.S | re.M))
            for number, part in zip(parts[::2], parts[1::2])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        kept = path.read_text(encoding="utf-8")
        made = (run_in_kernel if options.kernel else run_all)(json.loads(kept))
        if options.write:
            path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            continue
        for got, want in zip(printed(made), printed(json.loads(kept))):
            if got != want:
                sys.exit(f"{path.name} keeps\n{want[:2000]}\nand gave\n{got[:2000]}")
        if len(printed(made)) != len(printed(json.loads(kept))):
            sys.exit(f"{path.name} gave another number of outputs")
        print(f"{path.name}: as kept")


if __name__ == "__main__":
    main()
