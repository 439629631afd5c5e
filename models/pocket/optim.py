"""Muon for matrices, AdamW for the rest, and the moving average of the weights.

Rates are tensors on the device, so that all of it can stand in a recorded graph."""
import torch

PLAIN = ("embed_tokens.weight", "position_embedding_table", "router.proj.weight")  # matrices that are tables or tiny


def orthogonal(g):
    """g [n, rows, cols] with its singular values pushed towards 1: five steps of a quintic Newton-Schulz iteration, whose
    coefficients (published with Muon) trade exactness for speed: values end between 0.7 and 1.2."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() if g.is_cuda else g
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).float()


def as_matrices(name, t):
    """[n, rows, cols]: experts one by one, their gate and up apart."""
    if name.endswith("gate_up_proj"):
        return t.view(t.shape[0] * 2, t.shape[1] // 2, t.shape[2])
    return t if t.ndim == 3 else t.unsqueeze(0)


class Muon:
    """Updates are scaled so that a learning rate and a decay fit for AdamW fit here."""

    def __init__(self, named, momentum=0.95, decay=0.01):
        self.momentum, self.decay = momentum, decay
        groups = {}
        for name, p in named:
            groups.setdefault(as_matrices(name, p).shape[1:], []).append((name, p))
        self.groups = [(list(g), [torch.zeros_like(p) for _, p in g]) for g in groups.values()]

    @torch.no_grad()
    def step(self, lr):
        for named, speed in self.groups:
            params, grads = [p for _, p in named], [p.grad for _, p in named]
            if any(g is None for g in grads):
                continue  # a batch without pictures has nothing to say about the tower
            torch._foreach_lerp_(speed, grads, 1 - self.momentum)
            ahead = torch._foreach_lerp(grads, speed, self.momentum)
            parts = [as_matrices(n, g) for (n, _), g in zip(named, ahead)]
            u = orthogonal(torch.cat(parts))
            u = u * (-0.2 * max(u.shape[1:]) ** 0.5 * lr)
            updates = [d.reshape(p.shape) for d, p in zip(u.split([len(x) for x in parts]), params)]
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(params, updates)


def adam(params, lr, betas):
    """AdamW without decay, whose rate is a tensor."""
    way = dict(fused=True, capturable=True) if lr.is_cuda else dict(foreach=False)
    return torch.optim.AdamW(params, lr=lr, betas=betas, eps=1e-10, weight_decay=0.0, **way)


class Optimizer:
    """`lr`: set it before a step."""

    def __init__(self, params, device):
        self.lr = torch.zeros((), device=device)
        matrices = [(n, p) for n, p in params.items() if p.ndim >= 2 and not n.endswith(PLAIN)]
        # the tower apart: its matrices of the same shape as the text's must not wait for a picture
        self.muons = [Muon([x for x in matrices if x[0].startswith(part)]) for part in ("decoder.", "encoder.")]
        self.adam = adam([p for n, p in params.items() if p.ndim < 2 or n.endswith(PLAIN)], self.lr, (0.9, 0.98))
        self.params = list(params.values())

    def step(self, clip=1.0):
        torch.nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], clip, foreach=True)
        for m in self.muons:
            m.step(self.lr)
        self.adam.step()


class Average:
    """Exponential moving average of the weights: short at first, `decay` in the end."""

    def __init__(self, params, decay, device):
        self.names, self.live, self.decay = list(params), list(params.values()), decay
        self.n = torch.zeros((), device=device)
        self.mean = [p.detach().clone() for p in self.live]

    @torch.no_grad()
    def update(self):
        self.n += 1
        keep = (self.n / (self.n + 9)).clamp_max(self.decay)
        apart = torch._foreach_sub([p.detach() for p in self.live], self.mean)
        torch._foreach_mul_(apart, 1 - keep)
        torch._foreach_add_(self.mean, apart)

    def weights(self):
        return dict(zip(self.names, self.mean))
