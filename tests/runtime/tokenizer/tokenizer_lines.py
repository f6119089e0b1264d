"""Lines of mixed scripts, code, white space and broken UTF-8, the same as tokenizer_lines.h makes."""
import argparse
import os
import re

MASK = (1 << 64) - 1


def read_atoms():
    atoms = []
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "atoms.txt")
    for line in open(path, "rb").read().split(b"\n"):
        if line.startswith(b"text "):
            escapes = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}
            atoms.append(re.sub(rb"\\(x(..)|.)",
                                lambda m: bytes([int(m[2], 16)]) if m[2] else escapes[m[1]], line[5:]))
        elif line.startswith(b"range "):
            atoms.append(tuple(int(x) for x in line.split()[1:]))
    return atoms


class Lines:
    """An endless sequence of lines, as bytes."""

    def __init__(self, seed):
        self.state = seed
        self.atoms = read_atoms()

    def draw(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % n

    def line(self):
        out = b""
        for _ in range(1 + self.draw(24)):
            atom = self.atoms[self.draw(len(self.atoms))]
            if isinstance(atom, tuple):
                atom = chr(atom[0] + self.draw(atom[1] - atom[0] + 1)).encode()
            out += atom
        return out


def replace_invalid(line):
    return line.decode("utf-8", errors="replace")


def arguments(description):
    """What every script that compares tokenizers is told: a parser, to which it may add."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("cli")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def lines_of(args):
    source = Lines(args.seed)
    return [source.line() for _ in range(args.lines)]
