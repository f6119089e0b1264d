#!/usr/bin/env python3
"""No source file is longer than 450 lines: above 400, a concept is missing. file_length.py ROOT"""
import pathlib
import sys

FOLDERS = ("ir", "models", "codegen", "compiler", "runtime", "tools", "tests")
LIMIT = 450


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cc", ".cuh", ".def", ".fbs", ".py"}:
                lines = path.read_text().count("\n")
                if lines > LIMIT:
                    wrong.append(f"{path.relative_to(root)}: {lines} lines, allowed: {LIMIT}")
    print("\n".join(wrong) if wrong else f"no file is longer than {LIMIT} lines")
    return 1 if wrong else 0


sys.exit(main())
