#!/usr/bin/env python3
"""Runs the RUN lines of one .qir file: text_test.py QUIRE LLVM_TOOLS FILE

    // RUN: quire compile %s --passes=fuse --emit=ir | FileCheck %s

%s is the file and %t a path for temporary files; a RUN line that ends with '\\' goes on in the next. `quire` and LLVM's
FileCheck, not and split-file are found by name. A pipeline fails when any part of it does.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

RUN = re.compile(r"//\s*RUN:\s*(.*)$", re.M)


def main() -> int:
    quire, llvm_tools, file = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    script = re.sub(r"\\\n", " ", "\n".join(RUN.findall(file.read_text())))
    if not script:
        print(f"{file}: no RUN line")
        return 1
    environment = dict(os.environ, PATH=f"{quire.parent}:{llvm_tools}:{os.environ.get('PATH', '')}")
    with tempfile.TemporaryDirectory() as folder:
        script = script.replace("%s", shlex.quote(str(file))).replace("%t", f"{folder}/t")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
    if done.returncode != 0:
        print(script, done.stdout, done.stderr, f"exit code {done.returncode}", sep="\n")
    return done.returncode


sys.exit(main())
