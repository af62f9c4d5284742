"""Every relative link of the documents leads to a file of the repository, and every #anchor to a heading."""

import re
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
PAGES = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md",
                                    "python/README.md")]
PAGES += sorted([*(SOURCE / "docs").glob("*.md"), *(SOURCE / "bench" / "results").rglob("*.md")])
CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")


def without_code(text):
    return CODE.sub("", text)


def anchors(text):
    """As GitHub makes them of headings, and those that are written as <a id=...>."""
    found = set(re.findall(r'<a id="([^"]+)">', text))
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(slug if number == 0 else f"{slug}-{number}")
    return found


def broken(page, text):
    """The links of the text that lead nowhere, where the text is that of the page."""
    for link in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if path and not target.exists():
            yield link
        elif anchor and target.suffix == ".md":
            there = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                yield link


class Links(unittest.TestCase):
    def test_all_lead_somewhere(self):
        for page in PAGES:
            with self.subTest(page=str(page.relative_to(SOURCE))):
                self.assertEqual(list(broken(page, page.read_text(encoding="utf-8"))), [])

    def test_broken_ones_are_noticed(self):
        text = "# One `two`\n[a](#one-two) [b](#three) [c](nowhere.md) [d](README.md#nothing) [e](VERSION) `[f](g)`\n"
        self.assertEqual(list(broken(SOURCE / "page.md", text)), ["#three", "nowhere.md", "README.md#nothing"])

    def test_paths_in_tables_and_sentences_are_of_the_tree(self):
        """What looks like a path from the top of the repository: `room/...` with a slash or an extension at its end."""
        rooms = "base|bench|c|cache|ce|cli|docs|examples|generator|include|python|runtime|scripts|templates|tests|tuner"
        path = re.compile(rf"`((?:{rooms})/(?:[\w.-]+/)*(?:[\w-]+\.\w+)?)`")
        for page in PAGES:
            if page.name == "CHANGELOG.md":  # of the past
                continue
            text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
            wrong = [name for name in path.findall(text) if not (SOURCE / name).exists()
                     and not re.search("NAME|ROOM", name)]
            with self.subTest(page=str(page.relative_to(SOURCE))):
                self.assertEqual(wrong, [])

    def test_every_page_can_be_found_from_the_readme(self):
        readme = SOURCE / "README.md"
        found, look_at = {readme}, [readme]
        while look_at:
            page = look_at.pop()
            for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
                target = (page.parent / link.partition("#")[0]).resolve()
                if target in PAGES and target not in found:
                    found.add(target)
                    look_at.append(target)
        self.assertEqual([str(page) for page in PAGES if page not in found and page.parts[-2] != "python"], [])


if __name__ == "__main__":
    unittest.main()
