"""The Triton kernels of Liger-Kernel and flash-attn on the CPU, in Triton's interpreter, beside the drop-ins for them.

peers_interpreted.py PEER SEED [FOLDER], a process of its own: the interpreter is chosen before Triton is imported.
FOLDER holds the package flash_attn, of which two files are imported without its extension, which needs a GPU.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types

os.environ["TRITON_INTERPRET"] = "1"

import torch

import ce.torch as ct
from ce.torch.integrations import flash_attn, liger

IGNORED = -100
ROWS, CLASSES, HIDDEN = 5, 300, 16


def assert_same(ours, theirs, leaves, factor, names=("loss", "z_loss")):
    """Losses, what is beside them, and the gradients of the losses times a factor."""
    for name in names:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-5, msg=name)
    for own, other in zip(*(torch.autograd.grad(made.loss, leaves, factor) for made in (ours, theirs))):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def check_liger():
    """But a soft cap and weights, numbers that the interpreter gives to these kernels in a form that they refuse."""
    from liger_kernel.transformers import functional as theirs

    target = torch.randint(0, CLASSES, (ROWS,))
    target[1] = IGNORED
    beside = ("return_z_loss", "return_token_accuracy", "return_predicted_tokens")
    for reduction in ("mean", "sum", "none"):
        for options in ({}, {"lse_square_scale": 1e-3, "label_smoothing": 0.1}):
            options = {"reduction": reduction, **options, **dict.fromkeys(beside, True)}
            leaf = torch.randn(ROWS, CLASSES, requires_grad=True)
            made = [one.liger_cross_entropy(leaf * 2, target, **options) for one in (liger, theirs)]
            names = ("loss", "z_loss", "token_accuracy", "predicted_tokens")
            assert_same(*made, (leaf,), torch.rand_like(made[0].loss), names)
            layer = [torch.randn(*sizes, requires_grad=True) for sizes in ((ROWS, HIDDEN), (CLASSES, HIDDEN))]
            made = [one.liger_fused_linear_cross_entropy(*layer, target, **options) for one in (liger, theirs)]
            # One factor for all rows: Liger-Kernel takes that of the first.
            assert_same(*made, layer, torch.full_like(made[0].loss, 0.7), names)


def check_flash_attn(folder):
    package = types.ModuleType("flash_attn")
    package.__path__ = [folder]
    sys.modules["flash_attn"] = package
    torch.cuda.device = lambda _: contextlib.nullcontext()
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss as theirs

    target = torch.randint(0, CLASSES, (ROWS,))
    target[1] = IGNORED
    leaf = torch.randn(ROWS, CLASSES, requires_grad=True)
    # Not the right one, so that it is seen whether it is used.
    lse = torch.logsumexp(2 * leaf.detach(), 1) + 1
    for options in (
        {},
        {"lse_square_scale": 1e-3},
        {"label_smoothing": 0.1, "logit_scale": 0.7, "lse_square_scale": 1e-3, "ignore_index": int(target[0])},
    ):
        for in_place in (False, True):
            for given in (None, lse):
                here = {"ignore_index": IGNORED, **options, "precomputed_lse": given, "inplace_backward": in_place}
                labels = target.where(target != IGNORED, 0) if "ignore_index" in options else target
                made = [
                    types.SimpleNamespace(**dict(zip(("loss", "z_loss"), call(leaf * 2, labels, **here))))
                    for call in (flash_attn.cross_entropy_loss, theirs)
                ]
                assert_same(*made, (leaf,), torch.rand(ROWS))


if __name__ == "__main__":
    peer, seed, *others = sys.argv[1:]
    print(f"CE_TEST_SEED={seed}", file=sys.stderr)
    torch.manual_seed(int(seed))
    ct.configure(cpu="host", policy="lookup")
    {"liger": check_liger, "flash_attn": check_flash_attn}[peer](*others)
