"""python -m attn [PROMPT]: the included model goes on with a text."""
import os
import sys

import attn


def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "Once upon a time"
    print(prompt, end="", flush=True)
    sampling = attn.Sampling(temperature=0.7, top_k=40, seed=1)
    for piece in attn.load("tiny-stories").session().generate(prompt, max_tokens=200, sampling=sampling):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # `python -m attn | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
