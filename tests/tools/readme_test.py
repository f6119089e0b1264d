#!/usr/bin/env python3
"""The tables of README.md are what the tools print: readme_test.py QUIRE ROOT [--update]

A block between the lines '<!-- quire ARGUMENTS -->' and '<!-- end -->' is the output of that command. --update writes them.
"""
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"(<!-- quire ([^\n]*?) -->\n)(.*?)(<!-- end -->\n)", re.S)


def main() -> int:
    quire, root = sys.argv[1], pathlib.Path(sys.argv[2])
    readme = root / "README.md"
    text = readme.read_text()
    blocks = 0

    def printed(match):
        nonlocal blocks
        blocks += 1
        out = subprocess.run([quire, *match[2].split()], check=True, capture_output=True, text=True).stdout
        return f"{match[1]}\n{out}\n{match[4]}"

    updated = BLOCK.sub(printed, text)
    if "--update" in sys.argv:
        readme.write_text(updated)
    elif updated != text:
        print("README.md: a table differs from what the tools print\n  fix: tests/tools/readme_test.py QUIRE . --update")
        return 1
    print(f"{blocks} tables")
    return 0 if blocks >= 3 else 1


sys.exit(main())
