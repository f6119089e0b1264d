#!/usr/bin/env python3
"""Generating text with the demo model from the command line."""
import json
import math
import os
import re
import shutil
import struct

import quire_test
from quire_test import FAILURE, MISMATCH, QuireTest, UNSUPPORTED, USAGE, VERIFICATION

PROMPTS = ("Once upon a time", "The little dog", "One day a girl named")


class RunTest(QuireTest):
    def setUp(self):
        super().setUp()
        self.story()

    def run_json(self, *arguments):
        return json.loads(self.quire("run", "story.qplan", "--output=json", *arguments)[0])

    def test_text_is_data_and_timing_is_not(self):
        out, err = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "24")
        self.assertGreater(len(out.split()), 8)
        self.assertTrue(out.endswith("\n"))
        self.assertIn("tokens/s", err)
        self.assertNotIn("tokens/s", out)
        quiet = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "24", "-q")
        self.assertEqual(quiet, (out, ""))

    def test_timing_of_prompts_and_of_what_follows(self):
        for flags, width in (([], 1), (["--beams=4"], 4), (["--samples=3", "--temperature=1", "--seed=1"], 3)):
            # The last of a prompt's step is the first of the output; of a search each step takes all beams.
            timing = self.run_json("--ids=5,6,7", "-n", "9", "--ignore-eos", *flags)["timing"]
            self.assertEqual((timing["prompt_tokens"], timing["decoded_tokens"]), (3, 8 * width), flags)
        timing = self.run_json("--ids=5", "-n", "3", "--ignore-eos", "--beams=60", "--samples=60")["timing"]
        self.assertEqual((timing["prompt_tokens"], timing["decoded_tokens"]), (1, 2 * 60))

    def test_echo_puts_the_prompt_first(self):
        out, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "8")
        self.assertEqual(self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "8", "--echo")[0], PROMPTS[0] + out)

    def test_text_ids_and_json_agree(self):
        text, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "20")
        ids, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "20", "--output=ids")
        result = self.run_json("-p", PROMPTS[0], "-n", "20")["results"][0]
        self.assertEqual(result["text"] + "\n", text)
        self.assertEqual(result["ids"], [int(word) for word in ids.split()])

    def test_prompts_together_and_alone(self):
        together = self.run_json(*(word for prompt in PROMPTS for word in ("-p", prompt)), "-n", "32", "--logprobs")
        for prompt, result in zip(PROMPTS, together["results"], strict=True):
            alone = self.run_json("-p", prompt, "-n", "32", "--logprobs")["results"][0]
            self.assertEqual(alone["ids"], result["ids"])
            self.assertEqual(alone["logprobs"], result["logprobs"])

    def test_several_prompts_are_labelled(self):
        (self.folder / "third.txt").write_text(PROMPTS[2])
        out, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-p", PROMPTS[1], "--prompt-file", "third.txt",
                            "-n", "4")
        labels = [line for line in out.splitlines() if line.startswith("=== ")]
        self.assertEqual(labels, ["=== prompt 1", "=== prompt 2", "=== third.txt"])

    def test_results_stand_as_prompts_do(self):
        (self.folder / "first.txt").write_text(PROMPTS[2])
        results = self.run_json("--ids=5,6", "--prompt-file", "first.txt", "-p", PROMPTS[0], "--ids=1,2", "-p",
                                PROMPTS[1], "-n", "4")["results"]
        self.assertEqual([result["prompt"] for result in results],
                         ["prompt 1", "first.txt", "prompt 3", "prompt 4", "prompt 5"])
        for result, prompt in zip(results, (["--ids=5,6"], ["-p", PROMPTS[2]], ["-p", PROMPTS[0]], ["--ids=1,2"],
                                            ["-p", PROMPTS[1]]), strict=True):
            self.assertEqual(self.run_json(*prompt, "-n", "4")["results"][0]["ids"], result["ids"])

    def test_ids_that_are_none(self):
        for ids, said in (("1,,2", "between two commas"), ("1, ,2", "between two commas"),
                          (",,", "before the first comma"), ("1,", "behind the last comma")):
            self.assertIn(f"--ids: no id {said}", self.error("run", "story.qplan", f"--ids={ids}", code=USAGE))

    def test_flags_of_gpus_on_a_cpu_that_auto_chose(self):
        self.story("cpu.qplan", "--target=cpu")
        for flag in ("--eager", "--portable"):
            error = self.error("run", "cpu.qplan", "-p", "a", flag, code=USAGE)
            self.assertIn(f"{flag} has no effect on the CPU", error)
            self.assertIn("allowed: with --device=cuda", error)
            # Known before weights are looked for.
            self.assertEqual(self.error("run", "cpu.qplan", "-p", "a", flag, "--weights-dir=nowhere", code=USAGE), error)

    def test_a_prompt_comes_through_a_pipe(self):
        given, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "-n", "8")
        piped, _ = self.quire("run", "story.qplan", "--prompt-file=-", "-n", "8", stdin=PROMPTS[0])
        self.assertEqual(piped, given)
        # The last line's end is not the prompt's.
        for name, text in (("-", PROMPTS[0] + "\n"), ("/dev/stdin", PROMPTS[0] + "\r\n")):
            self.assertEqual(self.quire("run", "story.qplan", "--prompt-file", name, "-n", "8", stdin=text)[0], given)
        out, _ = self.quire("run", "story.qplan", "-p", PROMPTS[0], "--prompt-file", "-", "-n", "4", stdin=PROMPTS[1])
        labels = [line for line in out.splitlines() if line.startswith("=== ")]
        self.assertEqual(labels, ["=== prompt 1", "=== standard input"])

    def test_chunks_threads_and_memory_change_nothing(self):
        prompt = " ".join(PROMPTS)
        whole = self.run_json("-p", prompt, "-n", "24", "--logprobs")["results"]
        for more in (["--chunk=1"], ["--chunk=5"], ["--threads=1"], ["--threads=2"], ["--memory=1MiB"]):
            self.assertEqual(self.run_json("-p", prompt, "-n", "24", "--logprobs", *more)["results"], whole, more)

    def test_seed_decides_the_draw(self):
        def draw(seed):
            return self.run_json("-p", PROMPTS[0], "-n", "32", "--temperature=1.5", f"--seed={seed}")["results"]

        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_a_seed_that_is_no_seed(self):
        for seed in ("18446744073709551616", "99999999999999999999999", "-1", "0x10", "1.5", ""):
            self.assertIn("--seed", self.error("run", "story.qplan", "-p", "a", "--temperature=1", f"--seed={seed}",
                                               code=USAGE))
        self.run_json("-p", "a", "-n", "2", "--temperature=1", "--seed=18446744073709551615")
        self.assertIn("--seed", self.error("verify", "story.qplan", "--seed=4294967296", code=USAGE))

    def test_an_empty_prompt_is_what_stands_around_a_text(self):
        empty = self.run_json("-p", "", "-n", "20")["results"][0]["ids"]
        self.assertEqual(empty, self.run_json("--ids", "0", "-n", "20")["results"][0]["ids"])

    def test_samples_differ(self):
        results = self.run_json("-p", PROMPTS[0], "-n", "32", "--temperature=1.5", "--samples=3")["results"]
        self.assertEqual(len({tuple(result["ids"]) for result in results}), 3)
        self.assertEqual(results[1]["prompt"], "prompt 1, sample 2")

    def test_top_k_of_one_is_greedy(self):
        greedy = self.run_json("-p", PROMPTS[1], "-n", "24", "--greedy")["results"]
        self.assertEqual(self.run_json("-p", PROMPTS[1], "-n", "24", "--top-k=1")["results"], greedy)

    def test_stop_text_is_left_out(self):
        whole = self.run_json("-p", PROMPTS[0], "-n", "40")["results"][0]["text"]
        stop = whole.split()[4]
        result = self.run_json("-p", PROMPTS[0], "-n", "40", "--stop", stop)["results"][0]
        self.assertEqual(result["finish"], "stop-string")
        self.assertEqual(result["text"], whole[:whole.index(stop)])
        later = whole.split()[6]
        earliest = self.run_json("-p", PROMPTS[0], "-n", "40", "--stop", later, "--stop", stop)["results"][0]
        self.assertEqual(earliest["text"], result["text"])

    def test_a_definition_that_keeps_nothing(self):
        (self.folder / "bigram.qir").write_text("""func @step(%ids: i32[T], %pos: i32[T]) {
  %w = weight {name="model.embed_tokens.weight"} : bf16[1280,128]
  %e = embed %w, %ids : f32[T,128]
  %y = linear %e, %w : f32[T,1280]
  return %y
}
""")
        self.quire("compile", "bigram.qir", f"--weights-dir={quire_test.ROOT / 'models/demo/story'}", "-o", "bigram.qplan")
        ids, _ = self.quire("run", "bigram.qplan", "--ids=1,2", "-n", "3", "--output=ids")
        self.assertEqual(len(ids.split()), 3)

    def test_ids_several_times(self):
        results = self.run_json("--ids=1,2", "--ids=3,4", "-n", "4")["results"]
        self.assertEqual(len(results), 2)

    def test_log_probabilities_are_those_of_the_choice(self):
        result = self.run_json("-p", PROMPTS[0], "-n", "8", "--top-logprobs=3")["results"][0]
        for chosen, logprob, top in zip(result["ids"], result["logprobs"], result["top_logprobs"], strict=True):
            self.assertEqual(top[0], {"id": chosen, "logprob": logprob})
            self.assertLessEqual(logprob, 0)
            self.assertEqual(len(top), 3)

    def test_length(self):
        result = self.run_json("-p", PROMPTS[0], "-n", "5", "--ignore-eos")["results"][0]
        self.assertEqual((len(result["ids"]), result["finish"]), (5, "length"))

    def test_length_that_the_model_states(self):
        folder = self.folder / "model"
        shutil.copytree(quire_test.ROOT / "models/demo/story", folder)
        generation = json.loads((folder / "generation_config.json").read_text())

        def lengths(**changes):
            (folder / "generation_config.json").write_text(json.dumps({**generation, **changes}))
            self.quire("compile", "model", "-o", "own.qplan", "--force")
            out, _ = self.quire("run", "own.qplan", "--ids=5,6,7", "--ignore-eos", "--output=json")
            result = json.loads(out)["results"][0]
            self.assertEqual(result["finish"], "length")
            return len(result["ids"])

        self.assertEqual(generation["max_new_tokens"], 300)
        self.assertEqual(lengths(), 300)
        # No more than fit, and those that are new go before those that are all.
        self.assertEqual(lengths(max_new_tokens=10 ** 6, max_length=20), 512 - 3 + 1)
        self.assertEqual(lengths(max_new_tokens=None, max_length=40), 37)
        self.assertEqual(lengths(max_new_tokens=None), 64)
        lengths(max_new_tokens=None, max_length=40)
        error = self.error("run", "own.qplan", "--ids=5" + ",5" * 39, "--output=ids", code=UNSUPPORTED)
        self.assertIn("leaves none of max_length=40", error)
        self.assertIn("fix: say how many tokens to generate by --max-tokens", error)
        self.quire("run", "own.qplan", "--ids=5" + ",5" * 39, "--output=ids", "-n1")

    def test_packed_plan_says_the_same(self):
        expected = self.run_json("-p", PROMPTS[0], "-n", "24", "--logprobs")["results"]
        self.story("packed.qplan", "--weights=pack")
        out, _ = self.quire("run", "packed.qplan", "-p", PROMPTS[0], "-n", "24", "--logprobs", "--output=json")
        self.assertEqual(json.loads(out)["results"], expected)

    def test_packed_plan_whose_files_are_gone(self):
        folder = self.folder / "model"
        shutil.copytree(quire_test.ROOT / "models/demo/story", folder)
        self.quire("compile", "model", "-o", "packed.qplan", "--weights=pack")
        shutil.rmtree(folder)
        for flags in (["--weights=ref"], ["--weights=pack"], [], ["--weights=ref", "--weights-dir=nowhere"]):
            error = self.error("compile", "packed.qplan", "-o", "again.qplan", *flags, "--dump-ir=ir", code=UNSUPPORTED)
            self.assertIn("error: packed.qplan: its weights' files must be there: ", error)
            self.assertIn("/model.safetensors: cannot open", error)
            self.assertEqual(self.files(), ["packed.qplan", "story.qplan"])  # found out before the work

    def test_plan_lowered_again_says_the_same(self):
        expected = self.run_json("-p", PROMPTS[0], "-n", "24", "--logprobs")["results"]
        self.quire("compile", "story.qplan", "-o", "again.qplan")
        out, _ = self.quire("run", "again.qplan", "-p", PROMPTS[0], "-n", "24", "--logprobs", "--output=json")
        self.assertEqual(json.loads(out)["results"], expected)

    def test_flags_of_a_plan_lowered_again(self):
        _, err = self.quire("compile", "story.qplan", "-o", "again.qplan", "--kv-dtype=f32", "--page-tokens=4", "--explain")
        self.assertIn("recognise-attention", err)
        summary = json.loads(self.quire("dump", "again.qplan", "--format=json")[0])
        self.assertEqual([target["name"] for target in summary["targets"]], ["cpu", "cuda"])
        memory, _ = self.quire("dump", "again.qplan", "--output=memory")
        self.assertIn("pages of 4 tokens", memory)
        # Five layers of two KV heads of 16, for K and V, in four bytes.
        self.assertEqual(summary["targets"][0]["kv_bytes_per_token"], 5 * 2 * 16 * 2 * 4)


class LogprobsNeedAFormat(QuireTest):
    def test_text_has_no_room(self):
        self.assertIn("--output=ids or json", self.error("run", "x", "-p", "y", "--logprobs", code=quire_test.USAGE))


class CheckTest(QuireTest):
    def test_everything_is_there(self):
        self.story()
        out, _ = self.quire("check", "story.qplan")
        for question in ("plan", "target", "device", "weights", "memory", "load"):
            self.assertRegex(out, rf"(?m)^{question} +ok: ")
        self.assertEqual(self.quire("check", "story.qplan", "-q"), ("", ""))

    def test_where_each_kernel_would_come_from(self):
        self.story()
        kernels = json.loads(self.quire("dump", "story.qplan", "--output=kernels", "--format=json")[0])
        cache = {**os.environ, "QUIRE_CACHE": str(self.folder / "cache")}

        def check(*arguments, code=quire_test.OK):
            out, err = self.quire("check", "story.qplan", "--device=cpu", *arguments, code=code, env=cache)
            return re.findall(r"(?m)^ +(in the cache|to compile): kernel \d+, (linear|attention|row)\b", out), out, err

        count = len(kernels)
        places, out, _ = check()
        self.assertEqual([place for place, _ in places], ["to compile"] * count)
        self.assertRegex(out, rf"(?m)^kernels +ok: 0 in the cache, {count} to compile$")
        places, out, _ = check()
        self.assertEqual([place for place, _ in places], ["in the cache"] * count)
        shutil.rmtree(self.folder / "cache")
        _, out, err = check("--jit=never", code=MISMATCH)
        self.assertRegex(out, r"(?m)^kernels +no: ")
        self.assertIn("fix: --jit=auto", err)


class JitTest(QuireTest):
    def test_never_compiles_nothing_and_finds_what_was_compiled(self):
        self.story()
        cache = {**os.environ, "QUIRE_CACHE": str(self.folder / "cache")}
        error = self.error("run", "story.qplan", "--device=cpu", "--ids=1,2", "--jit=never", "-n1", "--output=ids",
                           code=MISMATCH, env=cache)
        self.assertRegex(error, r"^error: launch \S+, kernel \d+: cpu: --jit=never, and a kernel would have to be compiled: "
                                r"[^\n]+\n  fix: --jit=auto[^\n]*\n$")
        for jit in ("auto", "never"):
            self.quire("run", "story.qplan", "--device=cpu", "--ids=1,2", f"--jit={jit}", "-n1", "--output=ids", env=cache)


class VerifyTest(QuireTest):
    def test_demo_model(self):
        self.story()
        out, _ = self.quire("verify", "story.qplan", "-p", PROMPTS[0])
        self.assertEqual(out.count("passes: ok: "), 1)
        self.assertEqual(out.count("reference: ok: "), 2)
        self.assertRegex(out, r"(?m)^launches: ok: (\d+) of \1 launches, ")
        self.assertEqual(out.count("same bits: ok: "), 7)
        self.assertRegex(out, r"(?m)^same tokens: ok: \d+ of an engine that preempted [1-9]\d* times$")

    def test_other_weights_than_the_definition_has(self):
        plan = self.story("packed.qplan", "--weights=pack")
        content = bytearray(plan.read_bytes())
        # The first weight of the plan; opening reads no contents of sections.
        content[4096:8192] = content[8192:12288]
        plan.write_bytes(content)
        out, _ = self.quire("verify", "packed.qplan", code=VERIFICATION)
        self.assertRegex(out, r"reference: DIFFERS: prefill of 16 tokens: relative error of the logits \S+, allowed \S+;")
        self.assertRegex(out, r"(?m)^launches: DIFFERS: launch \d+ of step, .* off by ")
        self.error("check", "packed.qplan", "--contents", "-q", code=FAILURE)


class ImagesTest(QuireTest):
    def test_positions(self):
        self.quire("compile", quire_test.ROOT / "tests/parity/fixtures/mllama", "-o", "mllama.qplan")
        states = struct.pack("<192f", *(math.sin(i) for i in range(192)))
        header = json.dumps({"states": {"dtype": "F32", "shape": [6, 32], "data_offsets": [0, len(states)]}}).encode()
        with open(self.folder / "images.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + states)

        def results(*arguments):
            out, _ = self.quire("run", "mllama.qplan", "--ids=5,6,7,8,9", "--source-states=images.safetensors", "-n", "4",
                                "--output=json", "--logprobs", "--ignore-eos", *arguments)
            return json.loads(out)["results"]

        self.assertEqual(results("--image-positions=0"), results())
        self.assertNotEqual(results("--image-positions=3"), results())
        self.assertNotEqual(results("--image-positions=2,3"), results("--image-positions=1,3"))

        def error(*arguments):
            return self.error("run", "mllama.qplan", "--ids=5,6,7,8,9", "--source-states=images.safetensors",
                              "--output=ids", *arguments, code=UNSUPPORTED)

        self.assertIn("--image-positions: 4 images for 6 rows of states", error("--image-positions=0,1,2,3"))
        self.assertIn("an image at position 5", error("--image-positions=5"))
        with open(self.folder / "broken.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + states[:400] + struct.pack("<f", math.nan) + states[404:])
        message = self.error("run", "mllama.qplan", "--ids=5", "--source-states=broken.safetensors", "--output=ids",
                             code=UNSUPPORTED)
        self.assertIn("error: broken.safetensors: states: element 100 is nan\n", message)

        for path, said in (("nope", "nope: cannot open"), (self.folder.anchor + "tmp", "/tmp: is a directory")):
            message = self.error("run", "mllama.qplan", "--ids=5", f"--source-states={path}", "--output=ids", code=UNSUPPORTED)
            self.assertIn(f"error: {said}", message)


class BenchTest(QuireTest):
    def test_json(self):
        self.story()
        out, _ = self.quire("bench", "story.qplan", "--prompt=32", "--gen=8", "--batch=1,3", "--repeat=2",
                            "--format=json")
        bench = json.loads(out)
        self.assertEqual([row["batch"] for row in bench["results"]], [1, 3])
        for row in bench["results"]:
            self.assertGreater(row["prefill_tokens_per_s"], 0)
            self.assertGreater(row["decode_tokens_per_s"], 0)
            self.assertGreater(row["decode_bandwidth_share"], 0)

    def test_lengths_fit_the_positions_of_the_model(self):
        self.story()
        self.quire("compile", quire_test.ROOT / "models/demo/dates", "-o", "dates.qplan")

        def lengths(plan, *arguments):
            out, _ = self.quire("bench", plan, "--repeat=1", "--format=json", *arguments)
            bench = json.loads(out)
            return bench["prompt"], bench["gen"], bench["source"]

        self.assertEqual(lengths("story.qplan"), (385, 128, 0))
        self.assertEqual(lengths("story.qplan", "--prompt=500"), (500, 13, 0))
        self.assertEqual(lengths("story.qplan", "--gen=200"), (313, 200, 0))
        self.assertEqual(lengths("story.qplan", "--prompt=8", "--context=500"), (8, 12, 0))
        self.assertEqual(lengths("dates.qplan"), (97, 32, 128))
        self.assertEqual(lengths("dates.qplan", "--source=5,100", "--batch=3"), (97, 32, [5, 100]))

        def said(plan, *arguments):
            return self.error("bench", plan, *arguments, code=UNSUPPORTED)

        error = said("story.qplan", "--prompt=500", "--gen=14")
        self.assertIn("error: --prompt=500 and --gen=14 are too long, 512 positions are defined", error)
        self.assertIn("fix: --prompt=499, or --gen=13\n", error)
        self.assertIn("fix: --prompt=512, or less\n", said("story.qplan", "--prompt=513"))
        self.assertIn("fix: --gen=512, or less\n", said("story.qplan", "--gen=513"))
        self.assertIn("fix: --prompt=385, or less\n", said("story.qplan", "--prompt=600", "--gen=128"))
        error = said("story.qplan", "--prompt=8", "--context=500", "--gen=13")
        self.assertIn("error: --context=500 and --gen=13 are too long", error)
        self.assertIn("fix: --context=499, or --gen=12\n", error)
        error = said("dates.qplan", "--source=3,129")
        self.assertIn("error: --source=129 is too long, 128 positions are defined", error)
        self.assertIn("fix: --source=128, or less\n", error)


if __name__ == "__main__":
    quire_test.main()
