# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy of a student against a target whose most likely tokens are
known.

With p_i the target's probability of its candidates inside the student's head, r
what it gives to all other tokens, and q the student's probabilities,
    loss = -(sum_i p_i log q_i + r log(1 - sum_i q_i)),
all divided by what the head can cover. So the student learns how much it should
leave to the rest, without being told how the rest is divided.
"""

import torch

_CHUNK = 1024


class _TruncatedCrossEntropy(torch.autograd.Function):
    """Sum of losses; the gradient is made together with the loss, chunk by
    chunk, so that no [rows, tokens] tensor outlives its chunk."""

    @staticmethod
    def forward(context, hidden, head, rows, probs, rest):
        grad_hidden = torch.empty_like(hidden)
        grad_head = torch.zeros_like(head, dtype=torch.float32)
        head = head.to(hidden.dtype)
        total = hidden.new_zeros((), dtype=torch.float32)
        for first in range(0, hidden.shape[0], _CHUNK):
            part = slice(first, first + _CHUNK)
            p, r = probs[part], rest[part]
            q = (hidden[part] @ head.T).float().softmax(-1)
            chosen = q.gather(1, rows[part]) * (p > 0)
            others = (1 - chosen.sum(1)).clamp_min(1e-6)
            total -= (p * chosen.clamp_min(1e-9).log()).sum()
            total -= (r * others.log()).sum()
            # Candidates that the head lacks have p = 0 and row 0, so what is
            # put back there must be added, not written.
            scale = 1 - r / others
            q *= scale[:, None]
            q.scatter_add_(1, rows[part],
                           chosen - p - chosen * scale[:, None])
            gradient = q.to(hidden.dtype)
            grad_hidden[part] = gradient @ head
            grad_head += gradient.T @ hidden[part]
        context.save_for_backward(grad_hidden, grad_head)
        return total

    @staticmethod
    def backward(context, gradient):
        grad_hidden, grad_head = context.saved_tensors
        return gradient * grad_hidden, gradient * grad_head, None, None, None


class TruncatedCrossEntropy:
    """head_tokens: ids of the head's rows; greedy_weight: how far the target's
    best token stands for its distribution where it was chosen greedily."""

    def __init__(self, head_tokens, vocab_size, greedy_weight):
        self._row = torch.full((vocab_size,), -1, dtype=torch.int64)
        self._row[head_tokens] = torch.arange(len(head_tokens))
        self._greedy_weight = greedy_weight

    def targets(self, batch):
        """Head rows [targets, candidates], their probabilities, the rest's
        probability [targets], and which targets the head can meet at all."""
        rows = self._row[batch.top_ids]
        known = rows >= 0
        probs = batch.top_probs * known
        rest = (1 - batch.top_probs.sum(1)).clamp_min(0)
        covered = probs.sum(1) + rest
        # Where the head can meet nothing, all is left to the rest, which teaches
        # nothing.
        nothing = covered < 1e-3
        rest = rest.masked_fill(nothing, 1.0)
        covered = covered.masked_fill(nothing, 1.0)
        probs, rest = probs / covered[:, None], rest / covered
        sharp = self._greedy_weight * (batch.greedy & known[:, 0])
        probs = probs * (1 - sharp)[:, None]
        probs[:, 0] += sharp
        return rows.clamp_min(0), probs, rest * (1 - sharp)

    def __call__(self, hidden, head, batch):
        """Mean loss over the batch; hidden: [targets, width]."""
        rows, probs, rest = self.targets(batch)
        return _TruncatedCrossEntropy.apply(
            hidden, head, rows, probs, rest) / hidden.shape[0]
