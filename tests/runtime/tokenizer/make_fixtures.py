"""Trains the small tokenizers and records what the tokenizers package makes of ten thousand lines.

NAME.json is the tokenizer. NAME.expected holds the ids of the first lines, then for each block of lines three
hashes: of ids, of the text decoded from them, and of the text decoded from random ids. Training breaks ties by chance,
so NAME.json may differ from one run to the next, and the two files belong together.

    /path/to/python tests/runtime/tokenizer/make_fixtures.py
"""
import json
import os

import tokenizers

from tokenizer_lines import Lines, MASK, replace_invalid
from tokenizer_variants import VARIANTS

LINES, BLOCK, FULL, SEED = 10000, 50, 40, 11


class Fnv:
    def __init__(self):
        self.value = 0xcbf29ce484222325

    def add(self, data):
        for byte in data:
            self.value = ((self.value ^ byte) * 0x100000001b3) & MASK


def record(tokenizer, out):
    lines, draws = Lines(SEED), Lines(SEED + 1)
    size = 1 + max(tokenizer.get_vocab().values())
    out.write(f"{LINES} {BLOCK} {FULL}\n")
    hashes = []
    for block in range(LINES // BLOCK):
        ids_hash, text_hash, random_hash = Fnv(), Fnv(), Fnv()
        for i in range(BLOCK):
            ids = tokenizer.encode(replace_invalid(lines.line())).ids
            if block * BLOCK + i < FULL:
                out.write(" ".join(map(str, ids)) + "\n")
            ids_hash.add(b"".join(id.to_bytes(4, "little") for id in ids) + b"\xff")
            text_hash.add(tokenizer.decode(ids).encode() + b"\xff")
            drawn = [draws.draw(size) for _ in range(8)]
            random_hash.add(tokenizer.decode(drawn, skip_special_tokens=False).encode() + b"\xff")
        hashes.append(f"{ids_hash.value:016x} {text_hash.value:016x} {random_hash.value:016x}\n")
    out.writelines(hashes)


def main():
    print("tokenizers", tokenizers.__version__)
    folder = os.path.dirname(os.path.abspath(__file__))
    for name, make in VARIANTS.items():
        tokenizer = make()
        data = json.loads(tokenizer.to_str())
        with open(os.path.join(folder, f"{name}.json"), "w") as file:
            json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, f"{name}.json"))
        with open(os.path.join(folder, f"{name}.expected"), "w") as file:
            record(tokenizer, file)
        print(name, tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
