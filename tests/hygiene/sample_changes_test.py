"""What a new option of cross entropy touches, and a new output of its rows: patches are such changes, and still apply."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
EACH = {
    "include/ce/operations.hpp",
    "generator/operations/cross_entropy.hpp",
    "templates/operations/cross_entropy.cuh",
    "tuner/verify/reference.cpp",
}
OF_C = {"c/cross_entropy_fields.hpp", "include/ce/ce.h"}
OF_PYTHON = {f"python/src/ce/{name}" for name in ("array.py", "torch/_reference.py", "torch/functional.py")}


class SampleChanges(unittest.TestCase):
    def expect(self, name: str, files: set[str]) -> None:
        patch = FOLDER / name
        touched = set(re.findall(r"^\+\+\+ (\S+)", patch.read_text(encoding="utf-8"), re.MULTILINE))
        self.assertEqual(touched, files)
        if shutil.which("git") is None:
            self.skipTest("there is no git")
        done = subprocess.run(
            ["git", "apply", "-p0", "--check", "--verbose", str(patch)],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)},  # as a part of another project, too
        )
        self.assertEqual(done.returncode, 0, f"{name} is to be written anew:\n{done.stderr}")
        self.assertNotIn("Skipped", done.stderr)

    def test_an_option_touches_four_files_and_two_of_the_c_interface(self):
        self.expect("sample_option.patch", EACH | OF_C)

    def test_an_output_of_rows_touches_four_files_and_two_of_the_c_interface(self):
        self.expect("sample_output.patch", EACH | OF_C)

    def test_python_has_three_files_of_each(self):
        self.expect("sample_option_python.patch", OF_PYTHON)
        self.expect("sample_output_python.patch", OF_PYTHON)


if __name__ == "__main__":
    unittest.main()
