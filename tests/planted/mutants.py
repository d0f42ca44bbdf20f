"""Mutants: copies of the sources with one small error each, made from the source text itself.

A mutant changes a comparison, an arithmetic or logical operator or a constant, drops a statement or
a check, decides a condition, or swaps two arguments of a call. Comments, strings and the
preprocessor's lines are left alone, and so is what stands outside functions. The name of a mutant is
function/kind/hash: the hash is made of the line without its white space, so code can be moved and
indented without a change of names."""
import bisect
import hashlib
import re
from collections import namedtuple

Mutant = namedtuple("Mutant", "name file section kind line start end new before after")

HIDDEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
                    r'|^[ \t]*#(?:/\*.*?\*/|\\\n|[^\n])*', re.S | re.M)
# As clang-format lays functions out: the lines above a brace in column 0, and up to its partner.
FUNCTION = re.compile(r"((?:^\S[^\n]*\n)(?:^[ \t]+\S[^\n]*\n)*)^\{$(.*?)^\}", re.S | re.M)
SECTION = re.compile(r"^/\* >>([\w-]+)", re.M)
# f(...), ATTN__FN(f)(...) or (f)(...)
NAME = re.compile(r"(?:[^\n]*\((?=\w+\)\()|.*?\b(?!__attribute__)(?=\w+\())(\w+)", re.S)

OPERATORS = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "arithmetic": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "+=": "-=", "-=": "+=",
                   "<<": ">>", ">>": "<<"},
    "logic": {"&&": "||", "||": "&&", "&": "|", "|": "&"}}
OPERATOR = re.compile(r"(?<= )(?:<<|>>|[-+<>=!]=|&&|\|\||[-+*/%&|<>])(?=\s)")
NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e[-+]?\d+)?)[uUlLfF]*(?![\w.])")
# An assignment to what exists already, a step, or a call without a result
STATEMENT = re.compile(r"(?<=[;{})e:])\s*\n[ \t]+("
                       r"\(?\*?\(?\w+\)?(?:(?:->|\.)\w+|\[[^;={}]*?\])*\s*"
                       r"(?:(?:[-+*/|&^%]|<<|>>)?=(?!=)[^;{}]*|\+\+|--)"
                       r"|(?!(?:if|while|for|switch|return)\b)\w+\([^;{}]*\));")
CONDITION = re.compile(r"\bif \(")
CALL = re.compile(r"\b(?!(?:if|while|for|switch|return|sizeof)\b)\w+\(")
LEAVES = re.compile(r"\)\s*(?:return|goto|break|continue)\b")


def masked(text):
    """The text with what no mutant touches blanked, and every character in its place."""
    def blank(match):
        fill = "_" if match.group()[0] in "\"'" else " "
        return re.sub(r"[^\n]", fill, match.group())
    return HIDDEN.sub(blank, text)


def partner(text, at):
    """The place of the parenthesis that closes the one at this place, and of the commas between."""
    depth, commas = 0, []
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i, commas
        elif text[i] == "," and depth == 1:
            commas.append(i)
    return len(text), commas


def changes(text, plain, start, end):
    """(kind, start, end, new text) of each change of a function's body."""
    for match in OPERATOR.finditer(plain, start, end):
        for kind, table in OPERATORS.items():
            if match.group() in table:
                yield kind, match.start(), match.end(), table[match.group()]
    for match in re.compile(r"!(?=[\w(])").finditer(plain, start, end):
        yield "logic", match.start(), match.end(), ""
    for match in NUMBER.finditer(plain, start, end):
        yield "constant", match.start(), match.end(), "(%s + 1)" % match.group()
    for match in STATEMENT.finditer(plain, start, end):
        if match.group(1).count("(") == match.group(1).count(")"):  # no part of for (...; ...)
            yield "statement", match.start(1), match.end(1), ""
    for match in CONDITION.finditer(plain, start, end):
        opened = match.end() - 1
        closed, _ = partner(plain, opened)
        leaves = LEAVES.match(plain, closed)
        yield "check" if leaves else "condition", opened + 1, closed, "0"
        if not leaves:
            yield "condition", opened + 1, closed, "1"
    for match in CALL.finditer(plain, start, end):
        opened = match.end() - 1
        closed, commas = partner(plain, opened)
        bounds = [opened] + commas + [closed]
        for a, b, c in zip(bounds, bounds[1:], bounds[2:]):
            first, second = text[a + 1:b].strip(), text[b + 1:c].strip()
            if first != second and '"' not in first + second and first not in ("ctx", "&ctx"):
                yield "arguments", a + 1, c, "%s, %s" % (second, first)


def mutants_of(file):
    """All mutants of a file, in its order."""
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    plain, seen, found = masked(text), {}, []
    lines = [m.start() for m in re.finditer("\n", text)]
    sections = [(0, "")] + [(m.start(), m.group(1)) for m in SECTION.finditer(text)]
    for function in FUNCTION.finditer(plain):
        section = max(s for s in sections if s[0] <= function.start())[1]
        name = NAME.match(function.group(1)).group(1)
        for kind, start, end, new in changes(text, plain, function.start(2), function.end(2)):
            new += "\n" * text.count("\n", start, end)  # the others keep their __LINE__
            first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
            left, right = text[first:start], text[end:last]
            parts = "\0".join(re.sub(r"\s", "", t) for t in (left, text[start:end], new, right))
            title = "%s/%s/%s" % (name, kind, hashlib.sha1(parts.encode()).hexdigest()[:5])
            seen[title] = seen.get(title, 0) + 1
            if seen[title] > 1:
                title += "-%d" % seen[title]
            found.append(Mutant(title, file, section, kind, bisect.bisect(lines, start) + 1,
                                start, end, new,
                                *(" ".join(t.split()) for t in (text[first:last], left + new + right))))
    return found
