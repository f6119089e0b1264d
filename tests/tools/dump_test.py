#!/usr/bin/env python3
"""What dump says about the demo model, in text and in JSON."""
import json

import quire_test
from quire_test import QuireTest

OUTPUTS = ("summary", "ir", "passes", "kernels", "memory", "weights", "metadata")


class DumpTest(QuireTest):
    def setUp(self):
        super().setUp()
        self.story()

    def dump(self, output, *more):
        return json.loads(self.quire("dump", "story.qplan", f"--output={output}", "--format=json", *more)[0])

    def test_every_output_is_text_and_json(self):
        for output in OUTPUTS:
            text, err = self.quire("dump", "story.qplan", f"--output={output}")
            self.assertTrue(text)
            self.assertEqual(err, "")
            self.assertTrue(self.dump(output))

    def test_summary(self):
        summary = self.dump("summary")
        self.assertEqual(summary["model"]["architecture"], "llama")
        # Five layers of two KV heads of 16, for K and V, in two bytes.
        self.assertEqual(summary["targets"][0]["kv_bytes_per_token"], 5 * 2 * 16 * 2 * 2)

    def test_ir_before_and_after(self):
        raised, lowered = (self.dump("ir", f"--phase={phase}")["ir"] for phase in ("raised", "lowered"))
        self.assertIn("softmax", raised)
        self.assertNotIn("softmax", lowered)
        self.assertIn("kv_append", lowered)

    def test_raised_ir_is_a_model_of_its_own(self):
        (self.folder / "story.qir").write_text(self.dump("ir")["ir"])
        self.quire("compile", "story.qir", "-o", "again.qplan", f"--weights-dir={quire_test.ROOT}/models/demo/story")
        again = json.loads(self.quire("dump", "again.qplan", "--output=kernels", "--format=json")[0])
        self.assertEqual(again, self.dump("kernels"))

    def test_passes(self):
        passes = {row["pass"]: row for row in self.dump("passes")}
        self.assertEqual(sum(note["fired"] for note in passes["recognise-attention"]["notes"]), 5)
        self.assertTrue(passes["remove-kv-expansion"]["changed"])
        self.assertIn("plan-memory", passes)

    def test_memory_is_a_function_of_rows(self):
        memory = self.dump("memory")
        program = memory["programs"][0]
        arena = program["arena"]
        for T, R in ((1, 1), (7, 2), (512, 512)):
            total = arena["constant"] + arena["T"] * T + arena["R"] * R
            for buffer in program["buffers"]:
                offset, size = (part["constant"] + part["T"] * T + part["R"] * R
                                for part in (buffer["offset"], buffer["bytes"]))
                self.assertLessEqual(offset + size, total, buffer["name"])

    def test_weights_name_tensors(self):
        weights = self.dump("weights")
        names = {tensor["tensor"] for tensor in weights["tensors"]}
        self.assertIn("model.embed_tokens.weight", names)
        joined = [slot["parts"] for slot in weights["weights"] if "q_proj" in slot["parts"]]
        self.assertEqual(len(joined), 5)
        self.assertIn(" ++ model.layers.0.self_attn.k_proj.weight ++ ", joined[0])

    def test_metadata(self):
        metadata = self.dump("metadata")
        self.assertEqual(metadata["tokenizer"]["model"], "bpe")
        self.assertEqual(metadata["op_table"], metadata["op_table_of_this_build"])
        self.assertEqual(metadata["config"]["model_type"], "llama")

    def test_kernels(self):
        kernels = self.dump("kernels")
        launches = sum(kernel["launches"] for kernel in kernels)
        self.assertEqual(launches, self.dump("summary")["targets"][0]["launches"])


if __name__ == "__main__":
    quire_test.main()
