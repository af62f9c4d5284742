"""bench/sweep_scaling.py with a ce-tune that only says what it was called with."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
PROGRAM = SOURCE / "bench" / "sweep_scaling.py"

# It finds a winner of each problem, except of the first where there are LOSES GPUs.
CE_TUNE = f"""#!{sys.executable}
import csv, json, os, sys
from pathlib import Path
words = dict(zip(sys.argv[2:-1:2], sys.argv[3:-1:2]))
problems = list(csv.DictReader(open(words["--from"])))
gpus = os.environ["CUDA_VISIBLE_DEVICES"]
database = Path(words["--db"])
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps({{"gpus": gpus, "device": words["--device"], "problems": len(problems),
                            "fresh": not database.exists(), "system": os.environ["CE_SYSTEM_DB"]}}) + "\\n")
database.write_text("")
loses = len(gpus.split(",")) == int(os.environ.get("LOSES", "0"))
swept = [{{"title": " ".join(one.values()), "winner": None if loses and i == 0 else "block", "unfinished": None,
          "device": "cuda:%d" % (i % len(gpus.split(","))), "median_us": 2.0, "seconds": 1.0, "measured": 3,
          "compiled": 4}} for i, one in enumerate(problems)]
print(json.dumps({{"problems": swept}}))
"""


class SweepScaling(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "ce-tune"
        self.program.write_text(CE_TUNE)
        self.program.chmod(0o755)

    def scale(self, *words, **environment):
        command = [sys.executable, "-B", PROGRAM, "--ce-tune", self.program, "--out", self.folder / "out.json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "CALLS": str(self.folder / "calls"), **environment})
        document = self.folder / "out.json"
        return done, json.loads(document.read_text()) if document.exists() else None

    def test_sixty_problems_that_are_all_different(self):
        listed = self.scale("--list")[0].stdout.splitlines()[1:]
        self.assertEqual((len(listed), len(set(listed))), (60, 60))

    def test_each_number_of_gpus_begins_with_an_empty_database(self):
        done, document = self.scale("--gpus", "1,2,4", CUDA_VISIBLE_DEVICES="3,5,6,7")
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        self.assertEqual([call["gpus"] for call in calls], ["3,5,6,7", "3", "3,5", "3,5,6,7"])
        self.assertEqual([call["problems"] for call in calls], [1, 60, 60, 60])
        for call in calls:
            self.assertEqual((call["device"], call["fresh"], call["system"]), ("cuda:all", True, "none"))
        self.assertEqual(list(document["ratios"]), ["1 to 2", "1 to 4", "2 to 4"])
        self.assertEqual(document["runs"][2]["tuned_by_device"], {f"cuda:{i}": 15 for i in range(4)})
        self.assertEqual([run["winners_over_first"] for run in document["runs"]], [1, 1, 1])

    def test_a_sweep_without_all_winners_has_no_ratio(self):
        done, document = self.scale("--gpus", "1,2,4", "--problems", "8", LOSES="2")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(list(document["ratios"]), ["1 to 4"])
        self.assertEqual(document["runs"][1]["tuned"], 7)


if __name__ == "__main__":
    unittest.main()
