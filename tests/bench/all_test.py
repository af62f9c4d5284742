"""bench/all with a ce-tune that only says that there is a GPU, and what it was called with."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent

# It fails where the words have --softcap.
CE_TUNE = f"""#!{sys.executable}
import json, os, sys
if sys.argv[1] == "doctor":
    print(json.dumps({{"findings": json.loads(os.environ["FINDINGS"])}}))
else:
    print(json.dumps({{"words": sys.argv[1:], "system": os.environ["CE_SYSTEM_DB"], "db": os.environ["CE_DB"]}}))
    sys.stderr.write("progress\\n")
    sys.exit(3 if "--softcap" in sys.argv else 0)
"""
GPU = [{"what": "driver", "state": "ok", "facts": {}},
       {"what": "cuda:0", "state": "ok", "facts": {"name": "NVIDIA A100-SXM4-80GB"}}]


class All(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "ce-tune"
        self.program.write_text(CE_TUNE)
        self.program.chmod(0o755)

    def all(self, *words, findings=GPU, **environment):
        command = [sys.executable, "-B", SOURCE / "bench" / "all", "--ce-tune", self.program]
        folders = ["--out", self.folder / "out", "--work", self.folder / "work"]
        return subprocess.run([*command, *folders, *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "CE_DEVICE": "cuda", "FINDINGS": json.dumps(findings), **environment})

    def documents(self):
        """By task."""
        found = {}
        for path in (self.folder / "out").iterdir():
            self.assertRegex(path.name, r"\Aa100-sxm4-80gb-\d{4}-\d\d-\d\d-[a-z]")
            found[path.stem.split("-", 6)[6]] = json.loads(path.read_text())
        return found

    def test_lists_tasks_by_names_of_their_own(self):
        names = [line.split()[0] for line in self.all("--list").stdout.splitlines()]
        self.assertEqual(len(names), len(set(names)))
        for name in ("widths-bf16", "few-rows", "options-all", "compare-bf16-rest", "accuracy-f16", "regret", "planted"):
            self.assertIn(name, names)

    def test_documents_are_of_their_commands(self):
        done = self.all("--only", "few-rows,loss-grad")
        self.assertEqual(done.returncode, 0, done.stderr)
        documents = self.documents()
        self.assertEqual(sorted(documents), ["few-rows", "loss-grad-8192x128256"])
        self.assertEqual(documents["few-rows"], {
            "words": "bench --json --suite few-rows --op softmax,cross_entropy --dtype bf16".split(),
            "system": "none", "db": str(self.folder / "work" / "ce.db")})
        log = (self.folder / "work" / "few-rows.log").read_text()
        self.assertRegex(log, r"\A\$ .*ce-tune bench --json .*\nprogress\nexit status 0 after \d+ s\n\Z")

    def test_a_task_that_fails_stops_no_other(self):
        done = self.all("--only", "options")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\noptions-cap +failed with exit status 3 after \d+ s: .*options-cap\.log\n")
        self.assertEqual(sorted(self.documents()),
                         ["options-base", "options-nocap", "options-noweights", "options-weights-bf16"])
        self.assertIn("exit status 3", (self.folder / "work" / "options-cap.log").read_text())

    def test_a_name_is_one_task_before_it_is_many(self):
        self.assertEqual(self.all("--only", "widths-f32").returncode, 0)
        self.assertEqual(list(self.documents()), ["widths-f32"])

    def test_no_task_begins_after_the_budget(self):
        done = self.all("--only", "few-rows", "--budget", "0s")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Afew-rows +not begun: the budget is spent\n\Z")
        self.assertEqual(self.documents(), {})

    def test_what_needs_torch_is_skipped_without_it(self):
        (self.folder / "torch.py").write_text("raise ImportError('made up')\n")
        done = self.all("--only", "compare-bf16,few-rows", PYTHONPATH=str(self.folder))
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\ncompare-bf16 +skipped: torch cannot be imported: ImportError: made up\n")
        self.assertEqual(list(self.documents()), ["few-rows"])

    def test_names_what_is_wrong_with_a_call(self):
        for option, text, said in (("--only", "few-rows,fewer", '"fewer" is no task'),
                                   ("--budget", "5", '"5" is no time')):
            done = self.all(option, text)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)

    def test_measures_no_host(self):
        done = self.all("--only", "few-rows", findings=[{"what": "host", "state": "ok", "facts": {"name": "host:x"}}])
        self.assertEqual(done.returncode, 1)
        self.assertIn("found no cuda:0", done.stderr)
        self.assertIn("found no host", self.all("--only", "few-rows", CE_DEVICE="host").stderr)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
