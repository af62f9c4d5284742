"""``ce`` for PyTorch: softmax and cross entropy that tune themselves to the GPU and the shape.

    import ce.torch as ct

    loss = ct.cross_entropy(logits, target)  # torch.nn.functional's signature and meaning, and more options
    ct.patch()                               # or: everything that calls torch.nn.functional, through ce

The functions support autograd, torch.compile, CUDA graphs and autocast. Tensors without a kernel (on the CPU, or
float64) run in torch. The same operators without Python code around them are ``torch.ops.ce.*``.
"""

from ce._c import NotTuned
from ce._stats import Stats, stats
from ce.torch import _registrations
from ce.torch._patch import patch, unpatch
from ce.torch._settings import configure, restore
from ce.torch.functional import CrossEntropyOutput, cross_entropy, log_softmax, softmax
from ce.torch.integrations import liger, megatron
from ce.torch.linear import linear_cross_entropy
from ce.torch.linear_logprobs import linear_logprobs_and_entropy
from ce.torch.logprobs import logprobs_and_entropy, selective_log_softmax
from ce.torch.modules import CrossEntropyLoss, LinearCrossEntropy, LogSoftmax, Softmax
from ce.torch.tuning import check, tune
from ce.torch.vocab_parallel import VocabParallelOutput, vocab_parallel_cross_entropy
from ce.torch.vocab_parallel_linear import vocab_parallel_linear_cross_entropy

_registrations.register()

__all__ = [
    "CrossEntropyLoss",
    "CrossEntropyOutput",
    "LinearCrossEntropy",
    "LogSoftmax",
    "NotTuned",
    "Softmax",
    "Stats",
    "VocabParallelOutput",
    "check",
    "configure",
    "cross_entropy",
    "liger",
    "linear_cross_entropy",
    "linear_logprobs_and_entropy",
    "log_softmax",
    "logprobs_and_entropy",
    "megatron",
    "patch",
    "restore",
    "selective_log_softmax",
    "softmax",
    "stats",
    "tune",
    "unpatch",
    "vocab_parallel_cross_entropy",
    "vocab_parallel_linear_cross_entropy",
]
