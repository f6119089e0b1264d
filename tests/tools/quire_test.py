"""What the tests of the command line share: a case that runs quire in a folder of its own.

    python3 SOMETHING_test.py QUIRE ROOT [unittest's arguments]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

QUIRE = None
ROOT = None

# Exit codes, as tools/cli.h has them.
OK, FAILURE, USAGE, UNSUPPORTED, MISMATCH, RESOURCE, VERIFICATION = range(7)


class QuireTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def quire(self, *arguments, code=OK, stdin="", **options):
        """Runs quire in the test's folder, checks the exit code, and returns (stdout, stderr)."""
        done = subprocess.run([QUIRE, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              input=stdin, **options)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        if code != OK:
            self.assertRegex(done.stderr, r"(?m)^error: ", arguments)
        return done.stdout, done.stderr

    def error(self, *arguments, code, **options):
        """The message of a run that fails, which has nothing to say on stdout."""
        out, err = self.quire(*arguments, code=code, **options)
        self.assertEqual(out, "", arguments)
        return err

    def as_other_user(self):
        """For subprocess: what makes the child a user whom permissions hold for, which they do not for root."""
        self.folder.chmod(0o777)

        def become():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)

        try:
            subprocess.run([QUIRE, "--version"], check=True, preexec_fn=become, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            self.skipTest("another user cannot run quire here")
        return become

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def story(self, name="story.qplan", *arguments):
        """The demo model, compiled in the test's folder."""
        self.quire("compile", ROOT / "models/demo/story", "-o", name, *arguments)
        return self.folder / name


def main():
    global QUIRE, ROOT
    QUIRE, ROOT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    # Kernels are built once for all tests.
    os.environ.setdefault("QUIRE_CACHE", str(QUIRE.parent / "test-kernel-cache"))
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
