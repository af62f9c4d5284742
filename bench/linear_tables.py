"""The table of docs/linear.md, from what linear.py measured."""

from __future__ import annotations

import json
from typing import Any

from pages import Page, table, wrapped

GIB = 1 << 30
TITLES = {"products": "three products alone", "ce, whole logits": "ce, whole logits", "ce, 4 GiB": "ce, 4 GiB",
          "ce, 512 MiB": "ce, 512 MiB", "torch": "PyTorch", "torch.compile": "torch.compile",
          "Liger-Kernel": "Liger-Kernel"}


def cell(one: dict[str, Any]) -> str:
    if "error" in one:
        return "refuses"
    memory = f" ({one['peak_bytes'] / GIB:.1f} GiB)" if "peak_bytes" in one else ""
    return f"{one['median_ms']:.1f} ms{memory}"


def linear(page: Page) -> str:
    path = page.results.linear
    if path is None:
        raise ValueError("there are no figures of the loss of a linear layer")
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [["tokens x hidden x classes", *TITLES.values()]]
    for measured in document["measured"]:
        shape = measured["shape"].replace("x", " x ") + ("" if measured["gradients"] else ", forward alone")
        rows.append([shape, *(cell(measured["results"][name]) for name in TITLES)])
    machine = document["machine"]
    return f"{table(rows)}\n\n" + wrapped(
        f"{machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}, "
        f"[{machine['date']}]({page.path(path)}).")
