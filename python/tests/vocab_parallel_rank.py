"""One rank of test_vocab_parallel.py: every call on its shard against ce.torch.cross_entropy on all classes."""

from __future__ import annotations

import os
import re
import sys
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

import ce.torch as ct
from ce.torch import _native, _rank_decision, _reference

ROWS, CLASSES = 10, 77
IGNORED = -100
TIMEOUT_S = 10  # of the group that check_death() leaves
LATE_S = 5


def shards(ranks: int, uneven: bool) -> list[int]:
    """Where the classes of each rank begin, and end."""
    if not uneven:
        width = -(-CLASSES // ranks)  # the last rank has padding
        return [rank * width for rank in range(ranks + 1)]
    return [0, *(5 + 7 * rank for rank in range(ranks - 1)), CLASSES]


def cases():
    """Options, and what else a call is given; together they cover pairs of most."""
    yield {}, {}
    yield {"reduction": "sum", "label_smoothing": 0.1, "z_loss": 1e-2}, {"weight": True}
    yield {"reduction": "none", "softcap": 5.0, "logit_scale": 0.7}, {"row_weight": True, "uneven": True}
    yield {"label_smoothing": 0.2, "softcap": 30.0}, {"dtype": torch.bfloat16, "weight": True, "uneven": True}
    yield {"reduction": "none", "token_scaling": 1.0}, {"dtype": torch.float16}
    yield {"label_smoothing": 0.1}, {"probabilities": True, "uneven": True}
    yield {"z_loss": 1e-3}, {"dtype": torch.bfloat16, "divisor": True, "uneven": True}
    yield {"reduction": "none", "z_loss": 1e-3}, {"return_lse": True, "upstream": True}
    yield {}, {"inplace_backward": True, "dtype": torch.bfloat16}
    yield {"reduction": "none", "label_smoothing": 0.1}, {"row_scale": True, "uneven": True, "return_lse": True}


def check(device, options, given):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    dtype = given.get("dtype", torch.float32)
    generator = torch.Generator().manual_seed(7)
    whole = (3 * torch.randn(ROWS, CLASSES, generator=generator)).to(device, dtype)
    target = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    target[0], target[1], target[3] = 0, CLASSES - 1, IGNORED
    target = target.to(device)
    if given.get("probabilities"):
        target = torch.softmax(torch.randn(ROWS, CLASSES, generator=generator), -1).to(device, dtype)
    options = dict(options)
    if given.get("weight"):
        options["weight"] = (torch.rand(CLASSES, generator=generator) + 0.5).to(device)
    if given.get("row_weight"):
        options["row_weight"] = torch.rand(ROWS, generator=generator).to(device)
    if given.get("row_scale"):
        options["logit_scale"] = (torch.rand(ROWS, generator=generator) + 0.25).to(device)
    if given.get("divisor"):
        options["divisor"] = 5.0
    if given.get("upstream"):
        options["upstream"] = torch.rand(ROWS, generator=generator).to(device)
    wants_lse = bool(given.get("return_lse"))

    bounds = shards(ranks, bool(given.get("uneven")))
    first, end = bounds[rank], bounds[rank + 1]
    padded = torch.cat([whole, torch.full((ROWS, max(0, end - CLASSES)), 9.0, dtype=dtype, device=device)], -1)
    own = padded[:, first:end].contiguous().requires_grad_()
    own_target = target
    if given.get("probabilities"):
        own_target = target[:, first:end].contiguous()
    place = {"first_class": first, "classes": CLASSES}
    if given.get("inplace_backward"):
        place["inplace_backward"] = True
    made = ct.vocab_parallel_cross_entropy(own, own_target, **options, **place, loss_dtype=torch.float32,
                                           return_lse=wants_lse)  # fmt: skip
    whole.requires_grad_()
    want = ct.cross_entropy(whole, target, **options, loss_dtype=torch.float32, return_lse=wants_lse)
    loss, wanted_loss = (made.loss, want.loss) if wants_lse else (made, want)
    factor = torch.linspace(0.5, 2, loss.numel(), device=device).reshape(loss.shape)
    total, wanted_total = (loss * factor).sum(), (wanted_loss * factor).sum()
    if wants_lse:
        torch.testing.assert_close(made.lse, want.lse)
        total, wanted_total = total + made.lse.sum(), wanted_total + want.lse.sum()
    torch.testing.assert_close(loss, wanted_loss, rtol=2e-5, atol=1e-5)
    total.backward()
    wanted_total.backward()
    tolerance = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    valid = max(0, min(end, CLASSES) - first)
    torch.testing.assert_close(own.grad[:, :valid], whole.grad[:, first : first + valid], rtol=tolerance, atol=1e-5)
    assert not own.grad[:, valid:].any()
    bits = loss.detach().float().reshape(-1)
    everyones = [torch.empty_like(bits) for _ in range(ranks)]
    dist.all_gather(everyones, bits)
    assert all(torch.equal(one, everyones[0]) for one in everyones)


def check_outputs(device):
    """Each output, and the gradient of the entropy."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(ROWS, 12 * ranks, generator=generator).to(device)
    target = torch.randint(0, 12 * ranks, (ROWS,), generator=generator).to(device)
    own = whole[:, 12 * rank : 12 * rank + 12].contiguous().requires_grad_()
    flags = {f"return_{name}": True for name in ("z_loss", "lse", "argmax", "hit", "logprob", "entropy")}
    made = ct.vocab_parallel_cross_entropy(own, target, z_loss=0.1, **flags)
    reference = whole.clone().requires_grad_()
    logp = torch.log_softmax(reference, -1)
    entropy = -(logp.exp() * logp).sum(-1)
    torch.testing.assert_close(made.entropy, entropy)
    torch.testing.assert_close(made.logprob, logp.gather(-1, target[:, None])[:, 0])
    assert torch.equal(made.argmax, whole.argmax(-1))
    assert torch.equal(made.hit, whole.argmax(-1) == target)
    (made.entropy * target).sum().backward()
    (entropy * target).sum().backward()
    torch.testing.assert_close(own.grad, reference.grad[:, 12 * rank : 12 * rank + 12], rtol=2e-5, atol=1e-5)


def check_refusals(device):
    rank = dist.get_rank()
    logits, target = torch.randn(4, 8, device=device), torch.zeros(4, dtype=torch.long, device=device)
    for other, words in (
        ({"label_smoothing": 0.1 * rank}, "label_smoothing is 0.1 on rank 1; expected 0, as on rank 0"),
        ({"logit_scale": torch.ones(4, device=device) if rank == 1 else 1.0}, "logit_scale of each row is 1 on rank 1"),
        ({"first_class": 0}, "first_class is 0 on rank"),
        ({"classes": 100}, "classes is 100; expected"),
        ({"logit_scale": torch.ones(3, device=device)}, "logit_scale has sizes [3]; expected a number, or [4]"),
        ({"softcap": -1.0}, "ce.torch.vocab_parallel_cross_entropy: softcap is -1; expected 0 (no cap)"),
    ):
        try:
            ct.vocab_parallel_cross_entropy(logits, target, **other)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{other} was not refused")


def check_compared(device):
    """A later call of one rank differs: an error on every rank, and the next call works."""
    rank = dist.get_rank()
    logits, target = torch.randn(8, 8, device=device), torch.zeros(8, dtype=torch.long, device=device)
    before = ct.configure(compare_ranks=True)
    try:
        ct.vocab_parallel_cross_entropy(logits, target)
        rows = 6 if rank == 1 else 8
        for call, words in (
            (lambda: ct.vocab_parallel_cross_entropy(logits[:rows], target[:rows]), "rows is 6 on rank 1; expected 8"),
            (
                lambda: ct.vocab_parallel_cross_entropy(logits, target, softcap=5.0 if rank == 1 else None),
                "softcap is 5 on",
            ),
        ):
            try:
                call()
            except ValueError as error:
                assert words in str(error), error
            else:
                raise AssertionError("ranks whose calls differ went on")
        ct.vocab_parallel_cross_entropy(logits, target)
    finally:
        ct.restore(before)


def check_dtensor(device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    ranks, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh(device.type, (ranks,))
    torch.manual_seed(5)
    whole, target = torch.randn(ROWS, 6 * ranks).to(device), torch.arange(ROWS).to(device) % (6 * ranks)
    own = whole[:, 6 * rank : 6 * rank + 6].contiguous()
    loss = ct.vocab_parallel_cross_entropy(DTensor.from_local(own, mesh, [Shard(-1)]), target)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(whole, target))
    try:
        ct.vocab_parallel_cross_entropy(DTensor.from_local(whole, mesh, [Replicate()]), target)
    except ValueError as error:
        assert "Shard(-1)" in str(error)
    else:
        raise AssertionError("replicated logits were not refused")


def check_integrations(device):
    import types

    from ce.torch.integrations import flash_attn, megatron, transformer_engine

    ranks, rank = dist.get_world_size(), dist.get_rank()
    classes = 10 * ranks
    torch.manual_seed(4)
    whole = torch.randn(5, 2, classes).to(device)
    target = torch.randint(0, classes, (5, 2)).to(device)
    own = whole[..., 10 * rank : 10 * rank + 10].contiguous()
    nll = torch.nn.functional.cross_entropy(whole.movedim(-1, 1), target, reduction="none")

    assert ct.megatron is megatron
    modules = {name: types.ModuleType(name) for name in ("megatron", "megatron.core", "megatron.core.user")}
    for name, (home, _) in megatron._REPLACED.items():
        modules[home] = types.ModuleType(home)
        original = lambda *_: None  # noqa: E731
        setattr(modules[home], name, original)
        setattr(modules["megatron.core.user"], name, original)
    sys.modules.update(modules)
    with megatron.patch():
        user = modules["megatron.core.user"]
        torch.testing.assert_close(user.fused_vocab_parallel_cross_entropy(own, target, dist.group.WORLD), nll)
        # As megatron.core.extensions.transformer_engine calls it.
        made = user.parallel_cross_entropy(own, target, 0.0, False, dist.group.WORLD, IGNORED, True)
        torch.testing.assert_close(made, nll)
        # Megatron-Core on one rank: the target keeps 1 - s + s / classes with s = 0.1 classes / (classes - 1).
        share = 0.1 * classes / (classes - 1)
        smooth = -torch.log_softmax(whole, -1).mean(-1)
        want = (1 - share) * nll + share * smooth
        torch.testing.assert_close(user.vocab_parallel_cross_entropy(own, target, 0.1), want)
    with megatron.patch(smoothing_of_shards=True):
        # Each rank its own loss: s over this rank's classes.
        share, mine = 0.1 * 10 / 9, own.clone().requires_grad_()
        some = target.clone()
        some[0, 0] = IGNORED
        made = user.vocab_parallel_cross_entropy(mine, some, 0.1)
        theirs = whole.clone().requires_grad_()
        shard = theirs[..., 10 * rank : 10 * rank + 10]
        all_nll = torch.nn.functional.cross_entropy(theirs.movedim(-1, 1), target, reduction="none")
        want = (1 - share) * all_nll + share * (torch.logsumexp(theirs, -1) - shard.mean(-1))
        want = want.where(some != IGNORED, 0.0)
        torch.testing.assert_close(made, want)
        made.sum().backward()
        want.sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad[..., 10 * rank : 10 * rank + 10])
        torch.testing.assert_close(user.fused_vocab_parallel_cross_entropy(own, target, dist.group.WORLD), nll)
    assert user.fused_vocab_parallel_cross_entropy(own, target) is None
    assert user.parallel_cross_entropy(own, target) is None
    group = dist.group.WORLD
    torch.testing.assert_close(transformer_engine.parallel_cross_entropy(own, target, dist_process_group=group), nll)
    mean = transformer_engine.parallel_cross_entropy(own, target, reduce_loss=True, dist_process_group=group)
    torch.testing.assert_close(mean, nll.mean())
    wide = whole.clone().requires_grad_()
    for reduce_loss, reduction in ((False, "none"), (True, "mean")):
        loss, grad = transformer_engine.cross_entropy_forward(own, target, 0.1, reduce_loss, group, IGNORED)
        want = torch.nn.functional.cross_entropy(wide.movedim(-1, 1), target, reduction=reduction, label_smoothing=0.1)
        torch.testing.assert_close(loss, want)
        (wanted_grad,) = torch.autograd.grad(want.sum(), wide)
        torch.testing.assert_close(grad, wanted_grad[..., 10 * rank : 10 * rank + 10])
    flat = own.reshape(-1, 10)
    loss, z_loss = flash_attn.cross_entropy_loss(flat, target.reshape(-1), lse_square_scale=0.1, process_group=group)
    squares = 0.1 * torch.logsumexp(whole, -1).square().reshape(-1)
    torch.testing.assert_close(z_loss, squares)
    torch.testing.assert_close(loss, nll.reshape(-1) + squares)


def check_compiled(device):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(2)
    whole, target = torch.randn(ROWS, 16 * ranks).to(device), torch.arange(ROWS).to(device)
    own = whole[:, 16 * rank : 16 * rank + 16].contiguous().requires_grad_()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss_of(logits):
        return ct.vocab_parallel_cross_entropy(logits, target, group=dist.group.WORLD, label_smoothing=0.1)

    loss = loss_of(own)
    loss.backward()
    whole.requires_grad_()
    want = torch.nn.functional.cross_entropy(whole, target, label_smoothing=0.1)
    want.backward()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(own.grad, whole.grad[:, 16 * rank : 16 * rank + 16])


def own_shard(device, columns):
    """Logits of all ranks, this rank's and the target."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(6)
    whole = torch.randn(ROWS, columns * ranks).to(device)
    return whole, whole[:, columns * rank : columns * (rank + 1)].contiguous(), torch.arange(ROWS).to(device)


def check_exchange(device):
    """Both ways a call can go, on shards that are wide enough, one call after the other; and in a CUDA graph."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    columns = 4096
    classes = columns * ranks - 5
    generator = torch.Generator().manual_seed(11)
    target = torch.randint(0, classes, (ROWS,), generator=generator)
    target[3] = IGNORED
    target = target.to(device)

    def run(plan, own, **options):
        logits = own.clone().requires_grad_()
        made = ct.vocab_parallel_cross_entropy(logits, target, classes=classes, plan=plan, **options)
        made.backward()
        return made.detach(), logits.grad

    own = (2 * torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(rank))).to(device, torch.bfloat16)
    if device.type == "cpu" and ranks > 1:  # processes, whose memory ranks on the host do not reach
        try:
            run("exchange", own)
        except RuntimeError as error:
            assert "rank 0:" in str(error) and "another process" in str(error), error
        else:
            raise AssertionError("ranks that cannot exchange did")
        run("automatic", own)
        return
    scales = torch.linspace(0.5, 2, ROWS, device=device)
    for options in ({}, {"label_smoothing": 0.1, "z_loss": 1e-3}, {"reduction": "sum", "softcap": 30.0},
                    {"logit_scale": scales}, {}):  # fmt: skip
        (loss, grad), (want, want_grad) = (run(plan, own, **options) for plan in ("exchange", "gather"))
        torch.testing.assert_close(loss, want, rtol=2e-5, atol=1e-5)
        torch.testing.assert_close(grad, want_grad, rtol=1.6e-2, atol=1e-6)
        if ranks > 1:
            everyones = [torch.empty_like(loss) for _ in range(ranks)]
            dist.all_gather(everyones, loss)
            assert all(torch.equal(one, everyones[0]) for one in everyones)
    if device.type != "cuda":
        return
    logits, graph = own.clone().requires_grad_(), torch.cuda.CUDAGraph()

    def step():
        loss = ct.vocab_parallel_cross_entropy(logits, target, classes=classes, plan="exchange")
        return loss, torch.autograd.grad(loss, logits)[0]

    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        loss, grad = step()
    for seed in range(3):
        other = (2 * torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(100 * seed + rank))).to(own)
        logits.detach().copy_(other)
        graph.replay()
        want, want_grad = run("gather", other)
        torch.testing.assert_close(loss, want, rtol=2e-5, atol=1e-5)
        torch.testing.assert_close(grad, want_grad, rtol=1.6e-2, atol=1e-6)
    ct.check()


def check_missing(device):
    """The last rank does not come to an exchange: the others give up in time, have NaN, and hear of it."""
    ct.configure(rank_patience=2.0)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    target = torch.arange(ROWS).to(device)
    logits = torch.randn(ROWS, 4096, dtype=torch.bfloat16, device=device).requires_grad_()
    ct.vocab_parallel_cross_entropy(logits, target, plan="exchange").backward()
    ct.check()
    dist.barrier()
    if rank < ranks - 1:
        begin = time.monotonic()
        loss = ct.vocab_parallel_cross_entropy(logits, target, plan="exchange")
        assert loss.isnan()
        print(f"gave up after {time.monotonic() - begin:.1f} s", flush=True)
    dist.barrier()
    try:
        ct.check()
    except RuntimeError as error:
        assert f"rank {ranks - 1} did not take part within 2 s" in str(error), error
    else:
        raise AssertionError("nobody heard of the rank that is missing")


def check_decided(device):
    """All ranks run the kernels of rank 0, which here are not those that each would choose."""
    rank, columns = dist.get_rank(), 36
    logits, target = torch.randn(ROWS, columns).to(device), torch.zeros(ROWS, dtype=torch.long, device=device)
    classes = columns * dist.get_world_size()
    options = _reference.Options(ignore_index=IGNORED)

    def choice():
        with _native.choosing() as chosen:
            _native.operators.cross_entropy_shard(
                logits, target, None, None, None, None, *options, 0, classes, False, False, False
            )
        return chosen[0]

    own = choice()
    if rank == 0:
        for warps in (1, 2, 4, 8, 16):
            other = re.sub("warps=[0-9]+", f"warps={warps}", own.config)
            _native.use(_native.device_index(device), own.key, other)
            if choice().config != own.config:
                break
        assert choice().config != own.config
    ct.vocab_parallel_cross_entropy(logits, target)
    configs = [None] * dist.get_world_size()
    dist.all_gather_object(configs, choice().config)
    assert set(configs) == {configs[0]} and configs[0] != own.config, configs

    choice_of = lambda row_us: _native.Choice("", "", row_us, False)  # noqa: E731
    gather = [choice_of(row_us) for row_us in (1.0, 0.1, 1.0)]
    for row_us, rows, width, is_faster in ((2.2, 100, 1, True), (2.2, 1000, 1, False), (2.2, 100, 2, False),
                                           (1.5, 1000, 1, True), (0.0, 1000, 1, True)):  # fmt: skip
        assert _rank_decision.exchange_is_faster(gather, [choice_of(row_us)], 20.0, rows, width) == is_faster


def check_refused_by_rank_0(device):
    """Rank 0 may not tune: all ranks hear of it, and the next call works."""
    if dist.get_rank() == 0:
        ct.configure(policy="frozen", cpu="host")
    logits, target = torch.randn(ROWS, 44).to(device), torch.zeros(ROWS, dtype=torch.long, device=device)
    try:
        ct.vocab_parallel_cross_entropy(logits, target)
    except ct.NotTuned as error:
        assert ("rank 0: " in str(error)) == (dist.get_rank() > 0) and "the policy is frozen" in str(error), error
    else:
        raise AssertionError("a frozen rank tuned")
    ct.configure(policy="lookup", cpu="host")
    ct.vocab_parallel_cross_entropy(logits, target)


def check_late(device):
    """One rank comes later than the others to a call that all have made before, and to its first."""
    whole, own, target = own_shard(device, 10)
    for smoothing in (0.0, 0.0, 0.3):
        if dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(LATE_S if smoothing else LATE_S / 5)
        logits = own.clone().requires_grad_()
        loss = ct.vocab_parallel_cross_entropy(logits, target, label_smoothing=smoothing)
        reference = whole.clone().requires_grad_()
        want = torch.nn.functional.cross_entropy(reference, target, label_smoothing=smoothing)
        loss.backward()
        want.backward()
        torch.testing.assert_close(loss, want)
        first = 10 * dist.get_rank()
        torch.testing.assert_close(logits.grad, reference.grad[:, first : first + 10], rtol=2e-5, atol=1e-6)


def check_death(device):
    """The last rank ends between two calls. The next call of the others must not come back with a loss."""
    whole, own, target = own_shard(device, 10)
    ct.vocab_parallel_cross_entropy(own, target)  # kernels of all ranks are there before the short timeout counts
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT_S))
    loss = ct.vocab_parallel_cross_entropy(own, target, group=group)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(whole, target))
    print("all ranks called once", flush=True)
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(0)
    print("a loss without one rank:", ct.vocab_parallel_cross_entropy(own, target, group=group).item(), flush=True)


def check_ended(device):
    """A group that is destroyed has no threads any more, also beside a loss of it."""
    group = dist.new_group()
    _, own, target = own_shard(device, 2048)
    losses = [
        ct.vocab_parallel_cross_entropy(own.clone().requires_grad_(), target, group=group, reduction=reduction)
        for reduction in ("mean", "none")
    ]
    weight = torch.randn(5, 8, device=device, requires_grad=True)
    losses.append(
        ct.vocab_parallel_linear_cross_entropy(torch.randn(4, 8, device=device), weight, target[:4], group=group)
    )
    dist.destroy_process_group(group)
    is_alive = weakref.ref(group)
    del group
    assert is_alive() is None, losses


def check_results(device):
    for options, given in cases():
        check(device, options, given)
    check_outputs(device)


CHECKS = {
    "results": check_results,
    "refusals": check_refusals,
    "dtensor": check_dtensor,
    "integrations": check_integrations,
    "compiled": check_compiled,
    "exchange": check_exchange,
    "missing": check_missing,
    "decided": check_decided,
    "frozen": check_refused_by_rank_0,
    "compared": check_compared,
    "ended": check_ended,
    "late": check_late,
    "death": check_death,
}


def main() -> None:
    kind, *checks = sys.argv[1:]
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    store = os.environ.get("CE_TEST_STORE", "env://")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", store, world_size=ranks, rank=rank)
    device = torch.device("cuda", dist.get_rank()) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    ct.configure(policy="lookup", cpu="host")
    for name in checks:
        CHECKS[name](device)
    dist.destroy_process_group()


main()
