"""The drop-ins beside what they stand for: the packages themselves where they are installed, else torch."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ce.torch as ct
from ce.torch.integrations import flash_attn, liger, megatron, quack, torchtitan, transformer_engine, transformers, trl
from conftest import needs_gpu

IGNORED = -100
DTYPES = [torch.float32, torch.bfloat16]


def batch(device: torch.device, dtype: torch.dtype = torch.float32, sizes=(6, 50)) -> tuple[Tensor, Tensor]:
    logits = (2 * torch.randn(*sizes, device=device)).to(dtype).requires_grad_()
    target = torch.randint(0, sizes[-1], sizes[:-1], device=device)
    target.view(-1)[1] = IGNORED
    return logits, target


def assert_gradients(ours: Tensor, expected: Tensor, logits: Tensor, wide: Tensor) -> None:
    """Of two losses with respect to their own logits, both scalars or both of rows."""
    factor = torch.rand_like(expected)
    (grad,) = torch.autograd.grad(ours, logits, factor.to(ours.dtype))
    (expected_grad,) = torch.autograd.grad(expected, wide, factor)
    eps = torch.finfo(logits.dtype).eps
    scale = expected_grad.abs().max().item()
    torch.testing.assert_close(grad.double(), expected_grad, rtol=4 * eps, atol=4 * eps * scale + 1e-7)


def assert_loss(ours: Tensor, expected: Tensor) -> None:
    eps = torch.finfo(ours.dtype).eps
    torch.testing.assert_close(ours.double(), expected.double(), rtol=max(1e-5, 2 * eps), atol=max(1e-5, 2 * eps))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_ligers_fused_linear_cross_entropy(reduction, device, seed):
    leaves = [torch.randn(*sizes, device=device, requires_grad=True) for sizes in ((6, 16), (50, 16), (50,))]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    target = torch.randint(0, 50, (6,), device=device)
    target[1] = IGNORED
    made = liger.LigerFusedLinearCrossEntropyLoss(
        reduction=reduction, return_token_accuracy=True, return_predicted_tokens=True
    )(leaves[1], leaves[0], target, leaves[2])
    logits = F.linear(*wide)
    expected = F.cross_entropy(logits, target, reduction=reduction)
    assert_loss(made.loss, expected)
    assert torch.equal(made.predicted_tokens, logits.argmax(-1).masked_fill(target == IGNORED, -1))
    hits = (logits.argmax(-1) == target).float()
    assert_loss(made.token_accuracy, hits if reduction == "none" else hits.sum() / 5)
    for leaf, its_wide in zip(leaves, wide):
        factor = torch.rand_like(expected)
        (grad,) = torch.autograd.grad(made.loss, leaf, factor.float(), retain_graph=True)
        (expected_grad,) = torch.autograd.grad(expected, its_wide, factor, retain_graph=True)
        torch.testing.assert_close(grad.double(), expected_grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_liger(dtype, reduction, device, seed):
    logits, target = batch(device, dtype)
    wide = logits.detach().double().requires_grad_()
    module = liger.LigerCrossEntropyLoss(
        lse_square_scale=1e-3,
        label_smoothing=0.1,
        softcap=8.0,
        reduction=reduction,
        return_z_loss=True,
        return_token_accuracy=True,
        return_predicted_tokens=True,
    )
    made = module(logits, target)
    z = 8 * torch.tanh(wide / 8)
    counts = target != IGNORED
    z_loss = (1e-3 * torch.logsumexp(z, 1) ** 2).masked_fill(~counts, 0)
    hits = (wide.argmax(1) == target).float()
    if reduction == "mean":
        z_loss, accuracy = z_loss.sum() / counts.sum(), hits.sum() / counts.sum()
    else:
        z_loss = z_loss.sum() if reduction == "sum" else z_loss
        accuracy = hits.sum() / counts.sum() if reduction == "sum" else hits
    expected = F.cross_entropy(z, target, reduction=reduction, label_smoothing=0.1) + z_loss
    assert made.loss.dtype is dtype
    assert_loss(made.loss, expected)
    assert_loss(made.z_loss, z_loss)
    torch.testing.assert_close(made.token_accuracy, accuracy)
    assert torch.equal(made.predicted_tokens, wide.argmax(1).masked_fill(~counts, -1))
    assert_gradients(made.loss, expected, logits, wide)
    plain = liger.liger_cross_entropy(logits, target, reduction=reduction)
    assert_loss(plain, F.cross_entropy(wide, target, reduction=reduction))


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("form", ["alone", "linear"])
def test_liger_of_rows_that_are_all_left_out(form, reduction, cpu, device, seed):
    if device.type == "cpu":
        ct.configure(cpu=cpu)
    target = torch.full((6,), IGNORED, device=device)
    weight = torch.rand(50, device=device) + 0.5
    leaves = [torch.randn(*sizes, device=device, requires_grad=True) for sizes in ((6, 16), (50, 16), (50,))]
    options = {"lse_square_scale": 1e-3, "label_smoothing": 0.1, "reduction": reduction}

    def loss(**wanted):
        if form == "linear":
            return ct.liger.fused_linear_cross_entropy(
                leaves[0], leaves[1], target, leaves[2], weight, **options, **wanted
            )
        return ct.liger.cross_entropy(F.linear(*leaves), target, weight, **options, **wanted)

    for one in (loss(), loss(return_z_loss=True).loss):
        assert not one.isnan().any() and not one.any()
        for grad in torch.autograd.grad(one.sum(), leaves):
            assert torch.equal(grad, torch.zeros_like(grad))
    made = loss(return_z_loss=True, return_token_accuracy=True, return_predicted_tokens=True)
    assert torch.equal(made.z_loss, torch.zeros_like(made.z_loss))
    assert (made.predicted_tokens == -1).all()
    # As there, where it is a sum over none divided by none.
    assert made.token_accuracy.isnan().all() if reduction != "none" else not made.token_accuracy.any()


def test_what_is_no_number_is_not_hidden_by_liger(device, seed):
    logits, target = batch(device)
    target[0] = 50
    assert liger.liger_cross_entropy(logits, target).isnan()
    with pytest.raises(IndexError, match="row 0 with target 50"):
        ct.check(device)


def test_liger_has_a_short_name():
    assert ct.liger is liger
    assert ct.liger.fused_linear_cross_entropy is liger.liger_fused_linear_cross_entropy


@needs_gpu
def test_liger_beside_itself(seed):
    theirs = pytest.importorskip("liger_kernel.transformers.functional")
    logits, target = batch(torch.device("cuda"), sizes=(64, 3000))
    options = {"lse_square_scale": 1e-3, "label_smoothing": 0.1, "return_z_loss": True}
    made = liger.liger_cross_entropy(logits, target, **options)
    (grad,) = torch.autograd.grad(made.loss, logits)
    leaf = logits.detach().clone().requires_grad_()
    expected = theirs.liger_cross_entropy(leaf.clone(), target, **options)
    torch.testing.assert_close(made.loss, expected.loss)
    torch.testing.assert_close(made.z_loss, expected.z_loss)
    (expected_grad,) = torch.autograd.grad(expected.loss, leaf)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_liger_token_scaling(reduction, device, seed):
    logits, target = batch(device)
    wide = logits.detach().double().requires_grad_()
    loss = liger.liger_cross_entropy(logits, target, reduction=reduction, use_token_scaling=True)
    counts = target != IGNORED
    p = torch.softmax(wide, 1).gather(1, target.masked_fill(~counts, 0)[:, None])[:, 0].detach()
    expected = F.cross_entropy(wide, target, reduction="none") * p
    if reduction != "none":
        expected = expected.sum() / (counts.sum() if reduction == "mean" else 1)
    assert_loss(loss, expected)
    assert_gradients(loss, expected, logits, wide)


@pytest.mark.parametrize("module", [liger.LigerCrossEntropyLoss, liger.LigerFusedLinearCrossEntropyLoss])
def test_modules_of_liger_refuse(module):
    for wrong in ({"label_smoothing": 2.0}, {"reduction": "avg"}, {"softcap": -1.0}):
        with pytest.raises(ValueError, match=f"^{module.__name__}: {next(iter(wrong))} is "):
            module(**wrong)


@pytest.mark.parametrize("cpu", ["host", "torch"])
def test_functions_of_liger_refuse_in_their_own_words(cpu, device, seed):
    if cpu == "torch":
        ct.configure(cpu="torch")
        device = torch.device("cpu")
    logits, target = batch(device)
    layer = logits, torch.rand(7, logits.shape[1], device=device), target % 7
    of_both = (
        ({"reduction": "avg"}, ValueError, "reduction is 'avg'; expected"),
        ({"lse_square_scale": None}, TypeError, "lse_square_scale is of type NoneType; expected a number"),
        ({"lse_square_scale": -1.0}, ValueError, "lse_square_scale is -1; expected 0 to"),
        ({"label_smoothing": 2.0}, ValueError, "label_smoothing is 2; expected 0 to 1"),
        ({"softcap": -1.0}, ValueError, "softcap is -1; expected 0"),
    )
    of_layer = (
        ({"accum_dtype": "x"}, TypeError, "accum_dtype is 'x'; expected a torch.dtype or None"),
        ({"accum_dtype": torch.int64}, TypeError, "accum_dtype is torch.int64; expected float32"),
        ({"accum_dtype": torch.float16}, ValueError, "accum_dtype is torch.float16; expected torch.float32"),
        ({"bias": torch.ones(3, device=device)}, ValueError, r"bias has sizes \[3\]; expected \[7\]"),
        ({"ce_weight": torch.ones(3, device=device)}, ValueError, r"ce_weight has sizes \[3\]; expected \[7\]"),
    )
    for wrong, kind, message in of_both:
        with pytest.raises(kind, match=r"^ce\.torch\.liger_cross_entropy: " + message):
            liger.liger_cross_entropy(logits, target, **wrong)
    for wrong, kind, message in of_both + of_layer:
        with pytest.raises(kind, match=r"^ce\.torch\.liger_fused_linear_cross_entropy: " + message):
            liger.liger_fused_linear_cross_entropy(*layer, **wrong)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_flash_attn(reduction, in_place, device, seed):
    leaf, target = batch(device, torch.bfloat16)
    logits, wide = leaf * 1, leaf.detach().double().requires_grad_()
    before = logits.detach().clone()
    own = flash_attn.CrossEntropyLoss(
        reduction=reduction,
        label_smoothing=0.1,
        logit_scale=0.7,
        lse_square_scale=1e-3,
        inplace_backward=in_place,
        return_z_loss=True,
    )
    loss, z_loss = own(logits, target)
    assert torch.equal(logits, before), "the logits are there until the backward"
    counts = target != IGNORED
    z = (1e-3 * torch.logsumexp(0.7 * wide, 1) ** 2).masked_fill(~counts, 0)
    if reduction != "none":
        z = z.sum() / (counts.sum() if reduction == "mean" else 1)
    expected = F.cross_entropy(0.7 * wide, target, reduction=reduction, label_smoothing=0.1) + z
    assert loss.dtype is torch.float32
    assert_loss(loss, expected)
    assert_loss(z_loss, z)
    assert not z_loss.requires_grad
    assert_gradients(loss, expected, leaf, wide)
    assert torch.equal(logits, before) != in_place


def test_flash_attn_function(device, seed):
    logits, target = batch(device)
    losses, z_losses = flash_attn.cross_entropy_loss(logits, target, inplace_backward=False)
    assert_loss(losses, F.cross_entropy(logits.double(), target, reduction="none"))
    assert z_losses.sum() == 0
    with pytest.raises(NotImplementedError, match="reduction"):
        flash_attn.CrossEntropyLoss(reduction="avg")
    options = {"logit_scale": 0.7, "lse_square_scale": 1e-3}
    leaf = logits.detach().clone().requires_grad_()
    known = torch.logsumexp(0.7 * logits.detach().float(), 1)
    ours = [flash_attn.cross_entropy_loss(leaf, target, lse, **options) for lse in (None, known)]
    grads = [torch.autograd.grad(losses.sum(), leaf)[0] for losses, _ in ours]
    for own, others in zip(*ours):
        torch.testing.assert_close(own, others, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_flash_attn_with_a_precomputed_logsumexp(reduction, in_place, device, seed):
    """It is used where flash-attn uses it: by its losses one sees which one was."""
    leaf, target = batch(device)
    known = torch.logsumexp(leaf.detach(), 1)

    def both(lse, **options):
        own = flash_attn.CrossEntropyLoss(
            reduction=reduction, inplace_backward=in_place, return_z_loss=True, lse_square_scale=1e-3, **options
        )
        loss, z_loss = own(leaf * 1, target, lse)
        (grad,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), z_loss, grad

    for one, other in zip(both(known), both(None)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    counts = target != IGNORED
    rise = 1 + 1e-3 * ((known + 1) ** 2 - known**2)
    rise = {"none": rise.where(counts, 0), "sum": rise[counts].sum(), "mean": rise[counts].mean()}[reduction]
    torch.testing.assert_close(both(known + 1)[0], both(None)[0] + rise, rtol=1e-4, atol=1e-4)
    for options in ({"label_smoothing": 0.1}, {"logit_scale": 0.7}):
        for one, other in zip(both(known + 1, **options), both(None, **options)):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("in_place", [False, True])
def test_flash_attn_refuses(in_place, device, seed):
    logits, target = batch(device)
    for wrong, kind, message in (
        ({"labels": target.float()}, TypeError, "labels.dtype is torch.float32"),
        ({"labels": target.short()}, TypeError, "labels.dtype is torch.int16"),
        ({"labels": target[:3]}, ValueError, r"labels has sizes \[3\]"),
        ({"logit_scale": torch.ones(6, device=device)}, TypeError, "logit_scale is a tensor"),
        ({"logit_scale": "1"}, TypeError, "logit_scale is '1'"),
        ({"label_smoothing": 2.0}, ValueError, "label_smoothing is 2"),
        ({"precomputed_lse": torch.ones(5, device=device)}, ValueError, r"precomputed_lse has sizes \[5\]"),
        ({"precomputed_lse": torch.ones(6, device=device).half()}, TypeError, "precomputed_lse.dtype is torch.float16"),
        ({"precomputed_lse": [1.0] * 6}, TypeError, "precomputed_lse is of type list"),
    ):
        given = {"labels": target, "inplace_backward": in_place, **wrong}
        with pytest.raises(kind, match=message):
            flash_attn.cross_entropy_loss(logits * 1, **given)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_quack(reduction, device, seed):
    logits, target = batch(device, torch.bfloat16)
    wide, weight = logits.detach().double().requires_grad_(), torch.rand(50, device=device)
    loss = quack.cross_entropy(logits, target, weight=weight, reduction=reduction)
    expected = F.cross_entropy(wide, target, weight.double(), reduction=reduction)
    assert loss.dtype is torch.float32
    assert_loss(loss, expected)
    assert_gradients(loss, expected, logits, wide)
    torch.testing.assert_close(quack.softmax(logits).double(), wide.softmax(-1), rtol=0.01, atol=0.01)
    # The parts of a row's logsumexp, say of a product's tiles.
    parts = torch.stack([part.logsumexp(-1) for part in logits.detach().float().split(20, -1)], -1)
    loss = quack.cross_entropy(logits, target, parts, weight, reduction=reduction, inplace_backward=True)
    assert_loss(loss, expected)
    assert_gradients(loss, F.cross_entropy(wide, target, weight.double(), reduction=reduction), logits, wide)
    with pytest.raises(ValueError, match="lse_partial is"):
        quack.cross_entropy(logits, target, lse_partial=parts[1:])
    with pytest.raises(TypeError, match="lse_partial is of type list; expected a tensor"):
        quack.cross_entropy(logits, target, lse_partial=[1.0])


@pytest.mark.parametrize("reduce_loss", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transformer_engine(dtype, reduce_loss, device, seed):
    logits, target = batch(device, dtype, (2, 3, 40))
    wide = logits.detach().double().requires_grad_()
    reduction = "mean" if reduce_loss else "none"
    expected = F.cross_entropy(wide.movedim(-1, 1), target, reduction=reduction, label_smoothing=0.1)
    ours = transformer_engine.parallel_cross_entropy(logits, target, 0.1, reduce_loss)
    assert ours.dtype is torch.float32
    assert ours.shape == expected.shape
    assert_loss(ours, expected)
    assert_gradients(ours, expected, logits, wide)
    loss, grad = transformer_engine.cross_entropy_forward(logits, target, 0.1, reduce_loss, None, IGNORED)
    assert_loss(loss, expected)
    assert grad.shape == logits.shape
    factor = torch.rand_like(expected)
    again = F.cross_entropy(wide.movedim(-1, 1), target, reduction=reduction, label_smoothing=0.1)
    (expected_grad,) = torch.autograd.grad(again, wide, factor)
    scaled = transformer_engine.cross_entropy_backward(grad, factor.to(dtype))
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        scaled.double(), expected_grad, rtol=8 * eps, atol=8 * eps * expected_grad.abs().max().item()
    )
    nothing = torch.full_like(target, IGNORED)
    assert transformer_engine.parallel_cross_entropy(logits, nothing, reduce_loss=True).item() == 0
    with pytest.raises(TypeError, match="parallel_cross_entropy: inp is of type NoneType; expected a tensor"):
        transformer_engine.parallel_cross_entropy(None, target)
    with pytest.raises(TypeError, match=r"cross_entropy_forward: target\.dtype is torch\.int16; expected torch\.int64"):
        transformer_engine.cross_entropy_forward(logits, target.short(), 0.1, reduce_loss)
    with pytest.warns(FutureWarning, match="_input"):
        transformer_engine.parallel_cross_entropy(None, target, _input=logits)


@pytest.mark.parametrize("count", [None, 7, "tensor"])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_causal_language_model_loss(dtype, count, device, seed):
    logits, labels = batch(device, dtype, (2, 9, 40))
    if count == "tensor":
        count = torch.tensor(11, device=device)
    wide = logits.detach().double().requires_grad_()
    shifted = F.pad(labels, (0, 1), value=IGNORED)[:, 1:].reshape(-1)
    expected = F.cross_entropy(wide.view(-1, 40), shifted, reduction="mean" if count is None else "sum")
    if count is not None:
        expected = expected / count
    ours = transformers.CeForCausalLMLoss(logits, labels, 40, count)
    assert ours.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=3e-4)
    assert_gradients(ours, expected, logits, wide)
    given = transformers.CeForCausalLMLoss(logits, None, 40, count, shift_labels=shifted.view(2, 9))
    torch.testing.assert_close(given, ours)
    with pytest.raises(ValueError, match="labels is None"):
        transformers.CeForCausalLMLoss(logits, None, 40)


def tiny_llama():
    hugging_face = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = hugging_face.LlamaConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return hugging_face.LlamaForCausalLM(config)


def test_transformers_with_the_mapping(device, seed):
    loss_utils = pytest.importorskip("transformers.loss.loss_utils")
    tokens = torch.randint(0, 60, (2, 12), device=device)
    expected = tiny_llama().to(device)(input_ids=tokens, labels=tokens).loss
    before = loss_utils.LOSS_MAPPING["ForCausalLM"]
    with transformers.install():
        assert loss_utils.LOSS_MAPPING["ForCausalLM"] is transformers.CeForCausalLMLoss
        model = tiny_llama().to(device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
    assert loss_utils.LOSS_MAPPING["ForCausalLM"] is before
    torch.testing.assert_close(loss, expected, rtol=0, atol=3e-4)
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_transformers_with_kernels(device, seed):
    """The package kernels puts the layer in the place of one that asks for it."""
    kernels = pytest.importorskip("kernels")

    @kernels.use_kernel_forward_from_hub("ForCausalLMLoss")
    class Loss(torch.nn.Module):
        def forward(
            self, logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs
        ):
            raise AssertionError("the layer was not replaced")

    logits, labels = batch(device, torch.bfloat16, (2, 9, 40))
    model = torch.nn.Sequential(Loss()).to(device)
    with kernels.use_kernel_mapping(transformers.kernel_mapping("cpu", "cuda"), inherit_mapping=False):
        kernels.kernelize(
            model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device=torch.device(device).type
        )
    made = model[0](logits, labels, 40, num_items_in_batch=5)
    assert torch.equal(made, transformers.CeForCausalLMLoss(logits, labels, 40, 5))


def test_the_layer_of_a_causal_language_model_loss(device, seed):
    logits, labels = batch(device, torch.bfloat16, (2, 9, 40))
    repository = transformers.kernel_mapping()["ForCausalLMLoss"]["cuda"]
    made = repository.load()()(logits, labels, vocab_size=40)
    assert torch.equal(made, transformers.CeForCausalLMLoss(logits, labels, 40))
    assert repository == transformers.kernel_mapping("cpu")["ForCausalLMLoss"]["cpu"]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_torchtitan(dtype, device, seed):
    logits, labels = batch(device, dtype, (2, 9, 40))
    wide = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(wide.flatten(0, 1), labels.flatten(), reduction="sum")
    ours = torchtitan.cross_entropy_loss(logits, labels)
    assert ours.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert_loss(ours, expected)
    assert_gradients(ours, expected, logits, wide)
    tokens = torch.tensor(5.0, device=device)
    given = logits * 1
    ours, numbers = torchtitan.TritonCrossEntropyLoss()(given, labels, tokens, step=3)
    assert numbers == {}
    if dtype is not torch.float64:  # as there: the backward has nothing left to do but a factor
        assert torch.autograd.grad(ours, given, retain_graph=True)[0].allclose(given / 5)
    assert_loss(ours, expected / 5)
    assert_gradients(ours, F.cross_entropy(wide.flatten(0, 1), labels.flatten(), reduction="sum") / 5, logits, wide)


def test_torchtitan_refuses():
    logits, labels = torch.randn(2, 9, 40), torch.zeros(2, 9, dtype=torch.long)
    with pytest.raises(ValueError, match="reduction is 'mean'"):
        torchtitan.triton_cross_entropy_loss(logits[0], labels[0], reduction="mean")
    with pytest.raises(ValueError, match=r"pred is \[2, 9, 40\]"):
        torchtitan.triton_cross_entropy_loss(logits, labels)


def test_transformers_with_the_trainer(tmp_path, seed):
    """Two steps of the Trainer with gradient accumulation lose as without ce."""
    hugging_face = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    before = ct.configure(cpu="host")
    try:
        data = [{"input_ids": torch.randint(0, 60, (12,)).tolist()} for _ in range(8)]
        for one in data:
            one["labels"] = one["input_ids"]
        losses = []
        for loss in (None, transformers.compute_loss):
            arguments = hugging_face.TrainingArguments(
                output_dir=str(tmp_path),
                max_steps=2,
                per_device_train_batch_size=2,
                gradient_accumulation_steps=2,
                report_to=[],
                save_strategy="no",
                logging_steps=1,
                seed=0,
                use_cpu=True,
            )
            trainer = hugging_face.Trainer(
                model=tiny_llama(),
                args=arguments,
                train_dataset=data,
                compute_loss_func=loss,
                data_collator=hugging_face.default_data_collator,
            )
            trainer.train()
            losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        assert len(losses[0]) == 2
        torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=0, atol=3e-4)
    finally:
        ct.restore(before)


@pytest.mark.parametrize("cpu", ["host", "torch"])
@pytest.mark.parametrize("counts", [False, True])
def test_transformers_of_no_items(counts, cpu, device, seed):
    if device.type == "cpu":
        ct.configure(cpu=cpu)
    logits = torch.randn(2, 5, 20, device=device, requires_grad=True)
    labels = torch.full((2, 5), IGNORED, device=device)
    if counts:
        labels[0, 3] = 7
    of_torch = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum") / 0
    for items in (0, torch.tensor(0, device=device)):
        made = transformers.CeForCausalLMLoss(logits, labels, 20, num_items_in_batch=items)
        torch.testing.assert_close(made, of_torch, equal_nan=True)


@pytest.mark.parametrize("sizes", [(40,), (6, 40), (2, 5, 40)])
def test_trl(sizes, device, seed):
    logits = torch.randn(*sizes, device=device, requires_grad=True)
    wide = logits.detach().double().requires_grad_()
    index = torch.randint(0, 40, sizes[:-1], device=device)
    for temperature in (1.0, 0.7):
        ours = trl.selective_log_softmax(logits, index, temperature)
        expected = (wide / temperature).log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)
        assert ours.shape == index.shape
        assert_loss(ours, expected)
        assert_gradients(ours, expected, logits, wide)
    several = torch.randint(0, 40, (*sizes[:-1], 3), device=device)
    assert_loss(trl.selective_log_softmax(logits, several), wide.log_softmax(-1).gather(-1, several))
    if len(sizes) > 1:
        mask = torch.ones(sizes[:-1], device=device)
        mask.view(-1)[0] = 0
        masked = trl.selective_log_softmax(logits, index, row_mask=mask)
        assert masked.view(-1)[0] == 0
        (grad,) = torch.autograd.grad(masked.sum(), logits)
        assert grad.view(-1, 40)[0].abs().sum() == 0
    assert trl.selective_log_softmax(logits.bfloat16(), index).dtype is torch.bfloat16
    with pytest.raises(ValueError, match="temperature is 0"):
        trl.selective_log_softmax(logits, index, 0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("has_lse", [False, True])
def test_the_z_loss_of_flash_attn_has_no_gradient(reduction, has_lse, device, seed):
    x, target = torch.randn(4, 6, device=device, requires_grad=True), torch.tensor([0, 1, 2, 3], device=device)
    lse = torch.logsumexp(x, 1).detach() if has_lse else None
    loss, z_loss = flash_attn.CrossEntropyLoss(lse_square_scale=0.1, return_z_loss=True, reduction=reduction)(
        x, target, lse
    )
    assert loss.requires_grad and not z_loss.requires_grad


OWN_WORDS = {
    "flash_attn": (flash_attn.cross_entropy_loss, {"lse_square_scale": -1.0}, "lse_square_scale is -1; expected 0 to"),
    "flash_attn's group": (flash_attn.cross_entropy_loss, {"process_group": 3}, "process_group is of type int"),
    "liger": (liger.liger_cross_entropy, {"lse_square_scale": float("nan")}, "lse_square_scale is nan; expected 0 to"),
    "liger's ignore_index": (liger.liger_cross_entropy, {"ignore_index": None}, "ignore_index is of type NoneType"),
    "liger's z-loss to learn": (
        liger.liger_cross_entropy,
        {"lse_square_scale": torch.tensor(0.1, requires_grad=True)},
        "the derivative for 'lse_square_scale' is not implemented",
    ),
    "quack": (quack.cross_entropy, {"x": [1.0]}, "x is of type list; expected a tensor"),
    "transformer_engine": (transformer_engine.parallel_cross_entropy, {"ignore_idx": 0.5}, "ignore_idx is 0.5; expec"),
    "transformer_engine's": (
        transformer_engine.cross_entropy_forward,
        {"ignore_idx": None, "label_smoothing": 0.0, "reduce_loss": False},
        "ignore_idx is of type NoneType; expected an integer",
    ),
    "torchtitan": (torchtitan.cross_entropy_loss, {"labels": None}, "labels is of type NoneType; expected a tensor"),
    "torchtitan's Triton": (torchtitan.triton_cross_entropy_loss, {"pred": 3}, "pred is 3; expected a tensor"),
    "transformers": (transformers.CeForCausalLMLoss, {"labels": 3, "vocab_size": 5}, "labels is 3; expected a tensor"),
    "megatron": (
        megatron.vocab_parallel_cross_entropy,
        {"label_smoothing": "a"},
        "label_smoothing is 'a'; expected a n",
    ),
    "megatron's group": (megatron.vocab_parallel_cross_entropy, {"tp_group": 3}, "tp_group is of type int; expected a"),
}


@pytest.mark.parametrize("case", OWN_WORDS)
def test_errors_are_in_the_words_of_what_was_called(case, device):
    function, given, message = OWN_WORDS[case]
    logits, target = torch.zeros(4, 5, device=device), torch.arange(4, device=device)
    arguments = dict(zip(list(inspect.signature(function).parameters)[:2], (logits, target)))
    with pytest.raises((TypeError, ValueError, RuntimeError), match=rf"^ce\.torch\.{function.__name__}: {message}"):
        function(**{**arguments, **given})


def test_causal_language_model_loss_refuses(device):
    logits, labels = torch.zeros(1, 4, 5, device=device), torch.zeros(1, 4, dtype=torch.int64, device=device)
    for given, message in (
        ({"vocab_size": 0}, r"vocab_size is 0; expected the last size of logits, whose sizes are \[1, 4, 5\]"),
        ({"vocab_size": 3}, "vocab_size is 3; expected the last size of logits"),
        ({"num_items_in_batch": torch.ones(2, device=device)}, r"num_items_in_batch has sizes \[2\]; expected one"),
        ({"labels": None}, "labels is None; expected labels or shift_labels"),
    ):
        with pytest.raises(ValueError, match="^CeForCausalLMLoss: " + message):
            transformers.CeForCausalLMLoss(**{"logits": logits, "labels": labels, "vocab_size": 5, **given})


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: flash_attn.cross_entropy_loss(x * 1, t, inplace_backward=True, lse_square_scale=0.1)[0],
        lambda x, t: liger.liger_cross_entropy(x, t, lse_square_scale=0.1),
        lambda x, t: transformers.CeForCausalLMLoss(x, t, 8, num_items_in_batch=3),
        lambda x, t: transformer_engine.parallel_cross_entropy(x, t, reduce_loss=True),
        lambda x, t: quack.cross_entropy(x, t),
    ],
)
def test_they_compile_into_one_graph(call, device, seed):
    logits, target = torch.randn(4, 8, device=device, requires_grad=True), torch.arange(4, device=device)
    torch.compiler.reset()
    made = torch.compile(call, backend="aot_eager", fullgraph=True)(logits, target)
    (grad,) = torch.autograd.grad(made.sum(), logits)
    want = call(logits, target)
    torch.testing.assert_close(made, want)
    torch.testing.assert_close(grad, torch.autograd.grad(want.sum(), logits)[0])


def test_the_backward_of_transformer_engine_names_what_is_wrong(device, seed):
    grad = torch.randn(2, 3, 9, device=device).bfloat16()
    backward = transformer_engine.cross_entropy_backward
    message = r"^ce\.torch\.cross_entropy_backward: grad_output"
    for sizes in ((3,), (2, 1), (2, 3, 9)):
        with pytest.raises(ValueError, match=message + r" has sizes \[.*\]; expected one element, or \[2, 3\]"):
            backward(grad, torch.rand(sizes, device=device))
    for wrong in (torch.rand(2, 3, device=device).double(), torch.ones(2, 3, device=device).long()):
        for one in (wrong, wrong[0, 0]):
            with pytest.raises(TypeError, match=message + rf"\.dtype is {wrong.dtype}; expected torch\.bfloat16"):
                backward(grad, one)
    factor = torch.rand(2, 3, device=device)
    torch.testing.assert_close(backward(grad.clone(), factor), (grad.float() * factor[..., None]).bfloat16())
    torch.testing.assert_close(backward(grad.clone(), factor[0, :1]), (grad.float() * factor[0, 0]).bfloat16())
    torch.testing.assert_close(backward(grad.double(), factor[0, 0]), grad.double() * factor[0, 0])


@pytest.mark.parametrize("smoothing_of_shards", [False, True])
def test_a_single_class_has_no_smoothing_in_megatron(smoothing_of_shards, device):
    logits, target = torch.zeros(3, 2, 1, device=device), torch.zeros(3, 2, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match=r"label_smoothing is 0\.1; expected 0 with a single class"):
        megatron.vocab_parallel_cross_entropy(logits, target, 0.1, smoothing_of_shards=smoothing_of_shards)
    assert not megatron.vocab_parallel_cross_entropy(logits, target).any()
