"""Muon for the matrices (also for stacks of expert matrices), Adam for the rest."""

import torch


def orthogonal(g):
    """Five Newton-Schulz steps towards the nearest orthogonal matrix, batched over the leading dimension."""
    x = g.bfloat16()
    flip = x.shape[-2] > x.shape[-1]
    if flip:
        x = x.transpose(-1, -2)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.transpose(-1, -2) if flip else x).float()


class Optimizer:
    """lr(matrix), lr(rest) are given per step; state is one flat dict that torch.save takes."""

    def __init__(self, model, decay=0.05):
        self.decay = decay
        self.matrix, self.rest = {}, {}
        for n, p in model.named_parameters():
            plain = (
                p.ndim < 2
                or "conv1d" in n
                or "res_proj" in n
                or "embed" in n
                or "lm_head" in n
                or ".gate.weight" in n
            )
            (self.rest if plain else self.matrix)[n] = p
        self.state = {n: [torch.zeros_like(p)] for n, p in self.matrix.items()}
        self.state |= {n: [torch.zeros_like(p), torch.zeros_like(p)] for n, p in self.rest.items()}
        self.t = 0

    @torch.no_grad()
    def step(self, lr_matrix, lr_rest):
        self.t += 1
        groups = {}
        for n, p in self.matrix.items():
            if p.grad is not None:
                (m,) = self.state[n]
                m.lerp_(p.grad, 0.05)
                groups.setdefault(p.shape, []).append((p, torch.lerp(p.grad, m, 0.95)))
        for shape, items in groups.items():  # equal shapes go through Newton-Schulz together
            g = torch.stack([g for _, g in items]).reshape(-1, *shape[-2:])
            u = orthogonal(g).reshape(len(items), *shape)
            scale = max(1.0, shape[-2] / shape[-1]) ** 0.5
            for (p, _), d in zip(items, u):
                p.mul_(1 - lr_matrix * self.decay).add_(d, alpha=-lr_matrix * scale)
        for n, p in self.rest.items():
            if p.grad is None:
                continue
            m, v = self.state[n]
            m.lerp_(p.grad, 0.1)
            v.lerp_(p.grad.square(), 0.03)
            den = (v / (1 - 0.97**self.t)).sqrt_().add_(1e-8)
            p.addcdiv_(m, den, value=-lr_rest / (1 - 0.9**self.t))
        for p in (*self.matrix.values(), *self.rest.values()):
            p.grad = None

    def state_dict(self):
        return dict(t=self.t, state=self.state)

    def load_state_dict(self, d):
        self.t = d["t"]
        for n, s in d["state"].items():
            for a, b in zip(self.state[n], s):
                a.copy_(b)
