#!/usr/bin/env python3
"""What of a model's generation_config.json is acted on, and that the rest is said."""
import json
import shutil

import quire_test
from checkpoints import write_llama
from quire_test import QuireTest, UNSUPPORTED, USAGE

PROMPT = "--ids=5,6,7"


class GenerationConfigTest(QuireTest):
    def write(self, **keys):
        write_llama(self.folder / "model")
        (self.folder / "model/generation_config.json").write_text(json.dumps(keys))

    def compile(self, **keys):
        """Compiles a model of 48 tokens with these keys; returns the notes."""
        self.write(**keys)
        _, err = self.quire("compile", "model", "-o", "model.qplan", "--force")
        return [line.removeprefix("note").strip() for line in err.splitlines() if line.startswith("note")]

    def run_ids(self, *flags):
        out, _ = self.quire("run", "model.qplan", PROMPT, "-n", "24", "--ignore-eos", "--output=ids", *flags)
        return out

    def test_beams_and_ngrams_of_a_decoder(self):
        self.compile()
        greedy = self.run_ids()
        for flag, key, value in [("--no-repeat-ngram", "no_repeat_ngram_size", 1), ("--beams", "num_beams", 4)]:
            self.compile()
            expected = self.run_ids(f"{flag}={value}")
            self.assertNotEqual(expected, greedy, key)
            self.assertEqual(self.compile(**{key: value}), [])
            self.assertEqual(self.run_ids(), expected, key)
            self.assertEqual(self.run_ids(f"{flag}={int(flag == '--beams')}"), greedy, key)

    def test_as_many_beams_as_the_flag_takes(self):
        self.assertEqual(self.compile(num_beams=1024), [])
        self.quire("run", "model.qplan", PROMPT, "-n2", "--beams=1024", "--output=ids")
        for beams in (0, 1025):
            self.write(num_beams=beams)
            self.assertIn(f"num_beams={beams} is out of range\n  from: model/generation_config.json\n  allowed: 1 .. 1024\n",
                          self.error("compile", "model", "-o", "x.qplan", code=UNSUPPORTED))
            self.assertIn(f"--beams: Value {beams} not in range 1 to 1024\n", self.error("run", "model.qplan", PROMPT, f"--beams={beams}", code=USAGE))

    def test_min_p_of_a_model_that_draws(self):
        draws = dict(do_sample=True, temperature=3)
        self.assertEqual(self.compile(**draws), [])
        plain, expected = self.run_ids("--seed=5"), self.run_ids("--seed=5", "--min-p=0.7")
        self.assertNotEqual(expected, plain)
        self.assertEqual(self.compile(**draws, min_p=0.7), [])
        self.assertEqual(self.run_ids("--seed=5"), expected)
        self.assertEqual(self.run_ids("--seed=5", "--min-p=0"), plain)
        self.assertEqual(self.compile(min_p=0.7), [])  # drawing is what it is of

    def test_no_end_before_as_many_new_tokens(self):
        self.compile()
        first = int(self.run_ids().split()[0])
        run = ("run", "model.qplan", PROMPT, "-n", "24", "--output=ids")
        self.compile(eos_token_id=first)
        out, _ = self.quire(*run)
        self.assertLessEqual(len(out.split()), 1)
        self.assertEqual(self.compile(eos_token_id=first, min_new_tokens=5), [])
        out, _ = self.quire(*run)
        ids = [int(id) for id in out.split()]
        self.assertGreaterEqual(len(ids), 5)
        self.assertNotIn(first, ids[:5])

    def test_suppressed_tokens(self):
        self.compile()
        plain = self.run_ids().split()
        self.assertEqual(self.compile(suppress_tokens=[int(plain[0]), int(plain[1]), -1]), [])
        ids = self.run_ids().split()
        self.assertNotIn(plain[0], ids)
        self.assertNotIn(plain[1], ids)
        beams = self.run_ids("--beams=3").split()
        self.assertNotIn(plain[0], beams)
        self.assertEqual(self.compile(begin_suppress_tokens=[int(plain[0])]), [])
        begun = self.run_ids().split()
        self.assertNotEqual(begun[0], plain[0])
        # Of a prompt that ends with it the rest may have it again.
        out, _ = self.quire("run", "model.qplan", f"{PROMPT},{plain[0]}", "-n", "23", "--ignore-eos", "--output=ids")
        self.assertNotEqual(out.split()[0], plain[0])
        for key in ("suppress_tokens", "begin_suppress_tokens"):
            self.write(**{key: [-2]})
            self.assertIn(f"{key}=[-2] has", self.error("compile", "model", "-o", "x.qplan", code=UNSUPPORTED))

    def test_suppressed_tokens_outside_the_vocabulary_are_said(self):
        where = "of model/generation_config.json"
        for key in ("suppress_tokens", "begin_suppress_tokens"):
            self.assertEqual(self.compile(**{key: [1, -1, 999]}),
                             [f"{key}=999 {where} is behind the last token, 47, and not honoured"])
            self.assertEqual(self.compile(**{key: [48, 1, 49]}),
                             [f"{key} {where}: [48, 49] are behind the last token, 47, and not honoured"])

    def test_suppressing_all_tokens_is_refused(self):
        for keys, said in (({"suppress_tokens": [*range(48)]}, "suppress_tokens"),
                           ({"begin_suppress_tokens": [*range(48)]}, "begin_suppress_tokens"),
                           ({"suppress_tokens": [*range(20)], "begin_suppress_tokens": [*range(15, 50)]},
                            "begin_suppress_tokens")):
            self.write(**keys)
            error = self.error("compile", "model", "-o", "x.qplan", code=UNSUPPORTED)
            self.assertRegex(error, rf"^error: {said}=\[\d+, \d+, .* in all\)\] leaves no token to choose\n  from: model/generation_config.json")
            self.assertIn("allowed: fewer than all 48 tokens", error)
        self.assertEqual(self.compile(suppress_tokens=[*range(47)]), [])
        self.assertEqual(set(self.run_ids().split()), {"47"})

    def test_stop_strings(self):
        story = quire_test.ROOT / "models/demo/story"
        (self.folder / "story").mkdir()
        for file in story.iterdir():
            shutil.copy(file, self.folder / "story")
        config = json.loads((story / "generation_config.json").read_text())

        def compile_with(**keys):
            (self.folder / "story/generation_config.json").write_text(json.dumps(config | keys))
            return self.quire("compile", "story", "-o", "story.qplan", "--force")[1]

        def run(*flags):
            return self.quire("run", "story.qplan", "-p", "Once upon a time", "-n", "40", *flags)

        compile_with()
        whole = run()[0].rstrip("\n")
        word = whole.split()[3]
        before = whole[:whole.index(word)]
        for value in (word, [word], ["\u2603", word]):
            self.assertNotIn("note", compile_with(stop_strings=value))
            self.assertEqual(run()[0].rstrip("\n"), before)
        self.assertEqual(run("--stop", whole.split()[1])[0].rstrip("\n"), whole[:whole.index(whole.split()[1])])
        self.assertEqual(run("--ignore-eos")[0].rstrip("\n"), whole)
        self.assertIn("note: the model's stop strings do not end beams", run("--beams=2")[1])
        self.assertIn("do not end beams", compile_with(stop_strings=word, num_beams=2))
        (self.folder / "story/generation_config.json").write_text(json.dumps({"stop_strings": ["x", ""]}))
        self.assertIn("stop_strings=", self.error("compile", "story", "-o", "x.qplan", code=UNSUPPORTED))

    def test_what_is_not_honoured_is_said(self):
        keys = {
            "bad_words_ids": [[3]], "constraints": ["x"], "diversity_penalty": 0.5,
            "dola_layers": "low", "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.5,
            "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "exponential_decay_length_penalty": [5, 1.5],
            "force_words_ids": [[3]], "guidance_scale": 2, "num_beam_groups": 2,
            "num_return_sequences": 2, "penalty_alpha": 0.5, "prompt_lookup_num_tokens": 3,
            "renormalize_logits": True, "sequence_bias": [[[3], 1.5]], "top_h": 0.5, "typical_p": 0.5, "watermarking_config": {"bias": 2},
        }
        notes = self.compile(**keys, use_cache=True, transformers_version="5.0", output_scores=True)
        self.assertEqual(len(notes), len(keys), notes)
        for note, key in zip(notes, sorted(keys)):
            self.assertRegex(note, rf"^{key}=.* of model/generation_config\.json is not honoured$")
        self.assertIn("typical_p=0.5 of", notes[-2])

    def test_what_says_nothing_is_not_noted(self):
        self.assertEqual(self.compile(
            suppress_tokens=None, bad_words_ids=[], sequence_bias={}, guidance_scale=1.0, typical_p=1,
            encoder_no_repeat_ngram_size=0, encoder_repetition_penalty=1.0, epsilon_cutoff=0.0, eta_cutoff=0,
            num_beam_groups=1, diversity_penalty=0.0, renormalize_logits=False, num_return_sequences=1, top_h=None,
            penalty_alpha=0, min_p=0.0, min_new_tokens=0, twist=None, use_cache=False, pad_token_id=0, temperature=1.0), [])

    def test_unknown_keys_are_said(self):
        self.assertEqual(self.compile(twist=[1, 2]),
                         ["twist=[1, 2] of model/generation_config.json is not known and not honoured"])

    def test_beams_that_would_be_drawn_are_said(self):
        self.assertEqual(self.compile(do_sample=True, num_beams=2),
                         ["num_beams=2 of model/generation_config.json is not honoured beside do_sample=true"])

    def test_settings_of_files_before_generation_config(self):
        write_llama(self.folder / "model", bad_words_ids=[[3]])
        _, err = self.quire("compile", "model", "-o", "model.qplan")
        self.assertRegex(err, r"(?m)^note +bad_words_ids=\[\[...\]\] of model/config\.json is not honoured$")

    def test_ids_outside_the_vocabulary(self):
        value = 48
        for key in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"):
            self.write(**{key: value})
            error = self.error("compile", "model", "-o", "model.qplan", "--force", code=UNSUPPORTED)
            self.assertIn(f"{key}=", error)
            self.assertIn("from: model/generation_config.json\n  allowed: 0 .. 47", error)
            # What the later file says goes before what the earlier does.
            write_llama(self.folder / "model", **{key: value})
            (self.folder / "model/generation_config.json").write_text(json.dumps({key: 47}))
            self.quire("compile", "model", "-o", "model.qplan", "--force")

    def test_a_list_of_one_id_is_that_id(self):
        """transformers takes an id or a list."""
        for key in ("decoder_start_token_id", "forced_eos_token_id"):
            self.compile(**{key: 3})
            expected = self.run_ids()
            self.assertEqual(self.compile(**{key: [3]}), [])
            self.assertEqual(self.run_ids(), expected)
            for ids, problem, allowed in (([3, 4], "has several ids", "one id"), ([48], "is not a token id", "0 .. 47")):
                self.write(**{key: ids})
                error = self.error("compile", "model", "-o", "model.qplan", "--force", code=UNSUPPORTED)
                self.assertIn(f"{key}={json.dumps(ids)} {problem}\n"
                              f"  from: model/generation_config.json\n  allowed: {allowed}\n", error)

    def test_decoders_that_nothing_begins(self):
        """Without the token, a run has to give one, which the compiler says and the run."""
        shutil.copytree(quire_test.ROOT / "tests/parity/fixtures/t5", self.folder / "t5")
        config = json.loads((self.folder / "t5/config.json").read_text())

        def compile(**changes):
            (self.folder / "t5/config.json").write_text(json.dumps(config | changes))
            _, err = self.quire("compile", "t5", "-o", "t5.qplan", "--force")
            return err

        run = ("run", "t5.qplan", "--source-ids=5,6,7", "--output=ids", "-n", "4", "--ignore-eos")
        said = "neither decoder_start_token_id nor bos_token_id"
        self.assertNotIn(said, compile())
        expected, _ = self.quire(*run)
        self.assertNotIn(said, compile(decoder_start_token_id=None, bos_token_id=0))
        self.assertEqual(self.quire(*run)[0], expected)
        err = compile(decoder_start_token_id=None, bos_token_id=None)
        self.assertRegex(err, rf"(?m)^note +the model has {said}: .* by -p or --ids; ")
        self.assertRegex(err, r"(?m)^next .*--source-ids 1,2,3 --output=ids --ids 0$")
        self.assertEqual(self.quire(*run, "--ids=0")[0], expected)
        error = self.error(*run, code=UNSUPPORTED)
        self.assertIn(f"error: source 1: request: the prompt is empty, and the model has {said}, ", error)
        self.assertRegex(error, r"\n  fix: .*-p, --ids")

    def test_ends_of_text_outside_the_vocabulary_are_said(self):
        self.assertEqual(self.compile(bos_token_id=50256, eos_token_id=[1, 50256]),
                         [f"{key}=50256 of model/generation_config.json is behind the last token, 47, and not honoured"
                          for key in ("bos_token_id", "eos_token_id")])
        self.quire("run", "model.qplan", "--ids=1,2", "-n", "3", "--output=ids")


if __name__ == "__main__":
    quire_test.main()
