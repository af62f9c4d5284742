"""One rank of test_vocab_parallel_linear.py: a layer's loss on its shard against that of torch on all classes."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

import ce.torch as ct

TOKENS, HIDDEN, CLASSES, IGNORED = 10, 16, 77, -100


def cases():
    """Options, and what else a call is given."""
    yield {}, {}
    yield {"chunk_tokens": 4, "reduction": "sum", "label_smoothing": 0.1}, {"bias": True, "uneven": True}
    yield {"chunk_tokens": 4, "z_loss": 1e-2}, {"weight": True}
    yield {"chunk_tokens": 3}, {"dtype": torch.bfloat16, "bias": True, "uneven": True}
    yield {"chunk_tokens": 4, "reduction": "none", "softcap": 5.0}, {"row_weight": True, "uneven": True}
    yield {"reduction": "none"}, {"row_scale": True, "outputs": True}
    yield {"chunk_tokens": 6, "divisor": 5.0}, {"partial": True, "dtype": torch.bfloat16}
    yield {"chunk_tokens": 4}, {"frozen_weight": True, "outputs": True}
    yield {"chunk_tokens": 4}, {"transposed": True, "padded": True}
    yield {"chunk_tokens": 4, "upstream": 3.0, "z_loss": 1e-2}, {"outputs": True}
    yield {"chunk_tokens": 3, "reduction": "sum"}, {"upstream": True, "uneven": True}
    yield {"chunk_tokens": 3, "reduction": "none", "z_loss": 1e-2}, {"upstream": True, "outputs": True, "valid": 7}
    yield {"chunk_tokens": 4, "z_loss": 1e-2}, {"valid": 9, "row_weight": True, "row_scale": True, "outputs": True}
    yield {}, {"valid": 10, "uneven": True, "bias": True}
    yield {"chunk_tokens": 4, "logits_dtype": torch.float32}, {"dtype": torch.bfloat16, "bias": True, "valid": 7}
    yield {"chunk_tokens": 4, "logits_dtype": torch.float32}, {"dtype": torch.float16, "outputs": True}
    yield {"chunk_tokens": 4, "accumulate": torch.bfloat16}, {"dtype": torch.bfloat16, "uneven": True}
    yield {"accumulate": torch.float32, "logits_dtype": torch.float32, "chunk_tokens": 4}, {}


def wanted_loss(x, w, b, target, options, given, row_weight, row_scale):
    logits = F.linear(x.float(), w.float(), None if b is None else b.float())
    names = ("label_smoothing", "z_loss", "softcap", "divisor", "upstream")
    others = {name: options[name] for name in names if name in options}
    scale = {} if row_scale is None else {"logit_scale": row_scale}
    return ct.cross_entropy(
        logits, target, given["class_weight"], row_weight=row_weight, reduction=options.get("reduction", "mean"),
        return_z_loss=True, return_lse=True, return_argmax=True, **others, **scale,
    )  # fmt: skip


def check(device, options, given):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(9)

    def random(*sizes):
        return torch.randn(*sizes, generator=generator).to(device)

    dtype = given.get("dtype", torch.float32)
    x, w = random(TOKENS, HIDDEN).to(dtype), (random(CLASSES, HIDDEN) / 2).to(dtype)
    b = random(CLASSES).to(dtype) if given.get("bias") else None
    target = torch.randint(0, CLASSES, (TOKENS,), generator=generator)
    target[0], target[1], target[3] = 0, CLASSES - 1, IGNORED
    if "valid" in given:
        options = {**options, "valid_tokens": given["valid"]}
        target[[row for row in (6, 8) if given["valid"] < 8]] = IGNORED
    target = target.to(device)
    if given.get("upstream"):
        options = {**options, "upstream": random(TOKENS)}
    given["class_weight"] = random(CLASSES).abs() + 0.5 if given.get("weight") else None
    row_weight = random(TOKENS).abs() if given.get("row_weight") else None
    row_scale = random(TOKENS).abs() + 0.25 if given.get("row_scale") else None
    width = -(-CLASSES // ranks)
    bounds = [0, *(5 + 7 * i for i in range(ranks - 1)), CLASSES] if given.get("uneven") else None
    first, end = (bounds[rank], bounds[rank + 1]) if bounds else (rank * width, min((rank + 1) * width, CLASSES))

    own_x = (x.t().contiguous().t() if given.get("transposed") else x.clone()).requires_grad_()
    padding = torch.full((width - (end - first) if given.get("padded") else 0, HIDDEN), torch.nan, device=device)
    own_w = torch.cat([w[first:end], padding.to(dtype)]).requires_grad_(not given.get("frozen_weight"))
    own_b = None if b is None else b[first:end].clone().requires_grad_()
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "entropy", "logprob", "hit")}
    made = ct.vocab_parallel_linear_cross_entropy(
        own_x, own_w, target, linear_bias=own_b, weight=given["class_weight"], first_class=first, classes=CLASSES,
        row_weight=row_weight, sum_input_grad=not given.get("partial"), loss_dtype=torch.float32,
        **({} if row_scale is None else {"logit_scale": row_scale}),
        **(flags if given.get("outputs") else {}), **options,
    )  # fmt: skip
    loss = made.loss if given.get("outputs") else made

    all_x, all_w = x.clone().requires_grad_(), w.clone().requires_grad_()
    all_b = None if b is None else b.clone().requires_grad_()
    want = wanted_loss(all_x, all_w, all_b, target, options, given, row_weight, row_scale)
    is_narrow = dtype is not torch.float32
    torch.testing.assert_close(loss, want.loss, rtol=2e-3 if is_narrow else 2e-5, atol=1e-2 if is_narrow else 1e-5)
    if given.get("outputs"):
        counts = torch.ones_like(target, dtype=torch.bool) if "valid" not in given else target != IGNORED
        close = {"rtol": 2e-3, "atol": 1e-2} if is_narrow else {"rtol": 2e-5, "atol": 1e-5}
        torch.testing.assert_close(made.lse[counts], want.lse[counts], **close)
        torch.testing.assert_close(made.z_loss, want.z_loss, **close)
        assert torch.equal(made.argmax[counts], want.argmax[counts])
        assert torch.equal(made.hit[counts], (want.argmax == target)[counts])
        assert made.lse[~counts].isnan().all() and not made.hit[~counts].any()
        for one in (made.argmax[~counts] + 1, made.logprob[~counts], made.entropy[~counts]):
            assert not one.any()
    factor = torch.linspace(0.5, 2, loss.numel(), device=device).reshape(loss.shape)
    (loss * factor).sum().backward()
    (want.loss * factor).sum().backward()
    if given.get("partial"):
        dist.all_reduce(own_x.grad)
    tolerance = {"rtol": 4e-2, "atol": 2e-2} if is_narrow else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(own_x.grad, all_x.grad, **tolerance)
    if given.get("frozen_weight"):
        assert own_w.grad is None
    else:
        torch.testing.assert_close(own_w.grad[: end - first], all_w.grad[first:end], **tolerance)
        assert not own_w.grad[end - first :].any()
    if b is not None:
        torch.testing.assert_close(own_b.grad, all_b.grad[first:end], **tolerance)
    bits = loss.detach().reshape(-1)
    everyones = [torch.empty_like(bits) for _ in range(ranks)]
    dist.all_gather(everyones, bits)
    assert all(torch.equal(one, everyones[0]) for one in everyones)


def check_refusals(device):
    rank = dist.get_rank()
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device)
    target = torch.zeros(4, dtype=torch.long, device=device)
    for other, words in (
        ({"label_smoothing": 0.1 * rank}, "label_smoothing is 0.1 on rank 1; expected 0, as on rank 0"),
        ({"reduction": "median"}, "reduction is 'median'; expected 'none', 'mean' or 'sum'"),
        ({"chunk_tokens": 0}, "chunk_tokens is 0; expected 1 or more"),
        ({"target": target.float()}, "expected class indices"),
        ({"target": target[:3]}, "target has sizes [3]; expected [4]"),
        ({"linear_weight": w[:0]}, "linear_weight has no elements"),
        ({"linear_bias": w[0]}, "linear_bias has sizes [8]; expected [6]"),
        ({"row_weight": torch.ones(5, device=device)}, "row_weight has sizes [5]; expected [4]"),
        ({"chunk_tokens": 1 + rank}, "chunk_tokens is 2 on rank 1; expected 1, as on rank 0"),
        ({"valid_tokens": 3 + (rank == 1)}, "valid_tokens is 4 on rank 1; expected 3, as on rank 0"),
        ({"valid_tokens": 5}, "valid_tokens is 5; expected 0 to 4, the number of tokens"),
        ({"logits_dtype": torch.float16}, "logits_dtype is torch.float16; expected torch.float32"),
        ({"accumulate": torch.bfloat16}, "accumulate is torch.bfloat16; expected torch.float32"),
        (
            {"upstream": torch.ones(3, device=device)},
            "upstream has sizes [3]; expected a number, or [4], one for each row",
        ),
        (
            {"input": x.clone().requires_grad_(rank == 0), "chunk_tokens": 3},
            "gradients is 0 on rank 1; expected 1, as on rank 0",
        ),
    ):
        call = {"input": x, "linear_weight": w, "target": target, **other}
        try:
            ct.vocab_parallel_linear_cross_entropy(**call)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{other} was not refused")


def check_without_gradients(device):
    x, w = torch.randn(4, 8, device=device), torch.randn(6, 8, device=device)
    target = torch.arange(4, device=device)
    dist.broadcast(x, 0)
    with torch.no_grad():
        loss = ct.vocab_parallel_linear_cross_entropy(x, w, target, chunk_tokens=3)
    assert not loss.requires_grad and loss.isfinite()


def main():
    kind, most_cases = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    device = torch.device("cuda", dist.get_rank()) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    ct.configure(policy="lookup", cpu="host")
    for options, given in list(cases())[:most_cases]:
        try:
            check(device, options, dict(given))
        except AssertionError as error:
            raise AssertionError(f"{options} {given}: {error}") from None
    check_refusals(device)
    check_without_gradients(device)
    dist.destroy_process_group()


main()
