#!/usr/bin/env python3
"""What the command line says of CUDA, on machines with and without a GPU, a driver, NVRTC, a disassembler."""
import json
import os
import subprocess
import unittest

import quire_test
from checkpoints import write_llama
from quire_test import FAILURE, MISMATCH, USAGE, QuireTest

STORY = "models/demo/story"


def environment(**changes):
    return {**os.environ, **changes}


class TargetTest(QuireTest):
    def compile_error(self, target, code=USAGE):
        return self.error("compile", quire_test.ROOT / STORY, "-o", "x.qplan", f"--target={target}", code=code)

    def test_unknown_targets_and_architectures(self):
        for target in ("rocm", "cpu:sm_90a", "cuda:", "cpu,,cuda", ","):
            self.assertIn("allowed: cpu, cuda", self.compile_error(target))
        self.assertIn("allowed: sm_80, ", self.compile_error("cuda:sm_70,cpu"))
        self.assertEqual(self.files(), [])


class DefaultTargetTest(QuireTest):
    def targets(self, *arguments):
        self.story("x.qplan", "--force", *arguments)
        summary = json.loads(self.quire("dump", "x.qplan", "--format=json")[0])
        return [target["name"] for target in summary["targets"]]

    def test_weights_by_reference_suit_both(self):
        self.assertEqual(self.targets(), ["cpu", "cuda"])
        self.assertEqual(self.targets("--weights=pack"), ["cpu"])
        self.assertEqual(self.targets("--weights=pack", "--target=cuda"), ["cuda"])
        self.assertEqual(self.targets("--target=cpu"), ["cpu"])

    def test_why_it_is_not_the_gpu(self):
        """A plan for GPUs alone, on a machine that has none."""
        self.story("x.qplan", "--target=cuda")
        done = subprocess.run([quire_test.QUIRE, "run", "x.qplan", "-p", "Once", "-n", "1"], cwd=self.folder,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(done.returncode, MISMATCH, done.stderr)
        self.assertIn("  now: no GPU was found, so it is the CPU: cuda: ", done.stderr)

    def test_what_each_is_lowered_to(self):
        self.story("x.qplan")
        lowered, _ = self.quire("dump", "x.qplan", "--output=ir", "--phase=lowered", "--target=cuda")
        self.assertIn("// cuda: values between groups (@) are stored as bf16", lowered)
        self.assertIn("layout=rows\n", self.quire("dump", "x.qplan", "--output=kernels", "--target=cuda")[0])
        self.assertIn("layout=rows16\n", self.quire("dump", "x.qplan", "--output=kernels")[0])
        self.assertIn(" bf16[T,", self.quire("dump", "x.qplan", "--output=memory", "--target=cuda")[0])

    def test_a_target_without_a_kernel_is_left_out_unless_it_is_named(self):
        # Rows of 36 values are no multiple of 16 bytes.
        write_llama(self.folder / "model", intermediate_size=36)
        _, err = self.quire("compile", "model", "-o", "x.qplan")
        self.assertRegex(err, r"(?m)^left out   cuda: .*k=36")
        summary = json.loads(self.quire("dump", "x.qplan", "--format=json")[0])
        self.assertEqual([target["name"] for target in summary["targets"]], ["cpu"])
        self.quire("compile", "model", "-o", "y.qplan", "--target=cuda")

    def test_ir_of_each_target(self):
        self.story("x.qplan", "--dump-ir=phases")
        for folder in ("phases", "phases/cuda"):
            self.assertIn("00-input.qir", [path.name for path in (self.folder / folder).iterdir()])


class PlanWithBinariesTest(QuireTest):
    ARCHITECTURES = ("sm_80", "sm_90a")

    def setUp(self):
        super().setUp()
        target = ",".join(f"cuda:{name}" for name in self.ARCHITECTURES) + ",cpu"
        if not has_nvrtc():
            error = self.error("compile", quire_test.ROOT / STORY, f"--target={target}", code=MISMATCH)
            self.assertIn("NVRTC", error)
            self.assertIn("fix: ", error)
            self.skipTest("UNAVAILABLE: no NVRTC here")
        self.story("cuda.qplan", f"--target={target}")

    def kernels(self, *more):
        return json.loads(self.quire("dump", "cuda.qplan", "--output=kernels", "--format=json", *more)[0])

    def test_every_entry_has_a_binary_of_each_architecture(self):
        for architecture in self.ARCHITECTURES:
            kernels = self.kernels("--target=cuda", "--emit=cuda", f"--arch={architecture}")
            # Kernels share texts; the first that has one brings its binary, and others may bring none.
            all_binaries = [binary for kernel in kernels for binary in kernel.get("binaries", [])]
            binaries = {b["entry"] for b in all_binaries if b["architecture"] == architecture}
            for kernel in kernels:
                entries = {entry["entry"] for entry in kernel["entries"]}
                self.assertTrue(entries)
                # And more, where devices of an architecture want other entries.
                self.assertLessEqual(entries, binaries)

    def test_texts_with_what_they_take(self):
        for kernel in self.kernels("--emit=cuda"):
            self.assertTrue(kernel["entries"][0]["cuda"].startswith("// " + kernel["spec"].splitlines()[0]))
            for entry in kernel["entries"]:
                self.assertRegex(entry["cuda"], r"^// (linear|attention|row) ")
                self.assertGreater(entry["registers"], 0)
                self.assertEqual(entry["spill_store_bytes"] + entry["spill_load_bytes"], 0)
        text, _ = self.quire("dump", "cuda.qplan", "--output=kernels", "--emit=ptx", "--arch=sm_80")
        self.assertIn(".target sm_80", text)
        self.assertRegex(text, r"(?m)^// \w+ for sm_80: \d+ threads, .* \d+ registers, no spills$")

    def test_emits_of_another_target(self):
        error = self.error("dump", "cuda.qplan", "--output=kernels", "--emit=ptx", "--target=cpu", code=USAGE)
        self.assertIn("fix: --target=cuda", error)

    def test_instructions_by_a_disassembler_on_the_path(self):
        tool = self.folder / "nvdisasm"
        tool.write_text("#!/bin/sh\nhead -c 4 \"$2\" | tail -c 3\necho ' by nvdisasm'\n")
        tool.chmod(0o755)
        text, _ = self.quire("dump", "cuda.qplan", "--output=kernels", "--emit=sass",
                             env=environment(PATH=f"{self.folder}:{os.environ['PATH']}"))
        entries = sum(len(kernel["entries"]) for kernel in self.kernels("--emit=cuda"))
        self.assertEqual(text.count("ELF by nvdisasm"), entries)

    @unittest.skipIf(os.path.exists("/usr/local/cuda/bin/nvdisasm") or os.path.exists("/usr/local/cuda/bin/cuobjdump"),
                     "a disassembler is in the toolkit's place")
    def test_instructions_without_a_disassembler(self):
        error = self.error("dump", "cuda.qplan", "--output=kernels", "--emit=sass", code=MISMATCH,
                           env=environment(PATH="/nowhere", CUDA_HOME="/nowhere"))
        self.assertIn("neither nvdisasm nor cuobjdump", error)
        self.assertIn("fix: ", error)

    def test_check_says_all_that_is_missing(self):
        out, err = self.check()
        for question in ("plan", "target", "weights"):
            self.assertRegex(out, rf"(?m)^{question} +ok: ")
        self.assertRegex(out, r"(?m)^compiler +ok: NVRTC \d+\.\d+$")
        if has_driver():
            self.assertRegex(out, r"(?m)^kernels +ok: \d+ in the plan")
            return
        self.assertRegex(out, r"(?m)^driver +no: cuda: ")
        self.assertIn("fix: install the driver", out)
        self.assertRegex(out, r"(?m)^kernels +binaries in the plan: \d+ for sm_80, \d+ for sm_90a$")
        self.assertIn("--device cpu", err)

    def check(self):
        return self.quire("check", "cuda.qplan", "--device=cuda", code=quire_test.OK if has_driver() else MISMATCH)

    def test_corrupt_binaries_are_not_used(self):
        plan = self.folder / "cuda.qplan"
        content = bytearray(plan.read_bytes())
        content[4096 + 200] ^= 1
        plan.write_bytes(content)
        self.assertIn("binary of ", self.error("check", "cuda.qplan", "--device=cpu", "--contents", "-q", code=FAILURE))
        tool = self.folder / "nvdisasm"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        error = self.error("dump", "cuda.qplan", "--output=kernels", "--emit=sass", f"--arch={self.ARCHITECTURES[0]}",
                           code=FAILURE, env=environment(PATH=f"{self.folder}:{os.environ['PATH']}"))
        self.assertIn("checksum differs", error)


def has_nvrtc():
    return any(os.path.exists(f"{folder}/libnvrtc.so.{version}") for version in (12, 13)
               for folder in ("/usr/local/cuda/lib64", os.environ.get("CUDA_HOME", "") + "/lib64"))


def has_driver():
    return os.path.exists("/dev/nvidiactl")


if __name__ == "__main__":
    quire_test.main()
