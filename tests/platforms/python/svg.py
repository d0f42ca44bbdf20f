"""What is where in an SVG of lens: its texts as boxes, the boxes and edges of a graph."""
import re
import typing
import unicodedata
from xml.etree import ElementTree

LETTER = 7.85  # of DejaVu Sans Mono, 13 px


class Box(typing.NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    name: str

    def meets(self, other, least=0.2):
        """Whether two boxes share more than a hair."""
        return (min(self.right, other.right) - max(self.left, other.left) > least and
                min(self.bottom, other.bottom) - max(self.top, other.top) > least)


class Edge(typing.NamedTuple):
    name: str  # as its title has it
    path: list  # points


def tag(element):
    return element.tag.partition("}")[2]


def columns(text):
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF" or ord(c) > 0x1f2ff) for c in text)


def text_of(element):
    return "".join(element.itertext())


def text_box(element):
    """The box of a text: of a 13 px letter 10 px are above the line, and of a title likewise more."""
    classes, x, y = element.get("class", "").split(), float(element.get("x")), float(element.get("y"))
    size = 17 / 13 if "big" in classes else 1
    width = float(element.get("textLength", columns(text_of(element)) * LETTER * size))
    left = x - width / 2 if "c" in classes else x - width if "r" in classes else x
    return Box(left, y - 10 * size, left + width, y + 3 * size, text_of(element))


def rectangle(element, name=""):
    x, y, width, height = (float(element.get(key)) for key in ("x", "y", "width", "height"))
    return Box(x, y, x + width, y + height, name)


def points(path, steps=24):
    """Points along a path of M, C, V and L."""
    found, at = [], (0.0, 0.0)
    for letter, numbers in re.findall(r"([MCVL])([^MCVL]*)", path):
        n = [float(number) for number in numbers.split()]
        if letter == "V":
            n = [at[0], n[0]]
        a, (b, c, d) = at, ((n[0:2], n[2:4], n[4:6]) if letter == "C" else (at, n, n))
        for i in range(steps + 1):
            t = i / steps if letter != "M" else 1
            found.append(tuple((1 - t) ** 3 * p + 3 * (1 - t) ** 2 * t * q + 3 * (1 - t) * t * t * r + t ** 3 * s
                               for p, q, r, s in zip(a, b, c, d)))
        at = found[-1]
    return found


class Drawing:
    def __init__(self, source):
        self.root = ElementTree.fromstring(source)
        self.width, self.height = (float(self.root.get(key)) for key in ("width", "height"))
        everything = list(self.root.iter())
        self.texts = [text_box(element) for element in everything if tag(element) == "text" and text_of(element).strip()]
        self.labels = [text.name for text in self.texts]
        self.nodes = [rectangle(element) for element in everything if element.get("class") == "node"]
        self.edges = [Edge(text_of(element), points(element.get("d"))) for element in everything
                      if element.get("class", "").startswith("edge ")]

    def faults(self):
        """Texts that meet, or are outside of the picture."""
        found = [f"{text.name!r} is outside" for text in self.texts if text.left < 0 or text.top < 0 or
                 text.right > self.width + 1 or text.bottom > self.height]
        ordered = sorted(self.texts, key=lambda text: text.top)
        for i, text in enumerate(ordered):
            for other in ordered[i + 1:]:
                if other.top > text.bottom:
                    break
                if text.meets(other):
                    found.append(f"{text.name!r} meets {other.name!r}")
        return found

    def node(self, name):
        """The box of a part of the model, by the text in it."""
        return next(node for node in self.nodes for text in self.texts if text.name == name and node.meets(text))

    def crossings(self):
        """Edges that run through a box, or do not end at the parts of their names and at the right letter."""
        found = []
        for edge in self.edges:
            for x, y in edge.path:
                found += [f"{edge.name} runs through {node}" for node in self.nodes
                          if node.left < x < node.right and node.top + 0.2 < y < node.bottom - 0.2]
            start, end, letter = re.match(r"(\S+) to (\S+) ([qkv]?): ", edge.name).groups()
            (ax, ay), (bx, by) = edge.path[0], edge.path[-1]
            start, end = self.node(start), self.node(end)
            near = [text.name for text in self.texts if abs((text.left + text.right) / 2 - bx) < 1 and 0 < by - text.bottom < 6]
            if abs(ay - start.top) > 0.2 or not start.left < ax < start.right or abs(by - end.bottom) > 0.2 or \
                    not end.left < bx < end.right or letter and near != [letter]:
                found.append(f"{edge.name} does not join them: {near}")
        return found
