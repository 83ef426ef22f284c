"""A Kimi K3 text model of any size in PyTorch, fast enough to train on two CPU cores.

Parameter names are those of the published checkpoint (without the `language_model.` prefix), so export.py only has
to split the stacked experts.  Everything that the architecture keeps in float32 (KDA core, router, mixes, norms) is
float32 here too; the plain matrix products may run in bfloat16 under autocast.
"""

import types

import torch
import torch.nn as nn
import torch.nn.functional as F

TILE = 16  # with the gate's bound of -5 per token, exp(+-G) of 16 tokens stays inside float32
LATENT_EPS = 1e-6  # the two MLA latent norms do not use rms_norm_eps
FAST = False  # set by train.py: compile the elementwise chains


def config(**over):
    """The text_config of the nano model; keys and meanings are those of K3's own config.json."""
    c = dict(
        vocab_size=2048,
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        hidden_act="situ",
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        rms_norm_eps=1e-5,
        attn_res_block_size=2,
        first_k_dense_replace=1,
        moe_layer_freq=1,
        num_experts=32,
        num_experts_per_token=4,
        num_shared_experts=2,
        moe_intermediate_size=64,
        routed_expert_hidden_size=96,
        latent_moe_use_norm=True,
        moe_router_activation_func="sigmoid",
        moe_renormalize=True,
        routed_scaling_factor=1.0,
        use_grouped_topk=True,
        num_expert_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        q_lora_rank=96,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        mla_use_nope=True,
        mla_use_output_gate=True,
        max_position_embeddings=131072,
        num_nextn_predict_layers=0,
        tie_word_embeddings=False,
        initializer_range=0.02,
        use_cache=True,
        dtype="bfloat16",
        linear_attn_config=dict(
            full_attn_layers=[4, 6],
            kda_layers=[1, 2, 3, 5],
            num_heads=4,
            head_dim=32,
            short_conv_kernel_size=4,
            use_full_rank_gate=True,
            gate_lower_bound=-5.0,
        ),
    )
    c.update(over)
    return c


def compiled(fn):
    """torch.compile when FAST is set, once per inner shape: only the first dimension (rows) may vary.

    A copy of the code under a name of its own keeps the compiler from merging the shapes into one slow version.
    """
    box = {}

    def call(*a):
        if not FAST:
            return fn(*a)
        tensors = [t for t in a if isinstance(t, torch.Tensor)]
        key = tuple((t.shape[1:], t.dtype, t.requires_grad) for t in tensors)
        if key not in box:
            code = fn.__code__.replace(co_name=f"{fn.__name__}_{len(box)}")
            copy = types.FunctionType(code, fn.__globals__, closure=fn.__closure__)
            box[key] = torch.compile(copy)
        for t in tensors:
            if t.ndim > 1:
                torch._dynamo.maybe_mark_dynamic(t, 0)
        return box[key](*a)

    return call


def wide(x):
    """At least float32: products may arrive in bfloat16, and the tests run everything in float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# ---------------------------------------------------------------- elementwise pieces


@compiled
def rms_rows(x, w, eps):
    x = wide(x)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rms_norm(x, w, eps):
    return rms_rows(x.reshape(-1, x.shape[-1]), w, eps).view(x.shape)


@compiled
def situ_rows(y, beta, linear_beta):
    g, u = wide(y).chunk(2, -1)
    return (
        beta * torch.tanh(g / beta) * torch.sigmoid(g) * linear_beta * torch.tanh(u / linear_beta)
    )


def situ(y, beta, linear_beta):
    """SiTU-GLU of [..., gate | up]."""
    return situ_rows(y.reshape(-1, y.shape[-1]), beta, linear_beta).view(*y.shape[:-1], -1)


@compiled
def mix2(a, b, w, eps):
    return _mix((a, b), w, eps)


@compiled
def mix3(a, b, c, w, eps):
    return _mix((a, b, c), w, eps)


@compiled
def mix4(a, b, c, d, w, eps):
    return _mix((a, b, c, d), w, eps)


def _mix(v, w, eps):
    s = torch.stack([(x * w).sum(-1) * torch.rsqrt(x.square().mean(-1) + eps) for x in v], -1)
    p = torch.softmax(s, -1)
    return sum(p[..., i : i + 1] * x for i, x in enumerate(v))


def mix(sources, norm, proj, eps):
    """Attention residuals: a softmax over the banked blocks and the running prefix."""
    rows = [x.reshape(-1, x.shape[-1]) for x in sources]
    fn = {2: mix2, 3: mix3, 4: mix4}.get(len(rows), lambda *a: _mix(a[:-2], *a[-2:]))
    return fn(*rows, norm * proj[0], eps).view(sources[0].shape)


@compiled
def gated_norm(o, w, gate, eps):
    """[rows, H, D] normalised per head, times the sigmoid of the gate [rows, H * D]."""
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps) * w
    return o.flatten(1) * torch.sigmoid(wide(gate))


def tiles_with_halo(u):
    """[B, T, C] -> [B * T / 16, 19, C]: every tile with the three tokens before it."""
    B, T, C = u.shape
    u = u.reshape(B, T // TILE, TILE, C)
    before = F.pad(u[:, :-1, TILE - 3 :], (0, 0, 0, 0, 1, 0))
    return torch.cat([before, u], 2).view(-1, TILE + 3, C)


@compiled
def kda_prepare(u, conv, z, beta, A_log, dt_bias, ones, bound):
    """Convolution, norms and gates of a tile, then the factors of the chunked delta rule, [tiles, H, 16, D] each.

    u: q|k|v with halo [tiles, 19, 3HD]; conv [3HD, 4], oldest tap first; z: [tiles, 16, H, D]; beta [tiles, 16, H];
    ones: the lower triangle [16, 16] that sums the gates.
    """
    M, C, H, D = z.shape
    u = wide(u)
    y = (
        u[:, :C] * conv[:, 0]
        + u[:, 1 : C + 1] * conv[:, 1]
        + u[:, 2 : C + 2] * conv[:, 2]
        + u[:, 3:] * conv[:, 3]
    )
    q, k, v = (y * torch.sigmoid(y)).view(M, C, 3, H, D).unbind(2)
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * D**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    g = bound * torch.sigmoid(A_log.exp()[:, None] * (wide(z) + dt_bias.view(H, D)))
    b = torch.sigmoid(wide(beta)).unsqueeze(-1)
    G = torch.matmul(ones, g.view(M, C, H * D)).view(M, C, H, D)
    mid, end = G[:, C // 2 - 1 : C // 2], G[:, -1:]
    up, down, eG = (G - mid).exp(), (mid - G).exp(), G.exp()
    out = (q * up, k * up * b, k * down, q * eG, k * eG * b, v * b, k * (end - G).exp())
    return tuple(x.transpose(1, 2).contiguous() for x in out) + (end.exp().squeeze(1),)


class Scan(torch.autograd.Function):
    """S[n+1] = Fn S[n] + En over the tiles, S[0] = 0; returns the state before each tile."""

    @staticmethod
    def forward(ctx, Fm, E):
        N = Fm.shape[0]
        S = torch.empty_like(E)
        S[0].zero_()
        for n in range(N - 1):
            torch.baddbmm(E[n], Fm[n], S[n], out=S[n + 1])
        ctx.save_for_backward(Fm, S)
        return S

    @staticmethod
    def backward(ctx, dS):
        Fm, S = ctx.saved_tensors
        dE = torch.empty_like(dS)
        dE[-1].zero_()
        for n in range(Fm.shape[0] - 1, 0, -1):
            src = dE[n]
            # gradient of S[n]: what reads it directly, and S[n+1] = F S + E
            dE[n - 1] = torch.baddbmm(dS[n], Fm[n].transpose(1, 2), src)
        return torch.matmul(dE, S.transpose(-1, -2)), dE


def kda_core(B, qu, ku, kd, qG, kG, v, ke, decay):
    """Chunked KDA from the factors of kda_prepare; returns [tiles * 16, H, D] rows in token order."""
    M, H, C, D = qu.shape
    N = M // B

    def flat(x):
        return x.view(M * H, C, D)

    kdT = flat(kd).transpose(1, 2)
    # strictly lower triangular, so A^16 = 0 and four factors invert I + A
    A = torch.bmm(flat(ku), kdT).tril(-1)
    eye = torch.eye(C, dtype=A.dtype)
    A2 = torch.bmm(A, A)
    A4 = torch.bmm(A2, A2)
    inv = torch.bmm(torch.bmm(eye - A, eye + A2), torch.bmm(eye + A4, eye + torch.bmm(A4, A4)))
    UW = torch.bmm(inv, torch.cat([flat(v), flat(kG)], -1))
    # [., D, 2D]: what the tile adds to the state, and what it removes from it
    EF = torch.bmm(flat(ke).transpose(1, 2), UW)

    def by_tile(x):
        return x.reshape(B, N, H, D, D).transpose(0, 1).reshape(N, B * H, D, D)

    S = Scan.apply(by_tile(torch.diag_embed(decay.view(-1, D)) - EF[..., D:]), by_tile(EF[..., :D]))
    S = S.view(N, B, H, D, D).transpose(0, 1).reshape(M * H, D, D)
    P = UW[..., :D] - torch.bmm(UW[..., D:], S)
    o = torch.bmm(flat(qG), S) + torch.bmm(torch.bmm(flat(qu), kdT).tril(), P)
    return o.view(M, H, C, D).transpose(1, 2).reshape(M * C, H, D)


# ---------------------------------------------------------------- experts

E2M1_MAX = 6.0


def mxfp4_round(w):
    """Nearest MXFP4 value of every weight (groups of 32 along the input), straight-through gradient."""
    with torch.no_grad():
        b = w.reshape(*w.shape[:-1], -1, 32)
        amax = b.abs().amax(-1, keepdim=True).clamp_min(1e-30)
        e = torch.frexp(amax)[1].sub_(3).clamp_(-127, 127)  # floor(log2 amax) - 2
        s = torch.ldexp(torch.ones_like(amax), e)
        x = (b / s).clamp_(-E2M1_MAX, E2M1_MAX)
        a = x.abs()
        step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
        q = ((x / step).round_() * step * s).reshape(w.shape)
    return w + (q - w).detach() if w.requires_grad else q


class Dispatch(torch.autograd.Function):
    """rows[n] -> [experts, capacity]; both directions are gathers because the map is one-to-one."""

    @staticmethod
    def forward(ctx, z, slot_token, token_slot, k):
        ctx.save_for_backward(token_slot)
        ctx.k = k
        return F.pad(z, (0, 0, 0, 1)).index_select(0, slot_token)

    @staticmethod
    def backward(ctx, d):
        (token_slot,) = ctx.saved_tensors
        return d.index_select(0, token_slot).view(-1, ctx.k, d.shape[-1]).sum(1), None, None, None


class Combine(torch.autograd.Function):
    """[experts*capacity] rows -> [N*k] rows, in token order."""

    @staticmethod
    def forward(ctx, y, slot_pair, token_slot):
        ctx.save_for_backward(slot_pair)
        return y.index_select(0, token_slot)

    @staticmethod
    def backward(ctx, d):
        (slot_pair,) = ctx.saved_tensors
        return F.pad(d, (0, 0, 0, 1)).index_select(0, slot_pair), None, None


def scratch(*shape, scale=1.0):
    return nn.Parameter(torch.randn(*shape) * scale)


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


class Linear(nn.Module):
    def __init__(self, out, inp, gain=1.0):
        super().__init__()
        self.weight = scratch(out, inp, scale=gain * inp**-0.5)

    def forward(self, x):
        return F.linear(x, self.weight)


class MLP(nn.Module):
    def __init__(self, c, inter):
        super().__init__()
        h = c["hidden_size"]
        self.gate_proj, self.up_proj, self.down_proj = (
            Linear(inter, h),
            Linear(inter, h),
            Linear(h, inter, 0.5),
        )
        self.b, self.lb = c["activation_situ_beta"], c["activation_situ_linear_beta"]

    def forward(self, x):
        y = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight]))
        return self.down_proj(situ(y, self.b, self.lb))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, E, L, I = (
            c["hidden_size"],
            c["num_experts"],
            c["routed_expert_hidden_size"],
            c["moe_intermediate_size"],
        )
        self.E, self.k, self.scale = E, c["num_experts_per_token"], c["routed_scaling_factor"]
        self.b, self.lb = c["activation_situ_beta"], c["activation_situ_linear_beta"]
        self.gate = Linear(E, h)
        self.gate.register_buffer("e_score_correction_bias", torch.zeros(E))
        self.routed_expert_down_proj, self.routed_expert_up_proj = Linear(L, h), Linear(h, L, 0.5)
        self.routed_expert_norm = Norm(L, c["rms_norm_eps"])
        self.shared_experts = MLP(c, I * c["num_shared_experts"])
        self.w1, self.w3 = scratch(E, I, L, scale=L**-0.5), scratch(E, I, L, scale=L**-0.5)
        self.w2 = scratch(E, L, I, scale=I**-0.5)
        self.load = None
        self.rounded = None  # the MXFP4 weights of this step, shared by its micro-batches

    def forward(self, x):
        shape, k, E = x.shape, self.k, self.E
        x = x.reshape(-1, shape[-1])
        N = x.shape[0]
        with torch.autocast("cpu", enabled=False):
            score = torch.sigmoid(F.linear(x, self.gate.weight))
        with torch.no_grad():
            pick = (score + self.gate.e_score_correction_bias).topk(k, -1).indices
            pair = pick.reshape(-1)
            order = torch.argsort(pair, stable=True)
            self.load = count = torch.bincount(pair, minlength=E)
            cap = int(count.max())
            start = count.cumsum(0) - count
            slot = torch.empty_like(pair)  # pair -> its place in [experts, cap]
            slot[order] = torch.arange(N * k) - start[pair[order]] + pair[order] * cap
            slot_pair = torch.full((E * cap,), N * k)
            slot_pair[slot] = torch.arange(N * k)
            slot_token = torch.div(slot_pair, k, rounding_mode="floor")
        w = score.gather(1, pick)
        w = w / (w.sum(-1, keepdim=True) + 1e-20) * self.scale
        w1, w2, w3 = (mxfp4_round(t) for t in (self.w1, self.w2, self.w3))
        z = self.routed_expert_down_proj(x)
        zs = Dispatch.apply(z, slot_token, slot, k).view(E, cap, -1)
        y = situ(torch.bmm(zs, torch.cat([w1, w3], 1).transpose(1, 2)), self.b, self.lb)
        y = torch.bmm(y, w2.transpose(1, 2)).view(E * cap, -1)
        y = Combine.apply(y, slot_pair, slot).view(N, k, -1)
        y = torch.bmm(w.to(y.dtype).unsqueeze(1), y).squeeze(1)
        y = self.routed_expert_up_proj(self.routed_expert_norm(y))
        return (y + self.shared_experts(x)).view(shape)


# ---------------------------------------------------------------- attention


class KDA(nn.Module):
    def __init__(self, c):
        super().__init__()
        a, h = c["linear_attn_config"], c["hidden_size"]
        self.H, self.D, self.bound = a["num_heads"], a["head_dim"], a["gate_lower_bound"]
        P = self.H * self.D
        self.q_proj, self.k_proj, self.v_proj, self.g_proj = (Linear(P, h) for _ in range(4))
        for ch in "qkv":
            w = torch.randn(P, 1, 4) * 0.2
            w[:, 0, 3] += 0.7
            m = nn.Module()
            m.weight = nn.Parameter(w)
            self.add_module(ch + "_conv1d", m)
        self.f_a_proj, self.f_b_proj, self.b_proj = (
            Linear(self.D, h),
            Linear(P, self.D, 0.5),
            Linear(self.H, h),
        )
        # the file's A_log is padded with zeros to head_dim entries; only the heads are trained
        self.A_log = nn.Parameter(torch.zeros(self.H))
        # gates from about 1.3 nats per token to about 1/600: short and long memories from the start
        self.dt_bias = nn.Parameter(torch.rand(P) * -7 - 1)
        self.o_norm = Norm(self.D, c["rms_norm_eps"])
        self.o_proj = Linear(h, P, 0.5)

    def forward(self, x):
        B, T, _ = x.shape
        H, D = self.H, self.D
        P = H * D
        y = F.linear(
            x,
            torch.cat(
                [
                    self.q_proj.weight,
                    self.k_proj.weight,
                    self.v_proj.weight,
                    self.g_proj.weight,
                    self.f_a_proj.weight,
                    self.b_proj.weight,
                ]
            ),
        )
        qkv, gate, fa, beta = y.split([3 * P, P, D, H], -1)
        z = self.f_b_proj(fa)
        cw = torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight]).squeeze(
            1
        )
        u = tiles_with_halo(qkv)
        z, beta = z.reshape(-1, TILE, H, D), beta.reshape(-1, TILE, H)
        with torch.autocast("cpu", enabled=False):
            ones = torch.ones(TILE, TILE, dtype=cw.dtype).tril()
            parts = kda_prepare(u, cw, z, beta, self.A_log, self.dt_bias, ones, self.bound)
            o = kda_core(B, *parts)
            o = gated_norm(o, self.o_norm.weight, gate.reshape(B * T, P), self.o_norm.eps)
        return self.o_proj(o.view(B, T, P))


class MLA(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.H = c["hidden_size"], c["num_attention_heads"]
        self.r, self.dn, self.dr, self.dv = (
            c[k] for k in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        self.q_a_proj, self.q_a_layernorm = (
            Linear(c["q_lora_rank"], h),
            Norm(c["q_lora_rank"], LATENT_EPS),
        )
        self.q_b_proj = Linear(self.H * (self.dn + self.dr), c["q_lora_rank"])
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = (
            Linear(self.r + self.dr, h),
            Norm(self.r, LATENT_EPS),
        )
        self.kv_b_proj = Linear(self.H * (self.dn + self.dv), self.r)
        self.g_proj, self.o_proj = Linear(self.H * self.dv, h), Linear(h, self.H * self.dv, 0.5)

    def forward(self, x):
        B, T, _ = x.shape
        H, dn, dr, dv = self.H, self.dn, self.dr, self.dv
        qr, rr = self.q_a_proj.weight.shape[0], self.kv_a_proj_with_mqa.weight.shape[0]
        y = F.linear(
            x, torch.cat([self.q_a_proj.weight, self.kv_a_proj_with_mqa.weight, self.g_proj.weight])
        )
        qa, kva, gate = y.split([qr, rr, H * dv], -1)
        q = self.q_b_proj(self.q_a_layernorm(qa)).view(B, T, H, dn + dr).transpose(1, 2)
        kv = (
            self.kv_b_proj(self.kv_a_layernorm(kva[..., : self.r]))
            .view(B, T, H, dn + dv)
            .transpose(1, 2)
        )
        k = torch.cat(
            [kv[..., :dn], kva[..., self.r :].unsqueeze(1).expand(-1, H, -1, -1).to(kv.dtype)], -1
        )
        v = F.pad(
            kv[..., dn:], (0, dn + dr - dv)
        )  # one head size, so that the fused kernel takes it
        o = F.scaled_dot_product_attention(q.contiguous(), k, v, is_causal=True)[..., :dv]
        o = o.transpose(1, 2).reshape(B, T, H * dv)
        return self.o_proj(
            o * torch.sigmoid(gate.to(torch.promote_types(gate.dtype, torch.float32)))
        )


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        h, eps = c["hidden_size"], c["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = Norm(h, eps), Norm(h, eps)
        for s in ("self_attention_res", "mlp_res"):
            setattr(self, s + "_norm", Norm(h, eps))
            p = nn.Module()
            p.weight = nn.Parameter(torch.zeros(1, h))
            setattr(self, s + "_proj", p)
        self.self_attn = KDA(c) if i + 1 in c["linear_attn_config"]["kda_layers"] else MLA(c)
        self.opens = i % c["attn_res_block_size"] == 0
        if i < c["first_k_dense_replace"]:
            self.mlp = MLP(c, c["intermediate_size"])
        else:
            self.block_sparse_moe = MoE(c)

    def ffn(self, x):
        return self.mlp(x) if hasattr(self, "mlp") else self.block_sparse_moe(x)


class K3(nn.Module):
    """ids [B, T] -> final hidden states [B, T, hidden] (T a multiple of 16); `lm_head` makes logits of them."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        m = self.model = nn.Module()
        h = c["hidden_size"]
        m.embed_tokens = nn.Module()
        m.embed_tokens.weight = scratch(c["vocab_size"], h, scale=0.5)
        m.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        m.output_attn_res_norm, m.norm = Norm(h, c["rms_norm_eps"]), Norm(h, c["rms_norm_eps"])
        m.output_attn_res_proj = nn.Module()
        m.output_attn_res_proj.weight = nn.Parameter(torch.zeros(1, h))
        self.lm_head = Linear(c["vocab_size"], h, 0.5)

    def moes(self):
        return [l.block_sparse_moe for l in self.model.layers if hasattr(l, "block_sparse_moe")]

    def forward(self, ids):
        m, eps = self.model, self.c["rms_norm_eps"]
        prefix = F.embedding(ids, m.embed_tokens.weight)
        bank = []
        for l in m.layers:
            h = (
                mix(
                    bank + [prefix],
                    l.self_attention_res_norm.weight,
                    l.self_attention_res_proj.weight,
                    eps,
                )
                if bank
                else prefix
            )
            if l.opens:
                bank.append(prefix)
            a = l.self_attn(l.input_layernorm(h))
            prefix = a.to(prefix.dtype) if l.opens else prefix + a
            h = mix(bank + [prefix], l.mlp_res_norm.weight, l.mlp_res_proj.weight, eps)
            prefix = prefix + l.ffn(l.post_attention_layernorm(h))
        h = mix(bank + [prefix], m.output_attn_res_norm.weight, m.output_attn_res_proj.weight, eps)
        return m.norm(h)


def counts(model):
    """(all parameters, parameters a token uses: with lm_head, without the embedding table)."""
    c = model.c
    total = sum(p.numel() for p in model.parameters()) + sum(m.E for m in model.moes())
    idle = sum(
        (m.E - m.k) * (m.w1[0].numel() + m.w2[0].numel() + m.w3[0].numel()) for m in model.moes()
    )
    return total, total - idle - c["vocab_size"] * c["hidden_size"]
