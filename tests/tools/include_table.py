#!/usr/bin/env python3
"""Who may include whom: the layers of the tree, and includes from the root only."""
import pathlib
import re
import sys

ALLOWED = {
    "ir": {"ir"},
    "codegen": {"codegen", "ir"},
    "models": {"models", "ir"},
    "compiler": {"compiler", "codegen", "ir"},
    "runtime": {"runtime", "codegen", "ir"},
    "tools": {"tools", "runtime", "compiler", "models", "codegen", "ir"},
    "tests": {"tests", "tools", "runtime", "compiler", "models", "codegen", "ir"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# Quoted includes of other packages.
OUTSIDE = ("absl/", "gtest/", "gmock/", "flatbuffers/", "nlohmann/", "CLI/", "unicode/", "benchmark/", "llvm-c/")


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = []
    for folder, allowed in ALLOWED.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cc", ".cuh", ".def"}:
                continue
            for included in INCLUDE.findall(path.read_text()):
                if included.startswith(OUTSIDE):
                    continue
                # NVRTC is handed headers in memory, by their bare names.
                if included.endswith(".cuh") and "/" not in included:
                    continue
                top = included.split("/")[0]
                generated = included.endswith("_generated.h")
                if "/" not in included or not (generated or (root / included).exists()):
                    wrong.append(f"{path.relative_to(root)}: \"{included}\" is not a path from the root")
                elif top not in allowed:
                    wrong.append(f"{path.relative_to(root)}: {folder} may not include {top}: \"{included}\"")
    print("\n".join(wrong) if wrong else "include table holds")
    return 1 if wrong else 0


sys.exit(main())
