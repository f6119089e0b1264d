#!/usr/bin/env python3
"""A binary starts on a machine without a GPU driver: needed_libraries.py BINARY

It must not be linked to the driver or to CUDA's libraries, which are opened at run time where they exist.
"""
import re
import subprocess
import sys

FORBIDDEN = re.compile(r"lib(cuda|cudart|nvrtc|cublas|cublasLt|nccl|cudnn)\.so")


def main() -> int:
    dynamic = subprocess.run(["readelf", "-d", sys.argv[1]], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    wrong = [library for library in needed if FORBIDDEN.match(library)]
    if not needed:
        print(f"{sys.argv[1]}: no dynamic section")
        return 1
    print(f"{sys.argv[1]} needs {', '.join(wrong)}" if wrong else "\n".join(needed))
    return 1 if wrong else 0


sys.exit(main())
