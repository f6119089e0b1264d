#!/usr/bin/env python3
"""Installs the build into a folder, and builds and runs somebody else's program against it.

    install_test.py QUIRE ROOT BUILD
"""
import pathlib
import subprocess
import sys

import quire_test
from quire_test import QuireTest

BUILD = pathlib.Path(sys.argv.pop(3)).resolve()
PROMPT = "Once upon a time"


class InstallTest(QuireTest):
    def command(self, *arguments):
        done = subprocess.run(list(map(str, arguments)), cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_program_of_somebody_else(self):
        prefix = self.folder / "prefix"
        self.command("cmake", "--install", BUILD, "--prefix", prefix)
        installed = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()]
        self.assertIn("bin/quire", installed)
        # The runtime links without compiler and importers: they are not there to be linked.
        libraries = {pathlib.Path(path).name for path in installed if path.endswith(".a")}
        self.assertIn("libquire_runtime.a", libraries)
        self.assertFalse(libraries & {"libquire_compiler.a", "libquire_models.a", "libquire_reference.a"})
        sources = quire_test.ROOT / "tests/install"
        for source in sources.glob("generate.*"):
            self.assertLess(len(source.read_text().splitlines()), 40, source)
        self.command("cmake", "-S", sources, "-B", "user", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
                     "-DCMAKE_BUILD_TYPE=Release")
        self.command("cmake", "--build", "user")
        self.command(prefix / "bin/quire", "compile", quire_test.ROOT / "models/demo/story", "-o", "story.qplan")
        expected = self.command(prefix / "bin/quire", "run", "story.qplan", "-p", PROMPT, "-n", "32", "-q")
        programs = [source.name.replace(".", "_") for source in sources.glob("generate.*")]
        self.assertTrue(programs)
        for program in programs:
            self.assertEqual(self.command(self.folder / "user" / program, "story.qplan", PROMPT) + "\n", expected)


if __name__ == "__main__":
    quire_test.main()
