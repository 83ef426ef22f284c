"""Token by token decoding with the recurrent form of the same model: for evaluations that have to generate."""

import torch
import torch.nn.functional as F

from model import KDA, LATENT_EPS, mix, mxfp4_round, rms_norm, situ


class Decoder:
    """One sequence; step(token) returns the logits after it."""

    def __init__(self, net):
        self.net, self.state = net, {}
        self.experts = [[mxfp4_round(w.detach()) for w in (m.w1, m.w2, m.w3)] for m in net.moes()]

    def kda(self, i, a, x):
        H, D = a.H, a.D
        u = torch.cat([p.weight @ x for p in (a.q_proj, a.k_proj, a.v_proj)])
        s = self.state.setdefault(i, [u.new_zeros(3, u.numel()), u.new_zeros(H, D, D)])
        taps = torch.cat([s[0], u[None]])
        s[0] = taps[1:]
        w = torch.cat([c.weight for c in (a.q_conv1d, a.k_conv1d, a.v_conv1d)]).squeeze(1)
        q, k, v = F.silu((taps.T * w).sum(1)).view(3, H, D)
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * D**-0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        z = (a.f_b_proj.weight @ (a.f_a_proj.weight @ x) + a.dt_bias).view(H, D)
        decay = (a.bound * torch.sigmoid(a.A_log.exp()[:, None] * z)).exp()
        S = s[1] * decay[..., None]
        error = (v - (k[:, None] @ S).squeeze(1)) * torch.sigmoid(a.b_proj.weight @ x)[:, None]
        s[1] = S = S + k[..., None] * error[:, None]
        o = rms_norm((q[:, None] @ S).squeeze(1), a.o_norm.weight, a.o_norm.eps).reshape(-1)
        return a.o_proj.weight @ (o * torch.sigmoid(a.g_proj.weight @ x))

    def mla(self, i, a, x):
        qa = rms_norm(a.q_a_proj.weight @ x, a.q_a_layernorm.weight, LATENT_EPS)
        q = (a.q_b_proj.weight @ qa).view(a.H, a.dn + a.dr)
        kva = a.kv_a_proj_with_mqa.weight @ x
        c = rms_norm(kva[: a.r], a.kv_a_layernorm.weight, LATENT_EPS)
        self.state.setdefault(i, []).append(torch.cat([c, kva[a.r :]]))
        past = torch.stack(self.state[i])
        up = a.kv_b_proj.weight.view(a.H, a.dn + a.dv, a.r)
        ql = torch.einsum("hd,hdr->hr", q[:, : a.dn], up[:, : a.dn])
        s = torch.cat([ql, q[:, a.dn :]], 1) @ past.T * (a.dn + a.dr) ** -0.5
        o = torch.einsum("hr,hdr->hd", torch.softmax(s, -1) @ past[:, : a.r], up[:, a.dn :])
        return a.o_proj.weight @ (o.reshape(-1) * torch.sigmoid(a.g_proj.weight @ x))

    def moe(self, m, experts, x):
        score = torch.sigmoid(m.gate.weight @ x)
        pick = (score + m.gate.e_score_correction_bias).topk(m.k).indices
        w = score[pick] / (score[pick].sum() + 1e-20) * m.scale
        z = m.routed_expert_down_proj.weight @ x
        w1, w2, w3 = (t[pick] for t in experts)
        y = torch.einsum("eli,ei->el", w2, situ(torch.cat([w1 @ z, w3 @ z], -1), m.b, m.lb))
        y = m.routed_expert_norm((w[:, None] * y).sum(0))
        return m.routed_expert_up_proj.weight @ y + m.shared_experts(x[None])[0]

    @torch.no_grad()
    def step(self, token):
        net = self.net.model
        eps = self.net.c["rms_norm_eps"]
        prefix, bank, experts = net.embed_tokens.weight[token], [], iter(self.experts)
        for i, l in enumerate(net.layers):
            h = prefix
            if bank:
                w = l.self_attention_res_norm.weight, l.self_attention_res_proj.weight
                h = mix(bank + [prefix], *w, eps)
            if l.opens:
                bank.append(prefix)
            attention = self.kda if isinstance(l.self_attn, KDA) else self.mla
            a = attention(i, l.self_attn, l.input_layernorm(h))
            prefix = a if l.opens else prefix + a
            h = mix(bank + [prefix], l.mlp_res_norm.weight, l.mlp_res_proj.weight, eps)
            h = l.post_attention_layernorm(h)
            if hasattr(l, "mlp"):
                prefix = prefix + l.mlp(h[None])[0]
            else:
                prefix = prefix + self.moe(l.block_sparse_moe, next(experts), h)
        w = net.output_attn_res_norm.weight, net.output_attn_res_proj.weight
        return self.net.lm_head.weight @ net.norm(mix(bank + [prefix], *w, eps))
