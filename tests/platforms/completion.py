#!/usr/bin/env python3
"""What bash, zsh and fish offer behind a line, of the programs as `make install` puts them: completion.py PREFIX

Shells find the files in share/ by themselves. bash and zsh run on a terminal, as a person's do, and list the words that
Tab would choose from; fish prints them. A shell that is not here is skipped."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile

prefix = pathlib.Path(sys.argv[1]).resolve()
LOADER = pathlib.Path("/usr/share/bash-completion/bash_completion")
MODEL = "attn-lens story.attn "
# The line, and all that is offered; or a part of it, and what is not.
CASES = [
    (MODEL + "pa", "patterns patch path pairs", None),
    (MODEL + "'Once upon' lo", "loss logit-lens", None),
    (MODEL + "--to", "--top --towards", None),
    ("attn-lens patch story.attn --", "--by --pairs --model --help --towards", "--transcoders --tuned --edges"),
    (MODEL + "steer Once --", "--towards --vector", "--by --pairs --edit"),
    (MODEL + "patch --by ", "positions heads position-heads sources source-heads weights", None),
    (MODEL + "patch --by=po", "positions position-heads", None),
    (MODEL + "patch -q --isa neon", "neon neon-dot neon-i8mm", None),
    (MODEL + "loss --top ", "", None),
    (MODEL + "loss --top 3 ", "", None),
    (MODEL + "graph --transcoders ", "features story.attn", None),
    (MODEL + "sae ", "features story.attn", None),
    (MODEL + "loss -f ", "features story.attn", None),
    (MODEL + "patch Once ", "", None),
    ("attn-lens -m story.attn s", "sae steer", None),
    ("attn-lens st", "steer story.attn", None),
    ("attn-gpt2 story.attn --top", "--top-k --top-p", None),
    ("attn-gpt2 ", "features story.attn", None),
    ("attn-score --task ", "score generate embed", "story.attn features"),
    ("attn-convert --dtype q", "q8 q4", None),
]


class Terminal:
    """A shell on a terminal, and the key with which it lists words."""

    def __init__(self, key: str, setup: str, *command: str):
        self.key = key
        child, self.file = pty.fork()
        if child == 0:
            os.execvp(command[0], command)
        self.read(f"PS1='at> '; stty columns 500; {setup}\r")

    def read(self, keys: str) -> str:
        """What is printed behind the keys, until another command ends, and the shell is at its prompt again."""
        text = ""
        os.write(self.file, f"{keys}\x15echo e$((1))d\r".encode())
        while "at> " not in text.partition("e1d")[2]:
            assert select.select([self.file], [], [], 60)[0], f"nothing comes behind {text!r}"
            text += os.read(self.file, 65536).decode()
        return text[:text.index("e1d")]

    def __call__(self, line: str) -> "list[str]":
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.read(line + self.key))
        return [word for one in re.split(r"[\r\n]+", text) if "attn-" not in one and "echo" not in one
                for word in one.split()]


def bash() -> Terminal:
    source = LOADER if LOADER.exists() else f"{prefix}/share/bash-completion/completions/*"
    return Terminal("\x1b?", "bind 'set page-completions off'; bind 'set completion-query-items 0'; "
                    f"bind 'set enable-bracketed-paste off'; for f in {source}; do source $f; done",
                    "bash", "--norc", "--noprofile", "-i")


def zsh() -> Terminal:
    return Terminal("\x04", f"unsetopt prompt_sp; LISTMAX=1000; fpath=({prefix}/share/zsh/site-functions $fpath); "
                    "autoload compinit; compinit -u -D; zstyle ':completion:*' verbose no", "zsh", "-f", "-i")


def fish(line: str) -> "list[str]":
    got = subprocess.run(["fish", "-c", f'complete -C "{line}"'], capture_output=True, text=True)
    assert not got.stderr, got.stderr
    return [one.split("\t")[0].split("=")[-1] for one in got.stdout.splitlines()]


failed = skipped = 0
with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    open("story.attn", "w").close()
    os.mkdir("features")
    os.environ.update(PATH=f"{prefix}/bin:{os.environ['PATH']}", TERM="dumb", HOME=place + "/features",
                      XDG_DATA_DIRS=f"{prefix}/share:/usr/share")
    for shell in (bash, zsh, fish):
        if not shutil.which(shell.__name__):
            skipped += 1
            print(f"skipped: there is no {shell.__name__} here")
            continue
        offers = fish if shell is fish else shell()
        for line, expected, absent in CASES:
            got = {word.rstrip("/") for word in offers(line)} - {"\a", "at>"}
            wrong = set(expected.split()) - got | got & set((absent or "").split())
            if wrong or absent is None and got != set(expected.split()):
                failed += 1
                print(f"FAILED: {shell.__name__} offers behind \"{line}\": {' '.join(sorted(got))}\n"
                      f"    expected {expected}, without {absent or 'others'}")
print(f"{3 - skipped - (failed > 0)} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
