"""Errors to plant: where each of them goes. planted.py is the table, mutate.py plants.

An error names the function that it lives in and a pattern within it. White space does not count in
the pattern, so code can be indented, wrapped and moved without a change to the table. A name can
also be that of a table, a struct, an enum or a macro. Several definitions may share a name (one
for each instruction set); the pattern must stand in them exactly once, or the entry says which
occurrence it means."""
import difflib
import re
import sys

COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NOT_NAMES = {"if", "while", "for", "switch", "sizeof", "defined", "__attribute__", "return"}


class Definition:
    def __init__(self, name, start, end):
        self.name, self.start, self.end = name, start, end
        self.squeezed = None  # made when it is asked for


def masked(text):
    """The text with comments and strings blanked, every character in its place."""
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def name_of(header):
    """What the first lines of a definition define."""
    header = header.split("{")[0] if "{" in header else header
    if header.startswith("#define"):
        return re.match(r"#define\s+(\w+)", header).group(1)
    kind = re.match(r"(?:typedef\s+)?(?:static\s+)?(?:const\s+)?(?:struct|union|enum)\s+(\w+)\s*$",
                    header)
    if kind:
        return kind.group(1)
    pointer = re.match(r"typedef [^(]*\(\*(\w+)\)", header)
    pasted = re.search(r"\b[A-Z_]+\((\w+)\)\s*(?:\(|=)", header)  # a name that a macro completes
    if pointer or pasted:
        return (pointer or pasted).group(1)
    guarded = re.match(r"[\w\s*]+\((\w+)\)\(", header)  # a name that is also a macro's
    if guarded:
        return guarded.group(1)
    table = re.search(r"(\w+)(?:\s*\[[^\]]*\])+\s*=?\s*$|(\w+)\s*=\s*$", header)
    if table:
        return table.group(1) or table.group(2)
    for call in re.finditer(r"(\w+)\s*\(", header):
        if call.group(1) not in NOT_NAMES and not call.group(1).isupper():
            return call.group(1)
    words = re.findall(r"\w+", header)
    return words[-1] if words else ""


def definitions(text):
    """The top-level definitions of a file as clang-format lays it out: each begins in column 0 and
    ends with a brace in column 0, on its only line, or with a semicolon."""
    plain = masked(text)
    starts = [m.start() for m in re.finditer(r"^", plain, re.M)]
    starts.append(len(plain) + 1)
    found, i = [], 0
    while i < len(starts) - 1:
        line = plain[starts[i]:starts[i + 1] - 1]
        first = i
        if line.startswith("#define"):
            while text[starts[i]:starts[i + 1] - 1].endswith("\\"):
                i += 1
        elif not re.match(r"[A-Za-z_]", line) or line.startswith("extern "):
            i += 1
            continue
        else:
            while True:
                line = plain[starts[i]:starts[i + 1] - 1].rstrip()
                body = plain[starts[first]:starts[i + 1] - 1]
                if line.startswith("}") or i + 2 >= len(starts) or \
                        (line.endswith((";", "}")) and body.count("{") == body.count("}")):
                    break
                i += 1
        end = starts[i + 1] - 1
        found.append(Definition(name_of(plain[starts[first]:end]), starts[first], end))
        i += 1
    return found


def squeezed(text, start=0, end=None):
    """The characters that count, and where each of them stands."""
    end = len(text) if end is None else end
    places = [i for i in range(start, end) if not text[i].isspace()
              and not (text[i] == "\\" and text[i + 1:i + 2] == "\n")]
    return "".join(text[i] for i in places), places


class Source:
    """A file and its definitions."""
    known = {}

    def __init__(self, file):
        with open(file, encoding="utf-8") as opened:
            self.text = opened.read()
        self.definitions = definitions(self.text)

    @classmethod
    def of(cls, file):
        if file not in cls.known:
            cls.known[file] = cls(file)
        return cls.known[file]

    def named(self, name):
        return [d for d in self.definitions if d.name == name]

    def spans(self, pattern, within):
        """Where a pattern stands in these definitions: (start, end)."""
        wanted, _ = squeezed(pattern)
        spans = []
        for d in within:
            if d.squeezed is None:
                d.squeezed = squeezed(self.text, d.start, d.end)
            text, places = d.squeezed
            at = text.find(wanted)
            while at >= 0:
                spans.append((places[at], places[at + len(wanted) - 1] + 1))
                at = text.find(wanted, at + 1)
        return spans

    def owner(self, at):
        """The name of the definition around a place."""
        return next((d.name for d in self.definitions if d.start <= at < d.end), "")

    def line(self, at):
        return self.text.count("\n", 0, at) + 1


class Error:
    """One error to plant: in `function`, `new` instead of `old`."""

    def __init__(self, section, function, old, new, suites, occurrence, equivalent, line, span=None):
        self.file, self.way, usual = section
        self.function, self.old, self.new = function, old, new
        self.suites = (suites or usual).split()
        self.occurrence, self.equivalent = occurrence, equivalent
        self.line, self.fixed = line, span  # of the table; of a refusal, found in the source

    def span(self):
        """Where the old text begins and ends, or None."""
        if self.fixed:
            return self.fixed
        source = Source.of(self.file)
        spans = source.spans(self.old, source.named(self.function))
        if self.occurrence == 0:
            return spans[0] if len(spans) == 1 else None
        return spans[self.occurrence - 1] if self.occurrence <= len(spans) else None

    def planted(self):
        start, end = self.span()
        text = Source.of(self.file).text
        return text[:start] + self.new + text[end:]

    def title(self):
        old, new = (" ".join(t.split()) for t in (self.old, self.new))
        return "%s:%d: %s: %.60s -> %.40s" % (self.file, Source.of(self.file).line(self.span()[0]),
                                              self.function, old, new or "(nothing)")

    def new_home(self):
        """The only definition of another name in which the pattern stands once, or None."""
        source = Source.of(self.file)
        homes = {source.owner(start) for start, _ in source.spans(self.old, source.definitions)}
        homes.discard(self.function)
        home = homes.pop() if len(homes) == 1 else None
        spans = source.spans(self.old, source.named(home)) if home else []
        return home if len(spans) == 1 else None

    def trouble(self):
        """Why the place is not found, and where it may be now."""
        source = Source.of(self.file)
        here = source.named(self.function)
        spans = source.spans(self.old, here)
        if len(spans) > 1:
            return "stands there %d times: give an occurrence or more of the text" % len(spans)
        elsewhere = source.spans(self.old, source.definitions)
        if elsewhere:
            return "now in " + ", ".join("%s (line %d)" % (source.owner(start), source.line(start))
                                         for start, _ in elsewhere[:4])
        if here:
            near = nearest_line(source, self.old, here)
            return "%s is there, the pattern is not. Nearest: line %d: %s" % ((self.function,) + near)
        names = difflib.get_close_matches(self.function, {d.name for d in source.definitions}, 1, 0)
        near = nearest_line(source, self.old, source.definitions)
        return "no %s; the nearest name is %s. Nearest text: line %d, in %s: %s" % (
            self.function, names[0] if names else "none", near[0],
            source.owner(source.text.find(near[1])) or "nothing", near[1])


def words_of(text):
    return set(re.findall(r"\w+", text))


def nearest_line(source, pattern, within):
    """Number and text of the line that shares most words with the pattern."""
    wanted, best = words_of(pattern), (-1.0, 0, "")
    for d in within:
        number = source.line(d.start)
        for i, line in enumerate(source.text[d.start:d.end].split("\n")):
            words = words_of(line)
            score = len(words & wanted) / (len(words | wanted) or 1)
            if score > best[0]:
                best = score, number + i, line.strip()
    return best[1:]


ERRORS = []
section = None


def within(file, way, suites):
    """The errors that follow are in this file, built this way, noticed by these suites."""
    global section
    section = file, way, suites


def plant(function, old, new, suites="", occurrence=0, equivalent=""):
    ERRORS.append(Error(section, function, old, new, suites, occurrence, equivalent,
                        sys._getframe(1).f_lineno))


def opening(text, at, opens, closes):
    """Where the bracket begins that `at` is in, or -1."""
    depth = 1
    while depth > 0 and at > 0:
        at -= 1
        depth += (text[at] == closes) - (text[at] == opens)
    return at if depth == 0 else -1


def condition_before(text, at):
    """Where the condition begins and ends ("if (" and ")" not among it) on which the statement at
    `at` depends, or None."""
    end = len(text[:at].rstrip())
    if text[:end].endswith("else"):
        return None
    if text[end - 1] != ")":
        end = len(text[:max(opening(text, at, "{", "}"), 0)].rstrip())
    if end == 0 or text[end - 1] != ")":
        return None
    start = opening(text, end - 1, "(", ")")
    return (start + 1, end - 1) if text[:start].endswith("if ") else None


def refusals(calls):
    """Takes away every refusal of the section's file, `attn__fail(...)` and the like, one at a time:
    the code then lets through what it refused. Leaves out the conditions that the table has."""
    listed = {squeezed(e.old)[0] for e in ERRORS if e.file == section[0]}
    source = Source.of(section[0])
    text = source.text
    for call in re.finditer(r"(?m)^ +(?:return )?(?:%s)\(" % calls, text):
        place = condition_before(text, call.start())
        if place and squeezed(text[place[0] - 4:place[1] + 1])[0] not in listed:
            condition, old = text[place[0]:place[1]], text[place[0] - 4:call.end()]
            new = "if ((" + condition + ") && 0)" + text[place[1] + 1:call.end()]
            out_of_reach = re.search(r"/\* cover: (.*?) \*/", old)
            ERRORS.append(Error(section, source.owner(place[0]), old, new, "", 0,
                                out_of_reach.group(1) if out_of_reach else "", 0,
                                (place[0] - 4, call.end())))
