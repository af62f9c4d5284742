#!/usr/bin/env python3
"""What a kernel that loads with the policy evict_last costs the matrix product that follows it. For a GPU, with PyTorch.

A Triton kernel writes a gradient over itself, with each of three policies of its loads in turn; a product of a backward
pass follows, of the gradient with the weights or, transposed, with the hidden states. Prints for each policy the
medians of both in microseconds.

    bench/lab/gemm_after.py
"""

import argparse
import statistics

if __name__ == "__main__":  # --help needs neither PyTorch nor Triton
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

import torch
import triton
import triton.language as tl

POLICIES = {"plain": "", "evict_first": "evict_first", "evict_last": "evict_last"}
BLOCK = 2048
ROUNDS, SAMPLES, UNCOUNTED = 3, 14, 4  # of each policy


@triton.jit
def rewrite(gradient, elements, POLICY: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(gradient + at, mask=at < elements, eviction_policy=POLICY)
    tl.store(gradient + at, values * 1.0, mask=at < elements)


def sample(gradient, product, policy):
    """Microseconds of the kernel, and of the product after it."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    torch.cuda._sleep(2_000_000)  # cycles, in which all of it is enqueued
    events[0].record()
    rewrite[(triton.cdiv(gradient.numel(), BLOCK),)](gradient, gradient.numel(), policy, BLOCK, num_warps=4)
    events[1].record()
    product()
    events[2].record()
    torch.cuda.synchronize()
    return [1000 * begin.elapsed_time(end) for begin, end in zip(events, events[1:])]


def main():
    def matrix(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton {triton.__version__}")
    print(f"{'bf16: rows, columns, hidden':28} {'product':20}" + "".join(f"{name:>20}" for name in POLICIES))
    for rows, columns, hidden in ((4096, 128256, 4096), (4096, 32000, 4096), (8192, 128256, 2048)):
        gradient, weights, states = matrix(rows, columns), matrix(columns, hidden), matrix(rows, hidden)
        for name, product in (("gradient, weights", lambda: gradient @ weights),
                              ("gradient^T, states", lambda: gradient.t() @ states)):
            times = {policy: [] for policy in POLICIES}
            for _ in range(ROUNDS):
                for policy, word in POLICIES.items():
                    times[policy] += [sample(gradient, product, word) for _ in range(SAMPLES)][UNCOUNTED:]
            medians = [[statistics.median(each) for each in zip(*found)] for found in times.values()]
            print(f"{f'{rows}, {columns}, {hidden}':28} {name:20}"
                  + "".join(f"{kernel:10.1f}{product:10.1f}" for kernel, product in medians), flush=True)


if __name__ == "__main__":
    main()
