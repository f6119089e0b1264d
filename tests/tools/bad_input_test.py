#!/usr/bin/env python3
"""What a user gets who hands over a wrong model, plan or request: the place, the key, the value, and what would do."""
import json
import math
import os
import shutil
import struct

import quire_test
from checkpoints import llama_config, llama_shapes, write_llama
from quire_test import FAILURE, MISMATCH, QuireTest, RESOURCE, UNSUPPORTED, USAGE


class ModelTest(QuireTest):
    def refuse(self, *expected, code=UNSUPPORTED, shapes=None, **changes):
        """Compiling this configuration fails, says all of `expected`, and writes nothing."""
        write_llama(self.folder / "model", shapes=shapes, **changes)
        error = self.error("compile", "model", code=code)
        for text in expected:
            self.assertIn(text, error)
        self.assertEqual(self.files(), ["model"])
        return error

    def test_unknown_architecture(self):
        self.refuse("mamba", "config.json", "allowed: ", "llama", "qwen3", shapes={"x": [4]},
                    model_type="mamba", architectures=["MambaForCausalLM"])

    def test_unknown_rope_type(self):
        self.refuse("spiral", "allowed: ", "yarn", rope_scaling={"rope_type": "spiral", "factor": 2.0})

    def test_unknown_quantisation(self):
        self.refuse("quantization_config", quantization_config={"quant_method": "gptq", "bits": 4})

    def test_unknown_key(self):
        error = self.refuse("logit_twist", "config.json", logit_twist=0.5)
        self.assertIn("--allow-config-key", error)
        self.quire("compile", "model", "--allow-config-key=logit_twist")

    def test_unknown_activation(self):
        self.refuse("hidden_act", "swirl", "allowed: ", hidden_act="swirl")

    def test_heads_that_do_not_divide(self):
        self.refuse("num_attention_heads", num_attention_heads=3, shapes=llama_shapes(llama_config()))

    def test_missing_key(self):
        self.refuse("hidden_size", hidden_size=None, shapes=llama_shapes(llama_config()))

    def test_missing_tensor(self):
        shapes = llama_shapes(llama_config())
        del shapes["model.layers.0.mlp.up_proj.weight"]
        self.refuse("model.layers.0.mlp.up_proj.weight", shapes=shapes)

    def test_misshapen_tensor(self):
        shapes = llama_shapes(llama_config())
        shapes["model.layers.0.mlp.up_proj.weight"] = [64, 31]
        self.refuse("model.layers.0.mlp.up_proj.weight", "[64, 31]", "allowed: [64, 32]", shapes=shapes)

    def test_truncated_weights(self):
        folder = write_llama(self.folder / "model")
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        self.assertIn("model.safetensors", self.error("compile", "model", code=FAILURE))

    def test_tensors_that_are_not_used_are_said(self):
        folder = write_llama(self.folder / "model", num_hidden_layers=2)
        _, err = self.quire("compile", "model")
        self.assertNotIn("not used", err)
        (folder / "config.json").write_text(json.dumps(llama_config(num_hidden_layers=1)))
        _, err = self.quire("compile", "model", "--force")
        self.assertRegex(err, r"(?m)^note +9 tensors of the checkpoint are not used: model\.layers\.1\.[^,]+, .*, \.\.\.$")

    def test_configuration_that_ends_early(self):
        folder = write_llama(self.folder / "model")
        (folder / "config.json").write_text('{"model_type": "llama", "hidden_')
        error = self.error("compile", "model", code=FAILURE)
        self.assertIn("model/config.json:1:33: not JSON\n  fix: correct the file there", error)

    def test_corrupt_files_of_every_kind_exit_alike(self):
        for name, content in [("tokenizer.json", b'{"model": {'), ("generation_config.json", b"\x00\x01"),
                              ("config.json", b"<html>"), ("tokenizer_config.json", b"[]"),
                              ("model.safetensors", b"\x0b\x00\x00\x00\x00\x00\x00\x00{\"a\":   ]}  ")]:
            folder = write_llama(self.folder / "model")
            shutil.copy(quire_test.ROOT / "models/demo/story/tokenizer.json", folder)
            (folder / name).write_bytes(content)
            self.assertRegex(self.error("compile", "model", code=FAILURE), rf"{name}[\s\S]*\n  fix: ", name)
            (folder / name).unlink()

    def test_files_that_may_not_be_read(self):
        folder = self.folder / "story"
        shutil.copytree(quire_test.ROOT / "models/demo/story", folder)
        (folder / "chat_template.jinja").write_text("x")
        (folder / "special_tokens_map.json").write_text("{}")
        other = self.as_other_user()
        for file in sorted(folder.iterdir()):
            mode = file.stat().st_mode
            file.chmod(0)
            error = self.error("compile", "story", code=UNSUPPORTED, preexec_fn=other)
            self.assertEqual(error, f"error: story/{file.name}: cannot open: Permission denied\n  fix: let this user read it: "
                                    f"chmod +r story/{file.name}\n")
            file.chmod(mode)
        for mode, fix in ((0, "list and enter it: chmod +rx story"), (0o311, "list and enter it: chmod +rx story"),
                          (0o744, "enter story: chmod +x story")):
            folder.chmod(mode)
            error = self.error("compile", "story", code=UNSUPPORTED, preexec_fn=other)
            self.assertIn("cannot open: Permission denied\n  fix: let this user " + fix, error)
        error = self.error("compile", "story/model.gguf", code=UNSUPPORTED, preexec_fn=other)
        self.assertIn("fix: let this user enter story: chmod +x story", error)
        folder.chmod(0o755)
        self.quire("compile", "story", preexec_fn=other)
        (folder / "model.safetensors").chmod(0)
        _, error = self.quire("check", "story.qplan", code=UNSUPPORTED, preexec_fn=other)
        self.assertEqual(error.count("fix: "), 1)
        self.assertIn("fix: let this user read it", error)
        folder.rename(self.folder / "gone")
        _, error = self.quire("check", "story.qplan", code=UNSUPPORTED, preexec_fn=other)
        self.assertEqual(error.count("fix: "), 1)
        self.assertIn("fix: name the folder that holds it (--weights-dir=DIR)", error)

    def test_no_model(self):
        (self.folder / "empty").mkdir()
        self.assertIn("neither model.safetensors nor", self.error("compile", "empty", code=UNSUPPORTED))

    def test_output_without_a_name(self):
        write_llama(self.folder / "model")
        self.assertIn("--output", self.error("compile", "model", "-o", "", code=USAGE))
        self.assertEqual(self.files(), ["model"])

    def test_qir_without_weights(self):
        (self.folder / "x.qir").write_text("func @step(%ids: i32[T]) {\n  return %ids\n}\n")
        self.assertIn("--weights-dir", self.error("compile", "x.qir", code=UNSUPPORTED))

    def test_tokenizer_that_is_none(self):
        folder = write_llama(self.folder / "model")
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": {}}}))
        error = self.error("compile", "model", code=UNSUPPORTED)
        self.assertIn("model/tokenizer.json: model.type", error)
        self.assertIn("WordPiece", error)


    def test_values_of_files_say_what_to_do(self):
        fix = "\n  fix: correct the file, or get it again\n"
        self.refuse(f"hidden_size=-1 is out of range\n  from: model/config.json\n  allowed: 1..1048576{fix}", hidden_size=-1,
                    shapes={"x": [4]})
        self.refuse(f"hidden_size=\"x\" is a string\n  from: model/config.json\n  allowed: an integer{fix}",
                    hidden_size="x", shapes={"x": [4]})
        write_llama(self.folder / "model")
        (self.folder / "model/generation_config.json").write_text('{"top_k": -1}')
        self.assertIn(f"top_k=-1 is out of range\n  from: model/generation_config.json\n  allowed: 0 (off) .. 2147483647{fix}",
                      self.error("compile", "model", code=UNSUPPORTED))
        (self.folder / "model/generation_config.json").unlink()
        (self.folder / "model/tokenizer.json").write_text('{"version": "1.0"}')
        self.assertIn(f"error: model/tokenizer.json: model is missing{fix}", self.error("compile", "model", code=UNSUPPORTED))
        # What the file may say is not to be corrected in it.
        write_llama(self.folder / "model", hidden_act="swirl")
        self.assertNotIn("correct the file", self.error("compile", "model", code=UNSUPPORTED))


class PlanTest(QuireTest):
    def setUp(self):
        super().setUp()
        self.model = write_llama(self.folder / "model")
        self.quire("compile", "model", "-o", "x.qplan")
        self.plan = self.folder / "x.qplan"

    def test_not_a_plan(self):
        self.plan.write_bytes(b"no plan at all, but longer than a header " * 8)
        self.assertIn("x.qplan", self.error("dump", "x.qplan", code=UNSUPPORTED))

    def test_truncated_plan(self):
        self.plan.write_bytes(self.plan.read_bytes()[:-100])
        self.assertIn("x.qplan", self.error("dump", "x.qplan", code=FAILURE))

    def test_flipped_bits(self):
        good = self.plan.read_bytes()
        for place in range(0, len(good), len(good) // 97):
            bad = bytearray(good)
            bad[place] ^= 0x10
            self.plan.write_bytes(bad)
            # The magic and the versions say that it is no plan of this build; all else is corruption.
            code = UNSUPPORTED if place < 8 else MISMATCH if place < 16 else FAILURE
            self.error("dump", "x.qplan", code=code)

    def test_weights_that_moved(self):
        self.model.rename(self.folder / "elsewhere")
        out, err = self.quire("check", "x.qplan", code=UNSUPPORTED)
        self.assertRegex(out, r"(?m)^weights +no: ")
        self.assertIn("--weights-dir", err)
        for verb in (["run", "--ids=1", "--output=ids"], ["bench"], ["verify"]):
            # No mismatch: a file that cannot be read.
            error = self.error(verb[0], "x.qplan", *verb[1:], code=UNSUPPORTED)
            self.assertRegex(error, r"(?m)^error: model/model.safetensors: cannot open: No such file or directory$")
            self.assertIn("\n  expected: weights of the plan, ", error)
            self.assertIn("\n  fix: name the folder that holds it (--weights-dir=DIR), or compile", error)
            self.assertIn("error: nowhere/model.safetensors: ",
                          self.error(verb[0], "x.qplan", *verb[1:], "--weights-dir=nowhere", code=UNSUPPORTED))
        self.quire("check", "x.qplan", "--weights-dir=elsewhere")

    def test_packed_weights_need_no_files(self):
        self.quire("compile", "model", "-o", "packed.qplan", "--weights=pack")
        self.model.rename(self.folder / "elsewhere")
        out, _ = self.quire("check", "packed.qplan", "--contents")
        self.assertRegex(out, r"(?m)^weights +ok: in the plan$")
        self.assertRegex(out, r"(?m)^packed +ok: ")

    def test_weights_of_another_model(self):
        for vocabulary in (24, 96):
            write_llama(self.folder / "other", vocab_size=vocabulary)
            for verb in (["check"], ["run", "--ids=1", "--output=ids"]):
                _, err = self.quire(*verb, "x.qplan", "--weights-dir=other", code=MISMATCH)
                self.assertIn("other/model.safetensors: not the file that the plan was compiled from: tensor ", err)
                self.assertRegex(err, r"(?m)^  expected: f32 \[48, 32\] at byte \d+, in a file of \d+ bytes$")
                self.assertRegex(err, rf"(?m)^  found: f32 \[{vocabulary}, 32\] at byte \d+, in a file of \d+ bytes$")
                self.assertIn("fix: ", err)

    def test_weights_that_end_early(self):
        weights = self.model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
        self.assertIn("model.safetensors", self.error("run", "x.qplan", "--ids=1", "--output=ids", code=FAILURE))

    def test_contents_that_are_no_numbers(self):
        folder = write_llama(self.folder / "large", vocab_size=3000)
        self.quire("compile", "large", "-o", "large.qplan")
        out, _ = self.quire("check", "large.qplan", "--contents")
        self.assertRegex(out, r"(?m)^numbers +ok: no NaN and no infinity in 12 tensors")
        # Between the parts of the file that its fingerprint is of.
        with open(folder / "model.safetensors", "r+b") as file:
            file.seek(200_000)
            file.write(struct.pack("<2f", math.inf, math.nan))
        self.quire("check", "large.qplan")
        out, err = self.quire("check", "large.qplan", "--contents", code=FAILURE)
        self.assertRegex(err, r"error: tensor model.embed_tokens.weight: element \d+ is inf\n  from: .*model.safetensors")
        self.assertRegex(out, r"(?m)^numbers +no: ")

    def test_logits_that_are_no_numbers(self):
        """The prompt is named, and what looks for the weight."""
        with open(self.model / "model.safetensors", "r+b") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            norm = json.loads(file.read(length))["model.norm.weight"]["data_offsets"][0]
            file.seek(8 + length + norm)
            file.write(struct.pack("<f", math.nan))
        self.quire("compile", "model", "-o", "nan.qplan")
        for more in ([], ["--beams=2"], ["--temperature=1"]):
            _, err = self.quire("run", "nan.qplan", "--ids=5,6", "--ids=7", "--output=ids", *more, code=FAILURE)
            self.assertRegex(err, r"(?m)^error: prompt 1(, sample 1)?: \w+: the logits hold a NaN or \+infinity$")
            self.assertIn("\n  fix: quire check nan.qplan --contents names the first weight that is a NaN or an infinity\n", err)
        self.quire("check", "nan.qplan", "--contents", code=FAILURE)

    def test_bench_of_requests_that_fail(self):
        with open(self.model / "model.safetensors", "r+b") as file:
            file.seek(-4, 2)
            file.write(struct.pack("<f", math.nan))
        self.quire("compile", "model", "-o", "nan.qplan")
        error = self.error("bench", "nan.qplan", "--prompt=3", "--gen=2", "--repeat=1", code=FAILURE)
        self.assertIn("NaN", error)
        self.assertIn("\n  fix: quire check nan.qplan --contents ", error)

    def test_weights_that_changed(self):
        with open(self.model / "model.safetensors", "r+b") as file:
            file.seek(-4, 2)
            file.write(b"\x00\x01\x02\x03")
        out, err = self.quire("check", "x.qplan", code=MISMATCH)
        self.assertIn("not the file that the plan was compiled from", err)


class RequestTest(QuireTest):
    def setUp(self):
        super().setUp()
        write_llama(self.folder / "model")
        self.quire("compile", "model", "-o", "x.qplan")

    def test_prompt_longer_than_memory(self):
        ids = ",".join(str(i % 48) for i in range(200))
        out, err = self.quire("run", "x.qplan", "--ids", ids, "--output=ids", "--memory=8KiB", code=RESOURCE)
        self.assertIn("prompt 1: ", err)
        self.assertIn("now: --memory=8192", err)
        self.assertEqual(out, "")

    def test_prompt_longer_than_the_model(self):
        ids = ",".join(str(i % 48) for i in range(300))
        _, err = self.quire("run", "x.qplan", "--ids", ids, "--output=ids", code=UNSUPPORTED)
        self.assertIn("256", err)

    def test_id_outside_the_vocabulary(self):
        _, err = self.quire("run", "x.qplan", "--ids", "1,48", "--output=ids", code=UNSUPPORTED)
        self.assertIn("48", err)

    def test_ids_that_are_no_numbers(self):
        for verb in ("run", "verify"):
            self.assertIn("allowed: ", self.error(verb, "x.qplan", "--ids", "1,two", code=USAGE))
            for ids, said in (("1,,2", "no id between two commas"), ("1, ,2", "no id between two commas"),
                              ("1,2,", "no id behind the last comma"), (",1", "no id before the first comma"),
                              ("1 2", "1 2 is not an id"), ("", "no id"), (" ", "no id"), (",", "no id before the first comma"),
                              ("1,2.5", "2.5 is not an id"), ("1,3000000000", "3000000000 is not an id")):
                self.assertIn(f"error: --ids: {said}\n  allowed: integers, separated by commas: 1,2,3\n",
                              self.error(verb, "x.qplan", "--ids", ids, code=USAGE), ids)
        out, _ = self.quire("run", "x.qplan", "--ids=1,2", "-n4", "--output=ids")
        self.assertEqual(self.quire("run", "x.qplan", "--ids", " 1, 2 ", "-n4", "--output=ids")[0], out)

    def test_more_samples_than_sequences(self):
        """Of one token there are as many sequences as tokens."""
        run = ("run", "x.qplan", "--ids=1", "--output=ids", "-n1", "--beams=60")
        out, err = self.quire(*run, "--samples=60", code=UNSUPPORTED)
        self.assertEqual(len(out.split("sample")), 61)
        self.assertIn("error: prompt 1, sample 49: request: --samples=60 of a search that found 48 sequences\n"
                      "  allowed: 1 .. 48, or a longer output\n", err)
        self.assertEqual(sorted(map(int, self.quire(*run, "--samples=48")[0].split("\n")[1::3])), [*range(48)])

    def test_text_that_is_not_utf_8(self):
        bad = os.fsdecode(b"caf\xe9 au lait")
        (self.folder / "bad.txt").write_bytes(b"caf\xe9 au lait")
        plan = self.story()
        for flag, *arguments in (("-p", "run", plan, "-p", bad), ("bad.txt", "run", plan, "--prompt-file", "bad.txt"),
                                 ("--source", "run", plan, "--source", bad), ("-p", "verify", plan, "-p", bad),
                                 ("bad.txt", "run", plan, "--source-file", "bad.txt"),
                                 ("--stop", "run", plan, "-p", "a", "--stop", bad)):
            error = self.error(*arguments, code=UNSUPPORTED if flag == "bad.txt" else USAGE)
            self.assertIn(f"error: {flag}: byte 3, 0xe9, is not UTF-8\n  allowed: UTF-8\n  fix: ", error)
            ids = "--source-ids" if any("--source" in str(word) for word in arguments) else "--ids"
            self.assertEqual(error.endswith(f"or give tokens by {ids}\n"), flag != "--stop")

    def test_text_to_print_without_tokenizer(self):
        _, err = self.quire("run", "x.qplan", "--ids=1,2", code=UNSUPPORTED)
        self.assertIn("no tokenizer", err)
        self.assertIn("fix: --output=ids", err)
        self.quire("run", "x.qplan", "--ids=1,2", "--output=ids", "-n2")

    def test_text_without_tokenizer(self):
        for verb in ("run", "verify"):
            more = ["--output=ids"] if verb == "run" else []
            _, err = self.quire(verb, "x.qplan", "-p", "text", *more, code=UNSUPPORTED)
            self.assertIn("-p: a text needs a tokenizer, and the plan has none\n  fix: give ids by --ids\n", err)

    def test_all_that_a_plan_without_tokenizer_needs(self):
        (self.folder / "a.txt").write_text("text")
        for flags, said, fixes in (
                (["-p", "text"], "-p", "give ids by --ids; --output=ids"),
                (["-p", "a", "-p", "b", "--prompt-file=a.txt", "--echo", "--stop=x"], "-p, --prompt-file, --echo, --stop",
                 "give ids by --ids; leave out --echo; leave out --stop; --output=ids"),
                (["-p", "text", "--output=json"], "-p", "give ids by --ids"),
                (["--ids=1", "--stop=x"], "--stop", "leave out --stop; --output=ids")):
            err = self.error("run", "x.qplan", *flags, code=UNSUPPORTED)
            self.assertIn(f"error: {said}: a text needs a tokenizer, and the plan has none\n  fix: {fixes}\n", err)
        err = self.error("run", "x.qplan", "--ids=1", "--output=ids", "--stop=x", code=USAGE)
        self.assertIn("--stop has no effect\n  allowed: with a plan that has a tokenizer\n", err)

    def test_flags_that_say_what_is_allowed(self):
        for flag, allowed in (("--chunk=-1", "0 to 1048576"), ("--chunk=2147483647", "0 to 1048576"), ("--top-k=-1", "0 to 2147483647")):
            self.assertIn(allowed, self.error("run", "x.qplan", "--ids", "1", flag, code=USAGE))
        for flag in ("--temperature", "--top-p", "--min-p", "--length-penalty", "--repeat-penalty", "--presence-penalty",
                     "--frequency-penalty"):
            for value in ("nan", "1e9", "-1e9", "", "one"):
                self.assertIn(flag, self.error("run", "x.qplan", "--ids", "1", f"{flag}={value}", code=USAGE))

    def test_empty_prompt(self):
        (self.folder / "empty.txt").write_text("")
        plan = self.story()
        for more in (["-p", ""], ["--prompt-file", "empty.txt"]):
            _, err = self.quire("run", plan, *more, "--no-special", code=UNSUPPORTED)
            self.assertIn("the prompt is empty", err)

    def test_a_text_longer_than_any_prompt(self):
        with open(self.folder / "long.txt", "wb") as file:
            file.truncate((64 << 20) + 1)
        _, err = self.quire("run", self.story(), "--prompt-file", "long.txt", code=UNSUPPORTED)
        self.assertIn("long.txt: is too long for a prompt\n  allowed: texts of up to 67108864 bytes", err)

    def test_less_memory_than_a_page(self):
        _, err = self.quire("run", "x.qplan", "--ids", "1", "--output=ids", "--memory=10", code=UNSUPPORTED)
        self.assertIn("--memory=10 is less than one page", err)

    def test_flags_are_named_and_not_what_the_library_calls_them(self):
        for arguments in (["-n", "300"], ["--memory=10"], ["--memory=8KiB", "-n", "200"], ["--beams=64", "--memory=8KiB"]):
            error = self.error("run", "x.qplan", "--ids=1,2", "--output=ids", *arguments,
                               code=RESOURCE if "--memory=8KiB" in arguments else UNSUPPORTED)
            self.assertNotRegex(error, r"[a-z]_[a-z]", arguments)
            self.assertRegex(error, "--memory|--max-tokens")

    def test_more_steps_than_positions(self):
        error = self.error("verify", "x.qplan", "--tokens=250", "--steps=7", code=UNSUPPORTED)
        self.assertIn("256 positions", error)


if __name__ == "__main__":
    quire_test.main()
