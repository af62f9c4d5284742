"""Each test of a build has a name of its own and labels that say what it needs.

labels_test.py CTEST BUILD_FOLDER
"""

import collections
import json
import subprocess
import sys
import unittest

CTEST, BUILD = sys.argv[1:]
KNOWN = {"unit", "nvrtc", "host", "gpu", "cli", "packaging", "python"}


def tests():
    """(name, labels) of every test; what is not built has no tests yet."""
    said = subprocess.run([CTEST, "--show-only=json-v1"], cwd=BUILD, stdout=subprocess.PIPE, check=True).stdout
    for test in json.loads(said)["tests"]:
        if not test["name"].endswith("_NOT_BUILT"):
            properties = {each["name"]: each["value"] for each in test.get("properties", [])}
            yield test["name"], properties.get("LABELS", [])


class Labels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tests = list(tests())

    def test_names_are_unique(self):
        # ctest gives the properties of a name to all tests of that name, so these would share their labels.
        times = collections.Counter(name for name, _ in self.tests)
        self.assertEqual([name for name, count in times.items() if count > 1], [])

    def test_none_is_of_the_host_device_and_of_a_gpu(self):
        # Presets leave out what needs a GPU.
        self.assertEqual([name for name, labels in self.tests if {"host", "gpu"} <= set(labels)], [])

    def test_each_has_labels_that_presets_know(self):
        self.assertEqual([name for name, labels in self.tests if not labels or not set(labels) <= KNOWN], [])

    def test_there_are_tests(self):
        self.assertGreater(len(self.tests), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
