#!/usr/bin/env python3
"""Habits of the command line: exit codes, the form of errors, stdout and stderr, what happens to files."""
import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import quire_test
from checkpoints import write_llama, write_sparse_llama
from quire_test import FAILURE, MISMATCH, OK, QuireTest, RESOURCE, UNSUPPORTED, USAGE

VERBS = ("compile", "run", "dump", "check", "verify", "bench")


class UsageTest(QuireTest):
    def test_no_verb(self):
        self.assertEqual(self.error(code=USAGE), f"error: quire: no verb\n  allowed: {', '.join(VERBS)}\n  fix: see quire --help\n")

    def test_unknown_verb_has_a_near_one(self):
        self.assertIn("fix: did you mean compile?", self.error("comple", code=USAGE))

    def test_unknown_flag(self):
        for verb in VERBS:
            error = self.error(verb, "x", "--no-such-flag", code=USAGE)
            self.assertIn(f"quire {verb}: --no-such-flag is not a flag of it", error)
            self.assertIn(f"fix: see quire {verb} --help", error)

    def test_unknown_flag_has_a_near_one(self):
        for near, *given in (("--device", "--dvice", "cpu"), ("--max-tokens", "--max-token=3"),
                             ("--prompt-file", "x", "--prompt_fil=y")):
            self.assertIn(f"fix: did you mean {near}?", self.error("run", "x", *given, code=USAGE))

    def test_an_argument_too_many(self):
        error = self.error("check", "x", "y", "z", code=USAGE)
        self.assertIn("quire check: y: one argument too many\n  fix: see quire check --help", error)
        for words in (["--source", "a"], ["a"]):
            self.assertIn(words[0], self.error("run", "x", "--", *words, code=USAGE).splitlines()[0])

    def test_value_out_of_its_set(self):
        self.assertIn("--kv-dtype", self.error("compile", "x", "--kv-dtype=f8", code=USAGE))
        self.assertIn("--page-tokens", self.error("compile", "x", "--page-tokens=0", code=USAGE))
        self.assertIn("--output", self.error("dump", "x", "--output=everything", code=USAGE))
        self.assertIn("--top-p", self.error("run", "x", "-p", "y", "--top-p=1.5", code=USAGE))

    def test_flags_that_exclude_each_other(self):
        self.assertIn("--temperature", self.error("run", "x", "-p", "y", "--greedy", "--temperature=1", code=USAGE))

    def test_flags_without_effect(self):
        for flag, *arguments in (
            ("--emit", "dump", "x", "--emit=llvm"),
            ("--phase", "dump", "x", "--output=kernels", "--phase=lowered"),
            ("--arch", "dump", "x", "--output=kernels", "--emit=llvm", "--arch=sm_80"),
            ("--target", "dump", "x", "--target=cpu"),
            ("--target", "dump", "x", "--output=ir", "--target=cpu"),
            ("--format", "dump", "--ops", "--format=json"),
            ("table", "dump", "--ops", "--passes-table"),
            ("table", "dump", "x", "--ops"),
            ("--top-logprobs", "run", "x", "-p", "y", "--top-logprobs=3", "--output=ids"),
            ("--echo", "run", "x", "-p", "y", "--echo", "--output=json"),
            ("--image-positions", "run", "x", "-p", "y", "--image-positions=1,2"),
            ("--top-k", "run", "x", "-p", "y", "--temperature=0", "--top-k=3"),
            ("--min-p", "run", "x", "-p", "y", "--temperature=0", "--min-p=0.1"),
            ("--eager", "run", "x", "-p", "y", "--device=cpu", "--eager"),
            ("--eager", "check", "x", "--device=cpu", "--eager"),
            ("--eager", "verify", "x", "--device=cpu", "--eager"),
            ("--eager", "bench", "x", "--device=cpu", "--eager"),
            ("--source-states", "run", "x", "-p", "y", "-p", "z", "-p", "a", "--source-states=b", "--source-states=c"),
            ("-p", "verify", "x", "-p", ""),
            ("--source", "verify", "x", "--source", ""),
            ("--stop", "run", "x", "-p", "y", "--stop", ""),
            ("--arch", "dump", "x", "--output=kernels", "--emit=ptx", "--arch=foo"),
            ("--output", "compile", "x.qir", "--emit=ir", "-o", "y"),
            ("--weights", "compile", "x.qir", "--emit=ir", "--weights=pack"),
            ("--target", "compile", "x.qir", "--emit=ir", "--target=cpu,cuda"),
            ("--allow-config-key", "compile", "x.qir", "--allow-config-key=a"),
            ("--allow-config-key", "compile", "x.qplan", "--allow-config-key=a"),
        ):
            error = self.error(*arguments, code=USAGE)
            self.assertIn(flag, error.splitlines()[0])
            self.assertIn("\n  allowed: ", error)

    def test_flags_without_effect_on_this_plan(self):
        plan = self.story()
        for flag, *arguments in (
            ("--length-penalty", "run", plan, "-p", "y", "--length-penalty=2"),
            ("--early-stopping", "run", plan, "-p", "y", "--early-stopping=true"),
            ("--logprobs", "run", plan, "-p", "y", "--beams=2", "--logprobs", "--output=json"),
            ("--presence-penalty", "run", plan, "-p", "y", "--beams=2", "--presence-penalty=1"),
            ("--frequency-penalty", "run", plan, "-p", "y", "--beams=2", "--frequency-penalty=1"),
            ("--samples", "run", plan, "-p", "y", "--samples=2"),
            ("--no-special", "run", plan, "--ids=5", "--no-special"),
            ("--source-states", "run", plan, "-p", "Once", "--source-states=x"),
            ("--tokens", "verify", plan, "-p", "Once", "--tokens=3"),
            ("--source", "bench", plan, "--source=3"),
        ):
            error = self.error(*arguments, code=USAGE)
            self.assertIn(f"{flag} has no effect", error.splitlines()[0])
            self.assertIn("\n  allowed: ", error)

    def test_names_that_are_empty(self):
        for arguments in (["compile", ""], ["compile", "x", "-o", ""], ["compile", "x.qir", "--weights-dir="],
                          ["compile", "x.qir", "--weights-map="], ["compile", "x", "--dump-ir="],
                          ["compile", "x", "--allow-config-key="], ["run", "", "-p", "a"], ["run", "x", "--prompt-file="],
                          ["run", "x", "--source-file="], ["run", "x", "-p", "a", "--source-states="], ["dump", ""],
                          ["check", ""], ["verify", ""], ["bench", ""], ["check", "x", "--weights-dir="]):
            self.assertIn("the name is empty", self.error(*arguments, code=USAGE))

    def test_a_flag_takes_one_argument(self):
        plan = self.story()
        out, _ = self.quire("run", plan, "-p", "Once", "-n", "3")
        self.assertEqual(self.quire("run", "-p", "Once", plan, "-n", "3")[0], out)
        for arguments in (["run", plan, "-p", "a", "b"], ["run", plan, "--ids", "5", "6"], ["bench", plan, "--batch", "1", "2"]):
            self.assertIn("one argument too many", self.error(*arguments, code=USAGE))

    def test_lists_of_numbers(self):
        flags = [("bench", "--batch", "1 to 4096"), ("bench", "--source", "1 to 1048576"),
                 ("run", "--image-positions", "0 to 1073741824")]
        for verb, flag, allowed in flags:
            for numbers, wrong in (("1,,8", "a number is missing"), ("1,8,", "a number is missing"),
                                   (",1", "a number is missing"), ("1 8", "1 8 is not one"), ("1,x", "x is not one"),
                                   ("1,-3", "-3 is not one"), ("2147483648", "2147483648 is not one")):
                error = self.error(verb, "x", f"{flag}={numbers}", code=USAGE)
                for text in (flag, f"{numbers}: {wrong}", f"allowed: whole numbers from {allowed}, separated by commas"):
                    self.assertIn(text, error)

    def test_sizes(self):
        plan = self.story()
        for size in ("-5", "99999999999999999999", "abc", "", "1.2.3GiB", "5 apples", "1XiB", "ib", "5ib"):
            self.assertIn("--memory", self.error("run", plan, "-p", "a", f"--memory={size}", code=USAGE))
        for size in ("1.5MiB", "1m", "2 MB", "1048576", "1048576b", "0"):
            self.quire("run", plan, "-p", "a", "-n", "1", f"--memory={size}")

    def test_missing_argument(self):
        for verb in VERBS:
            self.error(verb, code=USAGE)
        self.assertIn("--prompt-file", self.error("run", "x.qplan", code=USAGE))

    def test_standard_input_is_one_prompt(self):
        for flag in ("--prompt-file", "--source-file"):
            self.assertIn("- more than once", self.error("run", "x.qplan", "--prompt-file", "-", flag, "-", code=USAGE))

    def test_help_and_version_are_data(self):
        out, err = self.quire("--version")
        self.assertRegex(out, r"^\d+\.\d+\.\d+\n$")
        self.assertEqual(err, "")
        for verb in VERBS:
            out, err = self.quire(verb, "--help")
            self.assertIn("--help", out)
            self.assertEqual(err, "")

    def test_underscores_in_flags(self):
        write_llama(self.folder / "model")
        self.quire("compile", "model", "--kv_dtype=f16", "--page_tokens", "8")
        out, _ = self.quire("dump", "model.qplan", "--output=memory")
        self.assertIn("pages of 8 tokens", out)


class FilesTest(QuireTest):
    def test_compile_writes_beside_no_other_file(self):
        write_llama(self.folder / "model")
        out, err = self.quire("compile", "model")
        self.assertEqual(out, "")
        self.assertIn("wrote", err)
        self.assertTrue(err.endswith("next       quire run model.qplan --ids 1,2,3 --output=ids\n"), err)  # no tokenizer
        self.assertEqual(self.files(), ["model", "model.qplan"])

    def test_existing_file_is_kept(self):
        write_llama(self.folder / "model")
        plan = self.folder / "x.qplan"
        plan.write_text("mine")
        error = self.error("compile", "model", "-o", "x.qplan", code=USAGE)
        self.assertIn("--force", error)
        self.assertEqual(plan.read_text(), "mine")
        self.quire("compile", "model", "-o", "x.qplan", "--force")
        self.assertNotEqual(plan.read_bytes()[:4], b"mine")

    def test_what_a_plan_is_made_of_is_not_replaced(self):
        write_llama(self.folder / "model")
        for name in ("model.safetensors", "config.json"):
            before = (self.folder / "model" / name).read_bytes()
            error = self.error("compile", "model", "-o", f"model/{name}", "--force", code=USAGE)
            self.assertIn("made of", error)
            self.assertIn("fix:", error)
            self.assertEqual((self.folder / "model" / name).read_bytes(), before)
        self.quire("compile", "model", "-o", "model/x.qplan")
        self.quire("compile", "model", "-o", "model/x.qplan", "--force")

    def test_threads_that_cannot_be_started(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))
        story = quire_test.ROOT / "models/demo/story"
        self.quire("compile", story, "-o", "story.qplan")
        self.quire("run", "story.qplan", "-p", "a", "-n", "1")  # its kernels are in the cache
        done = subprocess.run([quire_test.QUIRE, "run", "story.qplan", "-p", "a", "-n", "1", "--threads=200",
                               "--memory=1MiB"], cwd=self.folder, capture_output=True, text=True, preexec_fn=limit)
        self.assertIn(done.returncode, (OK, RESOURCE), done.stderr)
        self.assertEqual("fix:" in done.stderr, done.returncode == RESOURCE)

    def test_words_that_a_flag_does_not_know(self):
        self.assertIn("error: quire dump: no plan\n  allowed: a .qplan, or without one --ops, ", self.error("dump", code=USAGE))
        for verb, flag, word, allowed, fix in (
                ("compile", "--kv-dtype", "F16", "auto, f32, f16, bf16, f8e4m3", "did you mean f16?"),
                ("compile", "--weights", "packed", "ref, pack", "did you mean pack?"),
                ("run", "--device", "gpu", "auto, cpu, cuda", "did you mean cuda?"),
                ("run", "--output", "yaml-lines", "text, ids, json", "see quire run --help"),
                ("bench", "--format", "jsn", "text, json", "did you mean json?"),
                ("dump", "--output", "weight", "summary, ir, passes, kernels, memory, weights, metadata",
                 "did you mean weights?")):
            self.assertIn(f"error: quire {verb}: {flag}: {word} is not known\n  allowed: {allowed}\n  fix: {fix}\n",
                          self.error(verb, "x", f"{flag}={word}", code=USAGE))

    def test_a_packed_plan_stays_packed(self):
        write_llama(self.folder / "model")
        self.quire("compile", "model", "-o", "x.qplan", "--weights=pack")
        size = (self.folder / "x.qplan").stat().st_size
        self.quire("compile", "x.qplan", "-o", "x.qplan", "--force")
        self.assertEqual((self.folder / "x.qplan").stat().st_size, size)
        (self.folder / "model").rename(self.folder / "moved")
        error = self.error("compile", "x.qplan", "-o", "x.qplan", "--force", code=UNSUPPORTED)
        self.assertIn("--weights-dir", error)
        self.assertEqual((self.folder / "x.qplan").stat().st_size, size)
        self.quire("compile", "x.qplan", "-o", "x.qplan", "--force", "--weights-dir=moved")
        self.assertEqual((self.folder / "x.qplan").stat().st_size, size)
        self.error("compile", "x.qplan", "-o", "y.qplan", "--weights=ref", "--weights-dir=nowhere", code=UNSUPPORTED)
        self.quire("compile", "x.qplan", "-o", "y.qplan", "--weights=ref", "--weights-dir=moved")
        self.assertLess((self.folder / "y.qplan").stat().st_size, size)

    def test_failure_leaves_nothing(self):
        write_llama(self.folder / "model", num_hidden_layers=2)
        (self.folder / "model/config.json").write_text("{")
        self.error("compile", "model", "-o", "x.qplan", code=FAILURE)
        self.assertEqual(self.files(), ["model"])

    def test_full_disk_leaves_nothing(self):
        write_llama(self.folder / "model")

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        done = self.quire("compile", "model", "-o", "x.qplan", "--weights=pack", code=RESOURCE,
                          preexec_fn=limit_files)
        self.assertIn("x.qplan", done[1])
        self.assertEqual(self.files(), ["model"])

    def test_full_disk_while_dumping_leaves_nothing_half_written(self):
        model = quire_test.ROOT / "models/demo/story"

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        error = self.error("compile", model, "-o", "x.qplan", "--dump-ir=phases", code=RESOURCE, preexec_fn=limit_files)
        self.assertRegex(error, r"^error: phases/00-input.qir: cannot write: File too large\n  fix: make room")
        self.assertEqual(self.files(), ["phases"])
        self.assertEqual(list((self.folder / "phases").iterdir()), [])

    def test_one_of_several_at_a_time_writes_the_plan(self):
        write_llama(self.folder / "model")
        racing = [subprocess.Popen([quire_test.QUIRE, "compile", "model", "-o", "x.qplan"], cwd=self.folder,
                                   stderr=subprocess.DEVNULL) for _ in range(8)]
        self.assertEqual(sorted(process.wait() for process in racing), [0] + [USAGE] * 7)
        self.assertEqual(self.files(), ["model", "x.qplan"])

    def test_a_model_is_named_as_its_folder(self):
        write_llama(self.folder / "some")
        self.folder /= "some"
        for model in (".", "./", "../some/", "../some/."):
            self.assertRegex(self.quire("compile", model, "--force")[1], r"(?m)^model +some \(llama\)", model)
            self.assertIn("some.qplan", self.files())
            self.assertNotIn("..qplan", self.files())

    def test_no_such_folder(self):
        write_llama(self.folder / "model")
        error = self.error("compile", "model", "-o", "no/such/x.qplan", code=UNSUPPORTED)
        self.assertIn("no/such/x.qplan: cannot create: No such file or directory\n  fix: there is no folder no: ", error)
        (self.folder / "file").write_text("")
        error = self.error("compile", "model", "-o", "x.qplan", "--dump-ir=file", code=UNSUPPORTED)
        self.assertIn("file: cannot create: Not a directory\n  fix: the name of a folder: that is a file", error)
        for force in ([], ["--force"]):
            error = self.error("compile", "model", "-o", "model", *force, code=USAGE)
            self.assertIn("-o=model is a folder\n  fix: -o model/x.qplan", error)

    def test_folders_that_may_not_be_written_to(self):
        write_llama(self.folder / "model")
        other = self.as_other_user()
        (self.folder / "model").chmod(0o555)
        for flags in (["-o", "model/x.qplan"], ["-o", "x.qplan", "--dump-ir=model/phases"]):
            error = self.error("compile", "model", *flags, code=UNSUPPORTED, preexec_fn=other)
            self.assertIn(": cannot create: Permission denied\n  fix: let this user write to model, or write elsewhere", error)

    def test_killed_while_writing_leaves_nothing(self):
        # 128 MB, of which the process is seen to have written some when it is told to stop.
        write_sparse_llama(self.folder / "model", vocab_size=1 << 20)
        for number, more in ((signal.SIGINT, []), (signal.SIGKILL, ["--force"])):
            process = subprocess.Popen([quire_test.QUIRE, "compile", "model", "-o", "x.qplan", "--weights=pack", *more],
                                       cwd=self.folder, stderr=subprocess.DEVNULL)
            while process.poll() is None and not self.is_writing(process.pid):
                time.sleep(0.0005)
            process.send_signal(number)
            self.assertEqual(process.wait(), -number)
            self.assertEqual(self.files(), ["model"])

    def is_writing(self, pid):
        """Whether the process has a file of the test's folder open that holds bytes and has no name."""
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(fd).startswith(str(self.folder.resolve())) and os.stat(fd).st_nlink == 0:
                    return os.stat(fd).st_size > 0
        return False

    def test_full_stdout_is_an_error(self):
        self.story()
        for arguments in (["--help"], ["--version"], ["run", "--help"], ["dump", "story.qplan"], ["dump", "--ops"], ["run", "story.qplan", "-p", "Once", "-n", "2"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([quire_test.QUIRE, *arguments], cwd=self.folder, stdout=full,
                                      stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, RESOURCE, arguments)
            self.assertIn("error: stdout: cannot write", done.stderr)

    def test_missing_model(self):
        for name in ("no", "no.gguf", "no.qir"):
            self.assertRegex(self.error("compile", name, code=UNSUPPORTED),
                             f"(?i)^error: {name}: .*no such file or directory\n  fix: this folder is empty")

    def test_flags_of_texts_on_a_model(self):
        write_llama(self.folder / "model")
        self.assertIn("--weights-dir", self.error("compile", "model", "--weights-dir=model", code=USAGE))

    def test_model_in_the_place_of_a_plan(self):
        write_llama(self.folder / "model")
        for verb in ("run", "dump", "check", "verify", "bench"):
            more = ["-p", "x"] if verb == "run" else []
            self.assertIn("fix: quire compile model", self.error(verb, "model", *more, code=UNSUPPORTED))

    def test_missing_target(self):
        write_llama(self.folder / "model")
        self.quire("compile", "model", "-o", "x.qplan")
        self.error("dump", "x.qplan", "--output=memory", "--target=abacus", code=USAGE)
        self.quire("compile", "model", "-o", "cpu.qplan", "--target=cpu")
        self.error("dump", "cpu.qplan", "--output=memory", "--target=cuda", code=MISMATCH)
        self.quire("compile", "model", "-o", "cuda.qplan", "--target=cuda")
        error = self.error("run", "cuda.qplan", "--ids=1", "--device=cpu", code=MISMATCH)
        self.assertIn("--target=cuda,cpu", error)
        self.assertNotIn("no GPU", error)

    def test_missing_plan(self):
        for verb in ("run", "dump", "check", "verify", "bench"):
            more = ["-p", "x"] if verb == "run" else []
            done = self.quire(verb, "no.qplan", *more, code=UNSUPPORTED)
            self.assertIn("no.qplan", done[1])


class OptTest(QuireTest):
    TEXT = "func @f(%x: f32[T,8]) {\n  %y = silu %x : f32[T,8]\n  return %y\n}\n"

    def test_ir_is_data_and_notes_are_not(self):
        (self.folder / "f.qir").write_text(self.TEXT)
        out, err = self.quire("compile", "f.qir", "--emit=ir", "--passes=fuse", "--explain")
        self.assertIn("silu %x : f32[T,8] @0", out)
        self.assertIn("fuse @f: changed", err)
        self.assertEqual(self.files(), ["f.qir"])

    def test_unknown_pass(self):
        (self.folder / "f.qir").write_text(self.TEXT)
        for more in (["--emit=ir"], ["-o", "x.qplan"]):
            error = self.error("compile", "f.qir", "--passes=fuze", *more, code=USAGE)
            self.assertIn("fix: did you mean fuse?", error)

    def test_no_pass_at_all(self):
        (self.folder / "f.qir").write_text(self.TEXT)
        self.assertEqual(self.quire("compile", "f.qir", "--passes=", "--emit=ir")[0], self.TEXT)

    def test_passes_that_lowering_needs_are_named(self):
        all_passes = self.quire("dump", "--passes-table")[0].splitlines()[2:]
        all_passes = [line.split("|")[1].strip() for line in all_passes]
        needed = {"recognise-attention", "cache-kv", "narrow-outputs", "fuse"}
        for name in ("story", "dates"):
            model = quire_test.ROOT / "models/demo" / name

            def refused(passes):
                error = self.error("compile", model, "-o", "x.qplan", "--passes=" + ",".join(passes), code=USAGE)
                self.assertRegex(error, "^error: quire compile: --passes (leaves out|is in an order)")
                fix = error.splitlines()[-1].removeprefix("  fix: --passes=").split(",")
                self.quire("compile", model, "-o", "y.qplan", "--force", "--passes=" + ",".join(fix))
                missing = {line.split(": ")[1] for line in error.splitlines() if line.startswith("  missing: ")}
                self.assertEqual(missing | set(passes), set(fix))
                return missing

            for left_out in all_passes:
                rest = [each for each in all_passes if each != left_out]
                if left_out in needed:
                    self.assertEqual(refused(rest), {left_out})
                else:
                    self.quire("compile", model, "-o", "x.qplan", "--passes=" + ",".join(rest))
                    (self.folder / "x.qplan").unlink()
            self.assertEqual(refused([]), needed | ({"split-phases"} if name == "dates" else set()))
            self.assertEqual(refused(["fuse", "cache-kv"]), {"recognise-attention", "narrow-outputs"} |
                             ({"split-phases"} if name == "dates" else set()))
            self.assertEqual(refused(all_passes[::-1]), set())

    def test_a_plan_is_lowered_again_by_its_passes(self):
        def passes_of(plan):
            out, _ = self.quire("dump", plan, "--output=passes", "--format=json")
            return [line["pass"] for line in json.loads(out)]

        few = ["recognise-attention", "cache-kv", "narrow-outputs", "fuse"]
        self.story("few.qplan", "--passes=" + ",".join(few))
        _, err = self.quire("compile", "few.qplan", "-o", "again.qplan")
        self.assertIn(f"note       lowered as the plan was: --passes={','.join(few)}\n", err)
        self.assertEqual(passes_of("again.qplan"), passes_of("few.qplan"))
        self.quire("compile", "again.qplan", "-o", "cuda.qplan", "--target=cuda")
        self.assertEqual([name for name in passes_of("cuda.qplan") if name in few], few)
        self.assertNotIn("merge-projections", passes_of("cuda.qplan"))
        more = [*few[:1], "merge-projections", *few[1:]]
        self.quire("compile", "again.qplan", "-o", "more.qplan", "--passes=" + ",".join(more))
        self.assertIn("merge-projections", passes_of("more.qplan"))
        # All, where nobody asked for some.
        _, err = self.quire("compile", self.story(), "-o", "all.qplan")
        self.assertNotIn("--passes", err)

    def test_emit_is_for_texts(self):
        write_llama(self.folder / "model")
        self.assertIn("--output=ir", self.error("compile", "model", "--emit=ir", code=USAGE))

    def test_dump_ir_writes_every_phase(self):
        write_llama(self.folder / "model")
        self.quire("compile", "model", "--dump-ir=phases")
        phases = sorted(path.name for path in (self.folder / "phases").iterdir())
        self.assertEqual(phases[0], "00-input.qir")
        self.assertIn("01-recognise-attention.qir", phases)


if __name__ == "__main__":
    quire_test.main()
