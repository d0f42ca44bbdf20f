"""What makers need of GPT-2's vocabulary."""


def stand_ins():
    """GPT-2's printable character for every byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(spare)) for b in range(256)]


def byte_of_character():
    return {character: b for b, character in enumerate(stand_ins())}
