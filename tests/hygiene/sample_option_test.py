"""What a new option of cross entropy touches: sample_option.patch is one, and still applies."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = pathlib.Path(__file__).with_name("sample_option.patch")


class SampleOption(unittest.TestCase):
    def test_touches_four_files_and_two_of_the_c_interface(self):
        touched = set(re.findall(r"^\+\+\+ (\S+)", PATCH.read_text(encoding="utf-8"), re.MULTILINE))
        of_c = {"c/operations.hpp", "include/ce/ce.h"}
        self.assertLessEqual(of_c, touched)
        self.assertEqual(
            touched - of_c,
            {
                "include/ce/operations.hpp",
                "generator/operations/cross_entropy.hpp",
                "templates/operations/cross_entropy.cuh",
                "tuner/verify/reference.cpp",
            },
        )

    def test_applies(self):
        if shutil.which("git") is None:
            self.skipTest("there is no git")
        done = subprocess.run(
            ["git", "apply", "-p0", "--check", "--verbose", str(PATCH)],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)},  # as a part of another project, too
        )
        self.assertEqual(done.returncode, 0, f"{PATCH.name} is to be written anew:\n{done.stderr}")
        self.assertNotIn("Skipped", done.stderr)


if __name__ == "__main__":
    unittest.main()
