#!/usr/bin/env python3
"""A build without the CPU backend: it compiles models and shows plans, and says what it cannot do."""
import quire_test
from quire_test import MISMATCH, QuireTest


class GpuOnlyTest(QuireTest):
    def setUp(self):
        super().setUp()
        self.story()

    def test_plans_can_be_shown(self):
        self.assertIn("llama", self.quire("dump", "story.qplan")[0])
        self.assertIn("attention hq=", self.quire("dump", "story.qplan", "--output=kernels")[0])

    def test_there_is_no_cpu(self):
        for verb in (["run", "-p", "x"], ["verify"], ["bench"]):
            error = self.error(verb[0], "story.qplan", *verb[1:], "--device=cpu", code=MISMATCH)
            self.assertIn("there is no device cpu", error)
            self.assertIn("QUIRE_CPU_BACKEND=ON", error)
        out, _ = self.quire("check", "story.qplan", "--device=cpu", code=MISMATCH)
        self.assertRegex(out, r"(?m)^device +no: there is no device cpu$")

    def test_there_is_no_code_for_the_cpu(self):
        error = self.error("dump", "story.qplan", "--output=kernels", "--emit=llvm", code=MISMATCH)
        self.assertIn("QUIRE_CPU_BACKEND=ON", error)


if __name__ == "__main__":
    quire_test.main()
