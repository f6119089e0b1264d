#!/usr/bin/env python3
"""The demo model dates: an encoder-decoder from the command line."""
import json
import re
import shutil
import struct
import sys

import quire_test
from quire_test import QuireTest, RESOURCE, UNSUPPORTED, USAGE

WITHOUT_SPLITS = "recognise-attention,remove-kv-expansion,merge-projections,split-rows,cache-kv,narrow-outputs,fuse"
HELD_OUT_SEED = 1_000_003  # of train_dates.py; transformers gets all of these dates right


class DatesTest(QuireTest):
    def setUp(self):
        super().setUp()
        self.quire("compile", quire_test.ROOT / "models/demo/dates", "-o", "dates.qplan")

    def run_json(self, *arguments):
        return json.loads(self.quire("run", "dates.qplan", "--output=json", *arguments)[0])["results"]

    def test_a_thousand_unseen_dates(self):
        sys.path.insert(0, str(quire_test.ROOT / "models/demo"))
        from date_grammar import draw_pairs
        pairs = draw_pairs(HELD_OUT_SEED, 1000, held_out=True)
        sources = [f"--source={text}" for text, _ in pairs]
        for more in ([], ["--beams=4"]):
            answers = [result["text"] for result in self.run_json(*sources, *more)]
            wrong = [(pair, answer) for pair, answer in zip(pairs, answers, strict=True) if answer != pair[1]]
            self.assertLessEqual(len(wrong), 10, wrong[:5])

    def test_text_and_ids(self):
        source = "the third of May, 1999"
        self.assertEqual(self.quire("run", "dates.qplan", "--source", source)[0], "1999-05-03\n")
        self.assertEqual(self.quire("run", "dates.qplan", "--source", source, "--echo")[0], source + "\n1999-05-03\n")
        self.assertEqual(self.quire("run", "dates.qplan", "--source", source, "-p", "1999", "--echo")[0], "1999-05-03\n")
        (self.folder / "date.txt").write_text("12 May 2015")
        self.assertEqual(self.quire("run", "dates.qplan", "--source-file", "date.txt", "-q"), ("2015-05-12\n", ""))
        # What generation_config.json forces: <s> first.
        self.assertEqual(self.run_json("--source", source)[0]["ids"][0], 0)

    def test_a_prompt_is_how_the_output_begins(self):
        source = ["--source", "5 June 1980"]
        result = self.run_json(*source, "-p", "19")[0]
        # Behind the token that decoders start with and <s>, which is forced, as in training.
        self.assertEqual(result["text"], "80-06-05")
        whole = self.run_json(*source)[0]["ids"]
        self.assertEqual(self.run_json(*source, "-p", "<s>19")[0], result)
        # As transformers takes decoder_input_ids: the token that decoders start with is added to ids, and no other.
        ids = ",".join(map(str, whole[:2]))
        self.assertEqual(self.run_json(*source, f"--ids={ids}")[0]["ids"], whole[2:])
        self.assertEqual(self.run_json(*source, f"--ids=2,{ids}")[0]["ids"], whole[2:])
        self.assertEqual(self.run_json(*source, "--ids=2")[0]["ids"], whole)
        # The length that generation_config.json states has the prompt in it.
        long = self.run_json(*source, "-p", "19", "--ignore-eos")[0]
        prompt_tokens = 1 + len(whole) - len(result["ids"])
        self.assertEqual(prompt_tokens + len(long["ids"]), 16)

    def test_sources_as_ids(self):
        folder = self.folder / "no_texts"
        folder.mkdir()
        for file in (quire_test.ROOT / "models/demo/dates").iterdir():
            if not file.name.startswith("tokenizer"):
                shutil.copy(file, folder)
        self.quire("compile", folder, "-o", "ids.qplan")
        texts = ("3/3/84", "5/6/99")
        vocabulary = json.loads((quire_test.ROOT / "models/demo/dates/tokenizer.json").read_text())["model"]["vocab"]
        # One token a character, and what stands around a text.
        self.assertEqual(vocabulary["<s>"], 0)
        sources = [",".join(str(id) for id in (0, *(vocabulary[c] for c in text), 2)) for text in texts]
        flags = [f"--source-ids={ids}" for ids in sources]
        expected = [result["ids"] for result in self.run_json(*(f"--source={text}" for text in texts))]
        self.assertEqual([result["ids"] for result in self.run_json(*flags)], expected)
        self.assertIn("error: --source, -p: a text needs a tokenizer, and the plan has none\n"
                      "  fix: give ids by --source-ids; give ids by --ids; --output=ids\n",
                      self.error("run", "ids.qplan", f"--source={texts[0]}", "-p", "1", code=UNSUPPORTED))
        out, _ = self.quire("run", "ids.qplan", "--output=json", *flags)
        results = json.loads(out)["results"]
        self.assertEqual([result["ids"] for result in results], expected)
        self.assertEqual([result["prompt"] for result in results], ["source 1", "source 2"])
        self.assertEqual(self.quire("run", "dates.qplan", flags[0], "--echo")[0], "3/3/84\n1984-03-03\n")
        self.assertIn("fix: give ids by --source-ids",
                      self.error("run", "ids.qplan", "--source=3/3/84", "--output=ids", code=UNSUPPORTED))
        self.quire("verify", "ids.qplan", flags[0], "--ids=2,0", "--steps=2")
        self.assertIn("fix: give ids by --source-ids",
                      self.error("verify", "ids.qplan", "--source=3/3/84", code=UNSUPPORTED))
        for arguments in (["--source-ids=" + ",".join(["5"] * 129)], ["--ids=5", "--tokens=129"]):
            self.assertIn("a source of 129 tokens is too long, 128 positions are defined\n  fix: ",
                          self.error("verify", "ids.qplan", *arguments, code=UNSUPPORTED))
        for verb in ("run", "verify"):
            error = self.error(verb, "ids.qplan", "--source-ids=5,99999", "--ids=2", *(["--output=ids"] if verb == "run" else []),
                               code=UNSUPPORTED)
            self.assertIn("99999 is not a token", error)
            self.assertIn("--source-ids: five is not an id", self.error(verb, "x", "--source-ids=five", code=USAGE))

    def test_beams_have_scores_in_order(self):
        results = self.run_json("--source", "3/3/84", "--beams=4", "--samples=4")
        scores = [result["score"] for result in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(results[0]["text"], "1984-03-03")

    def test_what_cannot_be_is_said(self):
        def message(*arguments, code=UNSUPPORTED):
            return self.error("run", "dates.qplan", *arguments, code=code)

        self.assertIn("the source is empty", message("-p", "19"))
        self.assertIn("the source is empty", message("--source", "", "--no-special"))
        self.assertIn("128 positions are defined", message("--source", "May " * 200))
        self.assertIn("several prompts beside a source", message("--source", "May", "-p", "1", "-p", "2", code=USAGE))
        for flag in ("--temperature=1", "--top-k=3", "--stop=x"):
            self.assertIn(f"{flag.split('=')[0]} has no effect", message("--source", "May 1 1999", "--beams=4", flag, code=USAGE))
        self.assertIn("--samples=5 of 4 beams", message("--source", "May 1 1999", "--beams=4", "--samples=5", code=USAGE))
        self.assertIn("no prompt", message(code=USAGE))
        # One half is for what the encoder leaves; two pages of each are 48 KiB.
        for memory, beams in (("24KiB", 1), ("48KiB", 2), ("128KiB", 5)):
            error = message("--source", "May 1", "--beams=64", f"--memory={memory}", code=RESOURCE)
            self.assertIn("64 beams of a prompt of 1 tokens do not fit", error)
            self.assertIn(f"allowed: beams up to {beams}\n", error)
            self.assertIn(f"now: --memory={int(memory[:-3]) * 1024}", error)
        self.assertIn("allowed: 24576 or more", message("--source", "May 1", "--memory=20KiB"))
        self.assertIn("--memory", message("--source", "5 June " * 8, "--memory=32KiB", code=RESOURCE))
        self.story()
        for flag in ("--source=x", "--source-ids=1"):
            for verb in ("run", "verify"):
                error = self.error(verb, "story.qplan", "-p", "Once", flag, code=USAGE)
                self.assertIn(f"quire {verb}: {flag.split('=')[0]} has no effect", error)

    def test_a_qir_has_the_positions_of_its_tables(self):
        (self.folder / "dates.qir").write_text(self.quire("dump", "dates.qplan", "--output=ir")[0])
        self.quire("compile", "dates.qir", f"--weights-dir={quire_test.ROOT / 'models/demo/dates'}", "-o", "own.qplan")
        self.assertEqual(self.quire("run", "own.qplan", "--source", "3/3/84")[0], "1984-03-03\n")
        for long in (["--source", "May " * 200], ["--source", "May 1", "-p", "1" * 200], ["--source", "May 1", "-n200"]):
            errors = [self.error("run", plan, *long, code=UNSUPPORTED) for plan in ("dates.qplan", "own.qplan")]
            self.assertIn("positions are defined", errors[0])
            self.assertEqual(errors[1], errors[0])

    def test_dump_says_what_the_split_saves(self):
        passes, _ = self.quire("dump", "dates.qplan", "--output=passes")
        self.assertIn("split-phases @step: changed", passes)
        self.assertRegex(passes, r"layer 0 keeps \d+ bytes for each encoder token; multiply-adds .* => 0")
        ir, _ = self.quire("dump", "dates.qplan", "--output=ir", "--phase=lowered")
        step, encode = ir.split("func @encode")
        self.assertNotIn("[S", step.replace("kv_read", "")[:step.index("{")])
        self.assertIn("kv_append", encode)
        self.assertIn("launches to encode", self.quire("dump", "dates.qplan")[0])

    def test_dump_says_that_a_step_projects_only_queries_for_cross_attention(self):
        for target in ("cpu", "cuda"):
            out, _ = self.quire("dump", "dates.qplan", "--output=kernels", "--format=json", f"--target={target}")
            launched = {"step": [], "encode": []}
            for kernel in json.loads(out):
                if kernel["spec"].startswith("linear "):
                    for program, values in kernel["launches_by_program"].items():
                        launched[program] += [value for value in values if "cross_" in value]
            self.assertEqual({value.split(".")[1] for value in launched["step"]}, {"cross_q"})
            self.assertEqual(launched["encode"], ["cross_k_cross_v"])
        self.assertRegex(self.quire("dump", "dates.qplan", "--output=kernels")[0],
                         r"// kernel \d+, launches: \d+ in step \(%l0\.cross_q")

    def write_packed(self):
        """dates with one matrix for queries, keys and values of each cross-attention, as packed.qir and packed/."""
        dates = quire_test.ROOT / "models/demo/dates"
        (self.folder / "packed").mkdir()
        for file in dates.glob("*.json"):
            shutil.copy(file, self.folder / "packed")
        data = (dates / "model.safetensors").read_bytes()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        tensors = {}
        for name, info in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                tensors[name] = (info["dtype"], info["shape"], data[begin:][slice(*info["data_offsets"])])
        ir = self.quire("dump", "dates.qplan", "--output=ir")[0]
        for layer in range(2):
            for kind, suffix in (("w", "weight"), ("b", "bias")):
                parts = [tensors.pop(f"model.decoder.layers.{layer}.encoder_attn.{part}_proj.{suffix}") for part in "qkv"]
                shape = [3 * parts[0][1][0], *parts[0][1][1:]]
                tensors[f"packed.{layer}.{suffix}"] = ("F16", shape, b"".join(part[2] for part in parts))
                ir = re.sub(rf"  %l{layer}\.cross_[kv]\.{kind} = .*\n", "", ir)
                ir = re.sub(rf"  %l{layer}\.cross_q\.{kind} = .*", f"  %l{layer}.packed.{kind} = weight "
                            f'{{name="packed.{layer}.{suffix}"}} : f16{str(shape).replace(" ", "")}', ir)
            width = parts[0][1][0]
            for number, part in enumerate("qkv"):
                ir = re.sub(rf"(  %l{layer}\.cross_{part}) = linear (\S+), \S+, \S+ : f32\[([TS]),\d+\]",
                            rf"\1x = linear \2, %l{layer}.packed.w, %l{layer}.packed.b : f32[\3,{3 * width}]\n"
                            rf"\1 = slice %l{layer}.cross_{part}x {{axis=1, begin={number * width}, "
                            rf"end={(number + 1) * width}}} : f32[\3,{width}]", ir)
        (self.folder / "packed.qir").write_text(ir)
        header, end = {}, 0
        for name, (dtype, shape, content) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(content)]}
            end += len(content)
        text = json.dumps(header).encode()
        (self.folder / "packed/model.safetensors").write_bytes(
            struct.pack("<Q", len(text)) + text + b"".join(content for _, _, content in tensors.values()))

    def test_packed_and_separate_projections_are_the_same(self):
        self.write_packed()
        sources = [f"--source={text}" for text in ("3/3/84", "the third of May, 1999", "Tuesday, 12 May 2015")]
        expected = self.run_json(*sources, "--logprobs")
        for name, more in (("packed", []), ("whole", [f"--passes={WITHOUT_SPLITS}"])):
            plan = f"{name}.qplan"
            self.quire("compile", "packed.qir", "--weights-dir=packed", "-o", plan, *more)
            passes = self.quire("dump", plan, "--output=passes")[0]
            self.assertEqual("split-cross-qkv @step: changed" in passes, not more)
            out = json.loads(self.quire("run", plan, "--output=json", *sources, "--logprobs")[0])["results"]
            self.assertEqual(out, expected, name)

    def test_without_the_passes_the_encoder_runs_in_every_step(self):
        self.quire("compile", quire_test.ROOT / "models/demo/dates", "-o", "slow.qplan",
                   f"--passes={WITHOUT_SPLITS}")
        self.assertIn("encode_every_step: runs in every step", self.quire("dump", "slow.qplan", "--output=passes")[0])
        self.assertIn("launches to encode in every step", self.quire("dump", "slow.qplan")[0])
        self.assertNotIn("in every step", self.quire("dump", "dates.qplan")[0])
        sources = ["--source", "3/3/84", "--source", "the third of May, 1999", "--source", "Tuesday, 12 May 2015"]
        self.assertEqual(self.quire("run", "slow.qplan", *sources)[0], self.quire("run", "dates.qplan", *sources)[0])
        out, _ = self.quire("verify", "slow.qplan", "--steps=4")
        self.assertNotIn("DIFFERS", out)
        self.assertRegex(out, r"launches: ok: (\d+) of \1 launches")

    def test_the_plan_means_its_definition(self):
        out, _ = self.quire("verify", "dates.qplan", "--steps=4")
        self.assertNotIn("DIFFERS", out)


class StatesTest(QuireTest):
    def test_a_model_that_looks_at_states_means_its_definition(self):
        self.quire("compile", quire_test.ROOT / "tests/parity/fixtures/mllama", "-o", "mllama.qplan")
        out, _ = self.quire("verify", "mllama.qplan", "--steps=2")
        self.assertNotIn("DIFFERS", out)
        self.assertRegex(out, r"launches: ok: (\d+) of \1 launches")
        self.assertIn("--source has no effect", self.error("verify", "mllama.qplan", "--source=x", code=USAGE))


if __name__ == "__main__":
    quire_test.main()
