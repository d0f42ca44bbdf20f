#!/usr/bin/env python3
"""Does circuit-tracer's reader know the file of `lens graph -o`, with the nodes and edges that stay?

    check_graph.py BUILD    (circuit-tracer 0.5, of its repository)

BUILD holds attn-convert and lens. The graphs are those of fixtures/graph; their numbers are tested in the suite headers.
"""
import json
import os
import subprocess
import sys
import tempfile

from circuit_tracer.frontend.graph_models import Link, Model

GRAPHS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fixtures", "graph")


def check(build, transcoders, folder):
    model, path = os.path.join(folder, "model.attn"), os.path.join(folder, "graph.json")
    subprocess.run([f"{build}/attn-convert", "-q", "--no-tokenizer", os.path.join(GRAPHS, "model"), model], check=True)
    command = [f"{build}/lens", model, "graph", "-q", "--ids", "3 17 9 0 28", "--transcoders", os.path.join(GRAPHS, transcoders)]
    ours = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    subprocess.run([*command, "-o", path], check=True)
    with open(path, encoding="utf-8") as file:
        theirs = Model.model_validate(json.load(file))
    ids = {node.node_id for node in theirs.nodes}
    links = [Link.model_validate(link) for link in theirs.links]
    assert len(ids) == len(theirs.nodes) == sum(node["stays"] for node in ours["nodes"])
    assert links and all(link.source in ids and link.target in ids for link in links)
    print(f"{transcoders}: {len(ids)} nodes and {len(links)} edges")


with tempfile.TemporaryDirectory() as scratch:
    for case in ("missing", "whole", "tracer"):
        check(sys.argv[1], case, scratch)
