"""bench/own_version.py on trees with and without a repository."""

import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest import mock

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import own_version  # noqa: E402


def git(tree, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(tree), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class OwnVersion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name) / "tree"
        self.tree.mkdir()
        (self.tree / "VERSION").write_text("1.2.3\n")
        absent = mock.patch("importlib.metadata.version", side_effect=PackageNotFoundError)
        absent.start()
        self.addCleanup(absent.stop)

    def test_the_commit_is_that_of_the_tree(self):
        self.assertEqual(own_version.own_version(self.tree), "1.2.3")
        git(self.tree, "init", "-q")
        self.assertEqual(own_version.own_version(self.tree), "1.2.3", "nothing is committed")
        git(self.tree, "add", "VERSION")
        git(self.tree, "commit", "-qm", "first")
        commit = git(self.tree, "rev-parse", "HEAD")[:12]
        self.assertEqual(own_version.own_version(self.tree), f"1.2.3+g{commit}")
        (self.tree / "VERSION").write_text("1.2.4\n")
        self.assertEqual(own_version.own_version(self.tree), f"1.2.4+g{commit}.dirty")

    def test_the_repository_of_another_is_not_asked(self):
        git(self.tree.parent, "init", "-q")
        git(self.tree.parent, "commit", "-qm", "first", "--allow-empty")
        self.assertEqual(own_version.own_version(self.tree), "1.2.3")

    def test_without_git(self):
        with mock.patch("subprocess.run", side_effect=FileNotFoundError):
            self.assertEqual(own_version.own_version(self.tree), "1.2.3")

    def test_an_installed_package_says_its_own(self):
        with mock.patch("importlib.metadata.version", return_value="0.9.0"):
            self.assertEqual(own_version.own_version(self.tree), "0.9.0")


if __name__ == "__main__":
    unittest.main()
