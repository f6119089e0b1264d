#!/usr/bin/env python3
"""A pass is called the same everywhere: pass_names.py ROOT

For every row PASS(CacheKv, "cache-kv", ...) of compiler/passes.def: the function is the flag in PascalCase, its file is
compiler/passes/cache_kv.cc and begins with the flag, and tests/compiler/cache_kv*.qir run --passes=cache-kv. No other file
lies in compiler/passes.
"""
import pathlib
import re
import sys

ROW = re.compile(r'^(?:MODULE_)?PASS\((\w+),\s*"([^"]+)"', re.M)


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    rows = ROW.findall((root / "compiler/passes.def").read_text())
    wrong = [] if rows else ["compiler/passes.def: no pass found"]
    files = set()
    for function, flag in rows:
        words = flag.split("-")
        name = "_".join(words)
        if function != "".join(word.capitalize() for word in words):
            wrong.append(f"{flag}: the function is {function}")
        source = root / f"compiler/passes/{name}.cc"
        files.add(source)
        if not source.exists():
            wrong.append(f"{flag}: no compiler/passes/{name}.cc")
        elif not source.read_text().startswith(f"// {flag}: "):
            wrong.append(f"compiler/passes/{name}.cc does not begin with '// {flag}: '")
        tests = sorted((root / "tests/compiler").glob(f"{name}*.qir"))
        if not tests:
            wrong.append(f"{flag}: no tests/compiler/{name}*.qir")
        for test in tests:
            if f"--passes={flag} " not in test.read_text():
                wrong.append(f"{test.relative_to(root)} does not run --passes={flag}")
    for source in sorted((root / "compiler/passes").glob("*")):
        if source not in files:
            wrong.append(f"{source.relative_to(root)}: not in passes.def")
    print("\n".join(wrong) if wrong else f"{len(rows)} passes are called the same everywhere")
    return 1 if wrong else 0


sys.exit(main())
