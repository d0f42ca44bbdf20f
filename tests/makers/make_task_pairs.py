#!/usr/bin/env python3
"""Writes tests/fixtures/task_pairs: what `lens pairs TASK --count 12 --seed 5` must print, written apart.

    python3 tests/makers/make_task_pairs.py VOCABULARY NAME [tests/fixtures/task_pairs]

VOCABULARY is a directory with merges.txt and vocab.json: examples/tiny-stories for the name included, and GPT-2's for the
name gpt2. NAME-TASK.jsonl is written for each task of which the vocabulary has words. Needs numpy: its mt19937 is the
library's. The words are read from tools/lens/program/words.
"""
import glob
import json
import os
import sys

import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
folder, name = sys.argv[1:3]
target = sys.argv[3] if len(sys.argv) > 3 else os.path.join(root, "tests", "fixtures", "task_pairs")

merges = [tuple(line.split()) for line in open(os.path.join(folder, "merges.txt"), encoding="utf-8")
          if not line.startswith("#version")]
rank = {pair: i for i, pair in enumerate(merges)}


def tokens(word):
    """Byte pair encoding of a word of ASCII, which may begin with a space."""
    parts = list(word.replace(" ", "Ġ"))
    while len(parts) > 1:
        best = min(zip(parts, parts[1:]), key=lambda p: rank.get(p, len(rank)))
        if best not in rank:
            break
        joined, at = [], 0
        while at < len(parts):
            step = 2 if tuple(parts[at:at + 2]) == best else 1
            joined.append("".join(parts[at:at + step]))
            at += step
        parts = joined
    return parts


lists = {}
for path in glob.glob(os.path.join(root, "tools", "lens", "program", "words", "*.txt")):
    for line in open(path):
        if line.startswith("= "):
            rows = lists[line[2:].strip()] = []
        elif not line.startswith("#"):
            rows.append(line.strip())


def words(of):
    return [row.split() for row in lists[of] if all(len(tokens(" " + w)) == 1 for w in row.split())]


class Draws:
    def __init__(self, seed):
        self.bits = np.random.MT19937()
        self.bits._legacy_seeding(seed)

    def below(self, n):
        return int(self.bits.random_raw()) * n >> 32

    def one(self, rows):
        return rows[self.below(len(rows))]

    def two(self, rows):
        first = self.below(len(rows))
        second = self.below(len(rows) - 1)
        return rows[first], (rows[:first] + rows[first + 1:])[second]


def ioi(d):
    (a,), (b,) = d.two(words("she") + words("he"))
    giver = d.below(2)
    c, thing = d.one(words("places"))[0], d.one(words("things"))[0]
    subject, other = (a, b) if giver == 0 else (b, a)
    return {"A": a, "B": b, "C": c, "D": thing}, subject, other, " " + other, " " + subject


def greater_than(d):
    year = d.one(years)
    century, last = year[:2], int(year[2:])
    c = d.one(words("events"))[0]
    later = d.below(99 - last) + last + 1
    earlier = d.below(last - 1) + 2
    return {"C": c, "D": century}, year, century + "01", "%02d" % later, "%02d" % earlier


def pronouns(d):
    kinds = ["she", "he"]
    kind = d.below(2)
    clean, corrupted = d.one(words(kinds[kind]))[0], d.one(words(kinds[1 - kind]))[0]
    c, person = d.one(words("traits"))[0], d.one(words("people"))[0]
    return {"C": c, "D": person}, clean, corrupted, " " + kinds[kind], " " + kinds[1 - kind]


def agreement(d):
    subject, other = d.two(words("nouns"))
    number, number_of_other = d.below(2), d.below(2)
    verb = d.one(words("verbs"))
    return {"C": other[number_of_other]}, subject[number], subject[1 - number], " " + verb[number], " " + verb[1 - number]


def capitals(d):
    a, b = d.two(words("countries"))
    return {}, a[0], b[0], " " + a[1], " " + b[1]


years = [f"{c}{y:02d}" for c in range(11, 18) for y in range(2, 99)
         if tokens(f" {c}{y:02d}") == [f"Ġ{c}", f"{y:02d}"] and tokens(f" {c}01") == [f"Ġ{c}", "01"]]
os.makedirs(target, exist_ok=True)
for task, make, needed in (("ioi", ioi, ["she", "he", "places", "things"]), ("greater-than", greater_than, ["events"]),
                           ("pronouns", pronouns, ["she", "he", "traits", "people"]),
                           ("agreement", agreement, ["nouns", "verbs"]), ("capitals", capitals, ["countries"])):
    if min(len(words(n)) for n in needed) < 2 or (task == "greater-than" and len(years) < 2):
        continue
    draws, made = Draws(5), []
    while len(made) < 12:
        text = draws.one(lists[task])
        slots, clean, corrupted, token, against = make(draws)
        texts = []
        for star in (clean, corrupted):
            t = text.replace("{*}", star)
            for key, word in slots.items():
                t = t.replace("{" + key + "}", word)
            texts.append(t)
        line = json.dumps({"clean": texts[0], "corrupted": texts[1], "token": token, "against": against})
        if line not in made:
            made.append(line)
    with open(os.path.join(target, f"{name}-{task}.jsonl"), "w") as f:
        f.write("\n".join(made) + "\n")
