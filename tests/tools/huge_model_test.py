#!/usr/bin/env python3
"""A 13 GB model compiles by reference without its weights being read: the file has no blocks, and memory stays small."""
import os
import resource
import time

import quire_test
from checkpoints import write_sparse_llama_7b
from quire_test import QuireTest

MOST_MEGABYTES = 200


class HugeModelTest(QuireTest):
    def test_llama_7b_by_reference(self):
        (self.folder / "llama-7b").mkdir()
        model_bytes = write_sparse_llama_7b(self.folder / "llama-7b")
        self.assertGreater(model_bytes, 13_000_000_000)
        begin = time.monotonic()
        self.quire("compile", "llama-7b")
        seconds = time.monotonic() - begin
        megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        plan_bytes = os.path.getsize(self.folder / "llama-7b.qplan")
        print(f"{model_bytes / 1e9:.1f} GB compiled in {seconds:.2f} s with {megabytes:.0f} MB, to {plan_bytes} bytes")
        self.assertLess(megabytes, MOST_MEGABYTES)
        self.assertLess(plan_bytes, 4_000_000)


if __name__ == "__main__":
    quire_test.main()
