#!/usr/bin/env python3
"""Fits how many registers a thread takes to what the compiler gave it, for `register_uses` in tuner/ranking.cpp.

    build/ci/bin/ce_replay registers searches-GPU-DATE.txt > registers.csv
    bench/lab/fit_registers.py registers.csv

A line through the configs of each variant, of least absolute deviations: base + word x (words that a thread holds) + more
for cross entropy + more for two inputs. Then the base is moved to where most configs have as many blocks on a
multiprocessor as with what they take.
"""

import argparse
import csv
import math
import pathlib

MOST_REGISTERS, LEAST_REGISTERS, GRANULE = 255, 24, 8
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32  # of a multiprocessor of sm_90


def solve(matrix, right):
    """By Gauss and Jordan, for a few unknowns."""
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j, row in enumerate(rows):
            if j != i:
                rows[j] = [value - row[i] * own for value, own in zip(row, rows[i])]
    return [row[-1] for row in rows]


def least_deviations(features, values):
    """By least squares, in which what is farther off counts less each time."""
    weights = [1.0] * len(values)
    for _ in range(50):
        matrix = [[sum(w * f[i] * f[j] for w, f in zip(weights, features)) + (1e-9 if i == j else 0)
                   for j in range(len(features[0]))] for i in range(len(features[0]))]
        right = [sum(w * f[i] * value for w, f, value in zip(weights, features, values)) for i in range(len(features[0]))]
        found = solve(matrix, right)
        weights = [1 / max(1.0, abs(sum(a * b for a, b in zip(found, f)) - value)) for f, value in zip(features, values)]
    return found


def blocks(registers, threads):
    taken = min(MOST_REGISTERS, max(LEAST_REGISTERS, math.ceil(registers / GRANULE) * GRANULE))
    return max(1, min(BLOCKS, THREADS // threads, REGISTERS // (taken * threads)))


def fit(configs):
    """base, word, cross entropy, two inputs; and how many configs then have another number of blocks."""
    traits = [(1.0, float(each["words"]), float(each["operation"].startswith("cross_entropy")), float(each["inputs"] == "2"))
              for each in configs]
    varying = [i for i in range(4) if i == 0 or len({trait[i] for trait in traits}) > 1]
    registers = [float(each["registers"]) for each in configs]
    found = least_deviations([[trait[i] for i in varying] for trait in traits], registers)
    line = [0.0] * 4
    for i, value in zip(varying, found):
        line[i] = value

    def wrong(moved):
        return sum(
            blocks(sum(a * b for a, b in zip(line, trait)) + moved, int(each["threads"])) != blocks(own, int(each["threads"]))
            for trait, own, each in zip(traits, registers, configs))

    moved = min((step / 2 for step in range(-16, 9)), key=lambda step: (wrong(step), abs(step)))
    line[0] += moved
    return line, wrong(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="CSV of ce_replay registers")
    arguments = parser.parse_args()
    variants = {}
    with arguments.file.open() as file:
        for row in csv.DictReader(file):
            if 0 < int(row["registers"]) < MOST_REGISTERS:
                variants.setdefault(row["variant"], []).append(row)
    for variant, configs in sorted(variants.items()):
        (base, word, cross_entropy, two_inputs), wrong = fit(configs)
        print(f'{{"{variant}", {base:.1f}, {word:.2f}, {cross_entropy:.1f}, {two_inputs:.1f}}},'
              f"  // {len(configs)} configs, {wrong} with another number of blocks")


if __name__ == "__main__":
    main()
