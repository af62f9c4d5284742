"""``trl.trainer.utils.selective_log_softmax``: log-probabilities of chosen classes, in one pass over the logits."""

from ce.torch.logprobs import selective_log_softmax

__all__ = ["selective_log_softmax"]
