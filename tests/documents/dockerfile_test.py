#!/usr/bin/env python3
"""The Dockerfile names what is there: scripts and what they take, presets, targets and files. No engine is needed."""

import json
import os
import re
import unittest
from pathlib import Path

root = Path(__file__).resolve().parents[2]
# One instruction a line.
text = re.sub(r"\\\n\s*", " ", (root / "Dockerfile").read_text())
instructions = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


class Dockerfile(unittest.TestCase):
    def test_its_scripts_take_what_they_are_given(self):
        commands = re.findall(r"(scripts/[a-z-]+)((?: --[a-z-]+)*)", text)
        self.assertTrue(commands)
        for script, options in commands:
            path = root / script
            self.assertTrue(path.is_file(), script)
            self.assertTrue(os.access(path, os.X_OK) or script == "scripts/environment", script)
            for option in options.split():
                self.assertIn(option, path.read_text(), f"{script} {option}")

    def test_its_presets_are_there(self):
        presets = {preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]}
        named = re.findall(r"--preset (\w+)", text)
        self.assertTrue(named)
        self.assertLessEqual(set(named), presets)
        for preset in set(named):
            self.assertIn(f"/src/build/{preset}/bin/ce-tune", text)

    def test_what_it_copies_is_there(self):
        stages = {words[1].split()[-1] for words in instructions if words[0] == "FROM" and " AS " in words[1]}
        for name, rest in instructions:
            if name != "COPY":
                continue
            words = rest.split()
            stage = re.fullmatch(r"--from=(\w+)", words[0])
            if stage:
                self.assertIn(stage.group(1), stages)
            source = words[1] if stage else words[0]
            made = source.startswith(("/src/build/", "/wheels"))
            self.assertTrue(made or (root / source.removeprefix("/src/")).exists(), source)

    def test_its_last_stage_has_the_runtime_of_nvidia(self):
        last = [rest for name, rest in instructions if name == "FROM"][-1]
        self.assertRegex(last, r"^nvidia/cuda:[0-9.]+-runtime-")  # `base` has no NVRTC

    def test_its_instructions_are_known(self):
        known = {"FROM", "SHELL", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "CMD"}
        self.assertLessEqual({name for name, _ in instructions}, known)
        for ignored in (root / ".dockerignore").read_text().split():
            self.assertNotIn(ignored.strip("/*"), {"python", "scripts", "cmake", "cache", "LICENSE"})


if __name__ == "__main__":
    unittest.main()
