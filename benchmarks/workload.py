"""A fixed workload of real English: the standard library's language reference.

The same seed gives the same token ids for the same tokenizer and Python version, so engines in
different environments are measured on the same prompts: make it once, pass the file around.

    python benchmarks/workload.py TOKENIZER_JSON WORKLOAD_JSON
"""

from __future__ import annotations

import json
import random
import sys
from pydoc_data.topics import topics

from tokenizers import Tokenizer

SEED = 20261201


def make(tokenizer: Tokenizer) -> dict[str, object]:
    """Return prompts as token ids by scenario, each with the tokens to generate."""
    rng = random.Random(SEED)
    text = "\n\n".join(" ".join(topics[name].split()) for name in sorted(topics))
    ids = tokenizer.encode(text, add_special_tokens=False).ids

    def cut(length: int) -> list[int]:
        begin = rng.randrange(0, len(ids) - length - 8)
        return ids[begin : begin + length]

    lengths = [rng.randint(32, 512) for _ in range(64)]
    offline = {"prompts": [cut(length) for length in lengths], "max_tokens": 64}
    single = {"prompts": [cut(64)], "max_tokens": 128}
    prefix = cut(512)
    shared = {"prompts": [prefix + cut(32) for _ in range(32)], "max_tokens": 16}
    serving = [tokenizer.decode(cut(rng.randint(32, 512))) for _ in range(48)]
    return {
        "offline": offline,
        "single": single,
        "shared": shared,
        "serving": {"texts": serving, "max_tokens": 64},
    }


if __name__ == "__main__":
    with open(sys.argv[2], "w") as file:
        json.dump(make(Tokenizer.from_file(sys.argv[1])), file)
