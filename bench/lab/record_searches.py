#!/usr/bin/env python3
"""Writes what exhaustive searches measured into a text small enough for the repository.

    ce-tune sweep --strategy exhaustive ... --db exhaustive.db
    bench/lab/record_searches.py exhaustive.db ... > searches-GPU-DATE.txt
    tar -cJf bench/lab/recordings/searches-GPU-DATE.tar.xz searches-GPU-DATE.txt

bench/lab/replay reads it: strategies are scored, and the weights of the ranking are fitted, without a GPU. A line
"problem KEY TEXT | rows bytes" begins a problem; each of the lines after it is a config without its cache modifiers
and, for each load.store pair, the median in microseconds and the spread (interquartile range over median) in percent;
then "registers=" of a thread, and "spills" where kernels of that structure keep values in local memory.
With --partial the word is "partial": for searches of few configs, to which weights are fitted and nothing else.
"""

import argparse
import collections
import json
import sqlite3
import sys

QUERY = """
SELECT p.text AS problem, d.text AS device, m.config, m.stage, m.median_us, m.spread, m.rows, m.bytes, m.outcome,
       m.registers, m.local_bytes, m.created_at, e.json AS environment
FROM measurements AS m
JOIN keys AS k ON k.id = m.key_id
JOIN problems AS p ON p.id = k.problem_id
JOIN device_models AS d ON d.id = k.device_model_id
JOIN environments AS e ON e.id = m.environment_id
ORDER BY p.text, m.created_at, m.id
"""


def split_config(text):
    """A config's text without cache modifiers, and the modifiers as "load.store"."""
    variant, _, axes = text.partition("/")
    values = dict(axis.split("=") for axis in axes.split(","))
    modifiers = f"{values.pop('load', 'ca')}.{values.pop('store', 'wb')}"
    return f"{variant}/{','.join(f'{k}={v}' for k, v in values.items())}", modifiers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="+", help="with exhaustive searches of one GPU model")
    parser.add_argument("--command", default="ce-tune sweep --strategy exhaustive", help="how they were filled")
    parser.add_argument("--partial", action="store_true", help="they looked at few configs of each problem")
    arguments = parser.parse_args()

    problems, spilling, registers = collections.defaultdict(dict), set(), {}
    stages = {}  # of what problems has
    sizes, devices, environment, date = {}, set(), {}, ""
    for path in arguments.databases:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        for row in database.execute(QUERY):
            devices.add(row["device"])
            config = row["problem"], row["config"]
            if row["outcome"] != "measured":
                problems[row["problem"]].pop(row["config"], None)
                stages.pop(config, None)
                continue
            # Nothing was timed; or three samples, and something came between.
            if row["median_us"] is None or row["spread"] > 0.3:
                continue
            # Samples in turns replace those of the screening.
            if row["stage"] < stages.get(config, row["stage"]):
                continue
            stages[config] = row["stage"]
            problems[row["problem"]][row["config"]] = (row["median_us"], row["spread"])
            sizes[row["problem"]] = (row["rows"], row["bytes"])
            structure = row["problem"], split_config(row["config"])[0]
            registers[structure] = max(registers.get(structure, 0), row["registers"])
            if row["local_bytes"] > 0:
                spilling.add(structure)
            environment, date = json.loads(row["environment"]), row["created_at"]
    if len(devices) != 1:
        sys.exit(f"measurements of {len(devices)} GPU models; expected one")

    print(f"# {arguments.command}")
    print(f"# driver {environment.get('driver', '?')}, NVRTC {environment.get('nvrtc', '?')}, {date[:10]}")
    print(f"device {devices.pop()}")
    for problem, configs in problems.items():
        if not configs:  # all were rejected
            continue
        rows, size = sizes[problem]
        print(f"{'partial' if arguments.partial else 'problem'} {problem} | {rows} {size}")
        lines = collections.defaultdict(list)
        for config, (median, spread) in sorted(configs.items()):
            structure, modifiers = split_config(config)
            lines[structure].append(f"{modifiers} {median:.4g} {100 * spread:.1f}")
        for structure, figures in lines.items():
            print(f"{structure} {' '.join(figures)} registers={registers[problem, structure]}"
                  f"{' spills' * ((problem, structure) in spilling)}")


if __name__ == "__main__":
    main()
