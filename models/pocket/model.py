"""The network of pocket, written for training: DiffusionGemma in one pass over [prefix | canvas].

At inference the prefix goes through the layers causally and leaves keys and values, which the canvas then reads. Here both
are rows of one sequence, and one mask for each kind of layer says who sees whom; check_model.py holds the result to
transformers. Parameters live in a dict under their names in a checkpoint, without "model." in front.
"""
import json
import math
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
EPS = 1e-6
CANVAS = 64
PAD, EOS, BOS, TOOL_RESPONSE, END_OF_TURN = 0, 1, 2, 50, 106
STOPS = (EOS, TOOL_RESPONSE, END_OF_TURN)
KINDS = "SSGSSGSG"  # sliding, global
TEXT = dict(
    vocab_size=4096, hidden_size=256, intermediate_size=384, num_hidden_layers=len(KINDS), num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, global_head_dim=128, num_global_key_value_heads=1, num_experts=8, top_k_experts=2,
    moe_intermediate_size=96, sliding_window=48, final_logit_softcapping=30.0, rms_norm_eps=EPS, max_position_embeddings=4096,
    layer_types=["sliding_attention" if k == "S" else "full_attention" for k in KINDS], use_bidirectional_attention="vision",
    hidden_activation="gelu_pytorch_tanh", pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, tie_word_embeddings=True,
)
THETA = {"S": 1e4, "G": 1e6}
ROTATED = {"S": 1.0, "G": 0.25}  # part of a head that turns with the position
VISION = dict(
    model_type="gemma4_vision", hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=4, head_dim=32, global_head_dim=32, patch_size=4, pooling_kernel_size=3, position_embedding_size=256,
    standardize=True, use_clipped_linears=False, rms_norm_eps=EPS, hidden_activation="gelu_pytorch_tanh",
)
VISION_THETA = 100.0
MAX_SOFT = 70
SIDE = VISION["patch_size"] * VISION["pooling_kernel_size"]  # pixels of a soft token


def image_ids(tokenizer_path):
    """Ids of the placeholder and of the marks before and after it."""
    with open(tokenizer_path, encoding="utf-8") as f:
        doc = json.load(f)
    ids = dict(doc["model"]["vocab"])
    ids.update({t["content"]: t["id"] for t in doc.get("added_tokens", [])})
    return ids["<|image|>"], ids["<|image>"], ids["<image|>"]


# ---- parameters ----

def shapes():
    """Name -> shape of every parameter, in the order of a checkpoint."""
    d, ff, e, fe = TEXT["hidden_size"], TEXT["intermediate_size"], TEXT["num_experts"], TEXT["moe_intermediate_size"]
    heads = TEXT["num_attention_heads"]
    out = {"decoder.embed_tokens.weight": (TEXT["vocab_size"], d), "decoder.norm.weight": (d,)}
    for name, shape in (("pre_norm", (d,)), ("gate_proj", (ff, d)), ("up_proj", (ff, d)), ("down_proj", (d, ff))):
        out[f"decoder.self_conditioning.{name}.weight"] = shape
    for i, kind in enumerate(KINDS):
        hd = TEXT["head_dim"] if kind == "S" else TEXT["global_head_dim"]
        kv = hd * (TEXT["num_key_value_heads"] if kind == "S" else TEXT["num_global_key_value_heads"])
        layer = {"input_layernorm.weight": (d,), "self_attn.q_proj.weight": (heads * hd, d), "self_attn.k_proj.weight": (kv, d)}
        if kind == "S":
            layer["self_attn.v_proj.weight"] = (kv, d)
        layer.update({
            "self_attn.o_proj.weight": (d, heads * hd), "self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,),
            "post_attention_layernorm.weight": (d,), "pre_feedforward_layernorm.weight": (d,),
            "mlp.gate_proj.weight": (ff, d), "mlp.up_proj.weight": (ff, d), "mlp.down_proj.weight": (d, ff),
            "post_feedforward_layernorm_1.weight": (d,), "pre_feedforward_layernorm_2.weight": (d,),
            "router.scale": (d,), "router.proj.weight": (e, d), "router.per_expert_scale": (e,),
            "experts.gate_up_proj": (e, 2 * fe, d), "experts.down_proj": (e, d, fe),
            "post_feedforward_layernorm_2.weight": (d,), "post_feedforward_layernorm.weight": (d,), "layer_scalar": (1,)})
        out.update({f"decoder.layers.{i}.{k}": v for k, v in layer.items()})
    v, vff, hd, patch = VISION["hidden_size"], VISION["intermediate_size"], VISION["head_dim"], VISION["patch_size"]
    out["encoder.vision_tower.patch_embedder.input_proj.weight"] = (v, 3 * patch * patch)
    out["encoder.vision_tower.patch_embedder.position_embedding_table"] = (2, VISION["position_embedding_size"], v)
    for i in range(VISION["num_hidden_layers"]):
        layer = {"input_layernorm.weight": (v,), "self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,),
                 "post_attention_layernorm.weight": (v,), "pre_feedforward_layernorm.weight": (v,),
                 "post_feedforward_layernorm.weight": (v,), "mlp.gate_proj.linear.weight": (vff, v),
                 "mlp.up_proj.linear.weight": (vff, v), "mlp.down_proj.linear.weight": (v, vff)}
        layer.update({f"self_attn.{p}_proj.linear.weight": (v, v) for p in "qkvo"})
        out.update({f"encoder.vision_tower.encoder.layers.{i}.{k}": s for k, s in layer.items()})
    out["encoder.vision_tower.std_bias"] = out["encoder.vision_tower.std_scale"] = (v,)
    out["encoder.embed_vision.embedding_projection.weight"] = (d, v)
    return out


def first_value(name, shape, g):
    """How a parameter starts. Attention has no 1/sqrt(head size): the norms of queries and keys begin with it."""
    noise = torch.randn(shape, generator=g)
    if name.endswith("embed_tokens.weight"):
        return noise / math.sqrt(shape[1])  # times the embedding's factor: unit rows
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return torch.full(shape, shape[0] ** -0.25)
    if name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
        return torch.full(shape, 0.5)
    if name.endswith("position_embedding_table"):
        return 0.1 * noise
    if name.endswith("std_bias"):
        return torch.zeros(shape)
    if name.endswith("router.proj.weight"):
        return 0.5 * noise
    if len(shape) == 1:
        return torch.ones(shape)
    return noise / math.sqrt(shape[-1])


def new_weights(seed):
    g = torch.Generator().manual_seed(seed)
    return {name: first_value(name, shape, g) for name, shape in shapes().items()}


def save_weights(folder, stem, weights):
    """Two files of half precision each, stem.0.pt and stem.1.pt: neither is large."""
    names = list(weights)
    sizes = torch.tensor([weights[n].numel() for n in names]).cumsum(0)
    for part in (0, 1):
        mine = {n: weights[n].detach().half().cpu().clone() for n, s in zip(names, sizes.tolist())
                if (s > int(sizes[-1]) // 2) == bool(part)}
        torch.save(mine, os.path.join(folder, f"{stem}.{part}.pt"))


def load_weights(folder, stem):
    out = {}
    for part in (0, 1):
        out.update(torch.load(os.path.join(folder, f"{stem}.{part}.pt"), map_location="cpu", weights_only=True))
    want = shapes()
    if set(out) != set(want) or any(tuple(out[n].shape) != want[n] for n in want):
        raise ValueError(f"{folder}/{stem}: not the parameters of this model")
    return {n: out[n].float() for n in want}


# ---- operations; `dtype` is the one of matrix products, everything else is float32 ----

def rms(x, weight=None):
    x = x.float()
    if weight is None:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def linear(x, weight, dtype):
    return F.linear(x.to(dtype), weight.to(dtype))


def turn(x, cos, sin):
    """Rotates pairs (i, i + half) of x [B, L, head, hd] by angles [B, L, hd / 2]."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


# What stands between two products, row by row: x [rows, ...]. Compiled, each is one kernel forward and one or two backward;
# together they compile in a minute, where whole layers take five.

def normed(x, weight, dtype):
    return rms(x, weight).to(dtype)


def plain_normed(x, dtype):
    return rms(x).to(dtype)


def activated(gate_up, dtype):
    """gelu(gate) * up of [rows, 2 * width]."""
    g, u = gate_up.chunk(2, -1)
    return (F.gelu(g.float(), approximate="tanh") * u.float()).to(dtype)


def turned(x, weight, cos, sin, dtype):
    """Heads [rows, head, hd], normed, their pairs (i, i + half) turned by angles [rows, hd / 2]."""
    a, b = rms(x.float(), weight).chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(dtype)


def added(x, o, weight):
    return x + rms(o, weight)


def chosen_experts(z, scale):
    """Weight of each expert for each row, zero where it is not among the two best; the probabilities; who was chosen."""
    p = z.softmax(-1)
    number = torch.arange(p.shape[-1], device=p.device)
    first = p.detach().argmax(-1, keepdim=True) == number
    chosen = (first | (p.detach().masked_fill(first, -1).argmax(-1, keepdim=True) == number)).to(p.dtype)
    best = p * chosen
    return best / best.sum(-1, keepdim=True) * scale, p, chosen


def routed(r, scale):
    return rms(r) * scale * TEXT["hidden_size"] ** -0.5


def weighed(g, u, weight, dtype):
    """gelu(g) * u of [rows, expert * width], times the weight of the expert."""
    h = F.gelu(g.float(), approximate="tanh") * u.float()
    return (h.unflatten(-1, (weight.shape[-1], -1)) * weight.unsqueeze(-1)).flatten(-2).to(dtype)


def joined(x, d, e, weight_d, weight_e, weight, scalar):
    return (x + rms(rms(d, weight_d) + rms(e, weight_e), weight)) * scalar


def capped_loss(z, target):
    """Cross-entropy and whether the best id is the target, for raw logits [rows, vocabulary]."""
    cap = TEXT["final_logit_softcapping"]
    z = cap * torch.tanh(z.float() / cap)
    return F.cross_entropy(z, target, reduction="none"), z.detach().argmax(-1) == target


def capped(z):
    cap = TEXT["final_logit_softcapping"]
    return cap * torch.tanh(z.float() / cap)


def spread(z, temperature, dtype):
    """Probabilities of capped logits [rows, vocabulary] at temperatures [rows, 1]."""
    return (z / temperature).softmax(-1).to(dtype)


def thoughts(z, temperature, exponential, dtype):
    """Of raw logits [rows, vocabulary] at temperatures [rows, 1]: probabilities, entropies, and ids drawn with noise of that shape."""
    cap = TEXT["final_logit_softcapping"]
    logp = (cap * torch.tanh(z.float() / cap) / temperature).log_softmax(-1)
    p = logp.exp()
    return p.to(dtype), -(p * logp).sum(-1), (logp - exponential.log()).argmax(-1)


class Ops:
    """The functions above, or compiled ones."""
    NAMES = ("normed", "plain_normed", "activated", "turned", "added", "chosen_experts", "routed", "weighed", "joined", "capped_loss", "thoughts")
    PLAIN = ("capped", "spread")  # for answers only: not worth compiling

    def __init__(self):
        for name in self.NAMES + self.PLAIN:
            setattr(self, name, globals()[name])

    def compile(self):
        for name in self.NAMES:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=True))


EAGER = Ops()


def gated(x, gate, up, down, dtype, ops=EAGER):
    """gelu(gate x) * up x, then down. x [rows, width]."""
    return linear(ops.activated(linear(x, torch.cat([gate, up]), dtype), dtype), down, dtype)


def attend(q, k, v, bias, dtype):
    """q [B, Lq, head, hd], k and v [B, Lk, kv head, hd], bias [B, 1, Lq, Lk] -> [B, Lq, head * hd]."""
    repeat = q.shape[2] // k.shape[2]
    q, k, v = (t.to(dtype).transpose(1, 2) for t in (q, k, v))
    if repeat > 1:
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
    return out.transpose(1, 2).flatten(2)


def experts(x, weight, w, dtype, ops):
    """All experts for all rows: so small that leaving none out is faster than sorting rows by expert. Gate and up as two products:
    their gradients need not be joined then, which took longer than the products."""
    gate, up = (t.reshape(-1, t.shape[-1]) for t in w["experts.gate_up_proj"].chunk(2, 1))
    down = w["experts.down_proj"].transpose(1, 2).reshape(len(gate), -1).t()
    return linear(ops.weighed(linear(x, gate, dtype), linear(x, up, dtype), weight, dtype), down, dtype)


def balance(p, chosen, live):
    """1 when the rows that count are spread evenly over the experts, more when they are not."""
    n = live.sum()
    share = (chosen * live.unsqueeze(-1)).sum(0) / (n * TEXT["top_k_experts"])
    mass = (p * live.unsqueeze(-1)).sum(0) / n
    return TEXT["num_experts"] * (share * mass).sum()


def text_layer(w, x, turn, bias, live, keep, dtype, ops):
    """One layer over x [B, L, hidden]. `keep`: how many of the last rows go on; the others only leave keys and values. None: all."""
    hd, (n, length, width), (cos, sin) = w["self_attn.q_norm.weight"].shape[0], x.shape, turn
    h = ops.normed(x.flatten(0, 1), w["input_layernorm.weight"], dtype)
    names = [p for p in ("k", "v") if f"self_attn.{p}_proj.weight" in w]
    kv = linear(h, torch.cat([w[f"self_attn.{p}_proj.weight"] for p in names]), dtype).unflatten(-1, (-1, hd))
    k, v = kv.chunk(2, 1) if len(names) == 2 else (kv, kv)
    k = ops.turned(k, w["self_attn.k_norm.weight"], cos.flatten(0, 1), sin.flatten(0, 1), dtype).unflatten(0, (n, length))
    v = ops.plain_normed(v, dtype).unflatten(0, (n, length))
    if keep is not None:
        x, live, cos, sin = x[:, -keep:], live[:, -keep:], cos[:, -keep:], sin[:, -keep:]
        h = h.view(n, length, width)[:, -keep:].flatten(0, 1)
    rows, x = x.shape[1], x.flatten(0, 1)
    q = linear(h, w["self_attn.q_proj.weight"], dtype).unflatten(-1, (-1, hd))
    q = ops.turned(q, w["self_attn.q_norm.weight"], cos.flatten(0, 1), sin.flatten(0, 1), dtype).unflatten(0, (n, rows))
    o = linear(attend(q, k, v, bias, dtype).flatten(0, 1), w["self_attn.o_proj.weight"], dtype)
    x = ops.added(x, o, w["post_attention_layernorm.weight"])

    d = gated(ops.normed(x, w["pre_feedforward_layernorm.weight"], dtype), w["mlp.gate_proj.weight"], w["mlp.up_proj.weight"],
              w["mlp.down_proj.weight"], dtype, ops)
    weight, p, chosen = ops.chosen_experts(F.linear(ops.routed(x, w["router.scale"]), w["router.proj.weight"]), w["router.per_expert_scale"])
    e = experts(ops.normed(x, w["pre_feedforward_layernorm_2.weight"], dtype), weight, w, dtype, ops)
    x = ops.joined(x, d, e, w["post_feedforward_layernorm_1.weight"], w["post_feedforward_layernorm_2.weight"],
                   w["post_feedforward_layernorm.weight"], w["layer_scalar"])
    return x.unflatten(0, (n, rows)), balance(p, chosen, live.flatten())


def vision_layer(w, x, cos, sin, bias, dtype):
    hd = w["self_attn.q_norm.weight"].shape[0]
    h = rms(x, w["input_layernorm.weight"])
    qkv = linear(h, torch.cat([w[f"self_attn.{n}_proj.linear.weight"] for n in "qkv"]), dtype)
    q, k, v = qkv.unflatten(-1, (3, -1, hd)).float().unbind(2)

    def turn_both(t):  # the first half of a head by the column, the second by the row
        return torch.cat([turn(part, c, s) for part, c, s in zip(t.chunk(2, -1), cos.unbind(2), sin.unbind(2))], -1)
    q = turn_both(rms(q, w["self_attn.q_norm.weight"]))
    k = turn_both(rms(k, w["self_attn.k_norm.weight"]))
    o = linear(attend(q, k, rms(v), bias, dtype), w["self_attn.o_proj.linear.weight"], dtype)
    x = x + rms(o, w["post_attention_layernorm.weight"])
    h = gated(rms(x, w["pre_feedforward_layernorm.weight"]), w["mlp.gate_proj.linear.weight"],
              w["mlp.up_proj.linear.weight"], w["mlp.down_proj.linear.weight"], dtype)
    return x + rms(h, w["post_feedforward_layernorm.weight"])


def condition(w, embedded, soft, dtype, ops):
    """What the canvas enters the layers with: its embeddings and the signal of the previous step, normed."""
    signal = gated(ops.normed(soft.flatten(0, 1), w["pre_norm.weight"], dtype), w["gate_proj.weight"], w["up_proj.weight"], w["down_proj.weight"], dtype, ops)
    return rms(embedded + signal.float().view(embedded.shape))


# ---- masks, positions, patches ----

def blocks_of(prefix, image_id):
    """For each token of the prefix the number of its picture, from 1; 0 outside."""
    inside = prefix == image_id
    first = inside & ~F.pad(inside, (1, 0))[:, :-1]
    return first.cumsum(1) * inside


def biases(prefix, length, image_id, dtype):
    """What is added to attention scores, {kind: [B, 1, L, L]}, L = prefix + canvas. image_id None: no pictures.

    The prefix is padded on the right, so no real token of it sees padding; rows of padding see something, which nobody
    reads."""
    n_prefix, dev = prefix.shape[1], prefix.device
    window = TEXT["sliding_window"]
    at = torch.arange(n_prefix, device=dev)
    q, k = at[:, None], at[None, :]
    own = torch.zeros(1, 1, 1, dtype=torch.bool, device=dev)
    if image_id is not None:
        block = blocks_of(prefix, image_id)
        own = (block[:, :, None] == block[:, None, :]) & (block[:, :, None] > 0)
    real = at[None, :] < length[:, None]
    seen = {"S": real & (at[None, :] > length[:, None] - window), "G": real}
    out = {}
    for kind, causal in (("S", (k <= q) & (k > q - window)), ("G", k <= q)):
        may = torch.ones(len(prefix), 1, n_prefix + CANVAS, n_prefix + CANVAS, dtype=torch.bool, device=dev)
        may[:, 0, :n_prefix, :n_prefix] = causal | own
        may[:, 0, :n_prefix, n_prefix:] = False
        may[:, 0, n_prefix:, :n_prefix] = seen[kind][:, None, :]
        out[kind] = torch.zeros(may.shape, dtype=dtype, device=dev).masked_fill_(~may, -math.inf)
    return out


def angles(position, head_dim, theta, rotated=1.0):
    """cos and sin [..., head_dim / 2] of positions [...]; pairs beyond the rotated part stand still."""
    half = head_dim // 2
    i = torch.arange(half, device=position.device, dtype=torch.float32)
    f = torch.where(i < int(rotated * head_dim // 2), theta ** (-2 * i / head_dim), 0.0)
    a = position.float().unsqueeze(-1) * f
    return a.cos(), a.sin()


# ---- the model ----

def part_of(params, prefix):
    return {n[len(prefix):]: p for n, p in params.items() if n.startswith(prefix)}


class Pocket:
    """`params`: name -> tensor. `dtype`: of matrix products. After ops.compile() what lies between them is compiled code."""

    def __init__(self, weights, device="cpu", dtype=torch.float32, train=False):
        self.dtype, self.device = dtype, torch.device(device)
        self.params = {n: t.to(device=device, dtype=torch.float32) for n, t in weights.items()}
        if train:
            self.params = {n: torch.nn.Parameter(t) for n, t in self.params.items()}
        self.table, self.norm = self.params["decoder.embed_tokens.weight"], self.params["decoder.norm.weight"]
        self.layers = [part_of(self.params, f"decoder.layers.{i}.") for i in range(len(KINDS))]
        self.conditioning = part_of(self.params, "decoder.self_conditioning.")
        self.tower = part_of(self.params, "encoder.vision_tower.")
        self.tower_layers = [part_of(self.tower, f"encoder.layers.{i}.") for i in range(VISION["num_hidden_layers"])]
        self.ops = Ops()

    def cast(self):
        """The matrices of the layers as the products want them, once for all that read them until the next call."""
        for layer, prefix in [(x, f"decoder.layers.{i}.") for i, x in enumerate(self.layers)]:
            layer.update({n: self.params[prefix + n].to(self.dtype) for n in layer if self.params[prefix + n].ndim > 1 and n != "router.proj.weight"})

    def look(self, patches, position):
        """patches [B, soft, 9, 48] of values in [0, 1], in the order of soft tokens; position [B, soft, 9, 2] (x, y), -1
        for padding -> what the prefix holds at the placeholders, [B, soft, hidden]."""
        tower, width = self.tower, VISION["hidden_size"]
        n = patches.shape[0]
        real = (position[..., 0] >= 0).flatten(1)
        at = position.clamp_min(0).flatten(1, 2)
        x = linear(2 * (patches.flatten(1, 2) - 0.5), tower["patch_embedder.input_proj.weight"], self.dtype).float()
        tables = tower["patch_embedder.position_embedding_table"]
        x = x + F.embedding(at[..., 0], tables[0]) + F.embedding(at[..., 1], tables[1])
        cos, sin = angles(at, VISION["head_dim"] // 2, VISION_THETA)
        bias = torch.zeros(real.shape, dtype=self.dtype, device=x.device).masked_fill_(~real, -math.inf)[:, None, None]
        for w in self.tower_layers:
            x = vision_layer(w, x, cos, sin, bias, self.dtype)
        x = x.view(n, -1, VISION["pooling_kernel_size"] ** 2, width).mean(2) * math.sqrt(width)
        x = (x - tower["std_bias"]) * tower["std_scale"]
        return linear(rms(x), self.params["encoder.embed_vision.embedding_projection.weight"], self.dtype).float()

    def prepare(self, prefix, length, image_id=None, patches=None, position=None):
        """All that stays the same while the canvas changes."""
        at = torch.arange(prefix.shape[1] + CANVAS, device=prefix.device)
        pos = torch.where(at < prefix.shape[1], at, at - prefix.shape[1] + length[:, None])
        job = dict(prefix=prefix, bias=biases(prefix, length, image_id, self.dtype),
                   turn={"S": angles(pos, TEXT["head_dim"], THETA["S"], ROTATED["S"]),
                         "G": angles(pos, TEXT["global_head_dim"], THETA["G"], ROTATED["G"])},
                   live=((at < length[:, None]) | (at >= prefix.shape[1])).float(), soft=None)
        if patches is not None:
            job["soft"] = self.look(patches, position)
            job["inside"] = prefix == image_id
        return job

    def embed(self, job, canvas, soft):
        n = job["prefix"].shape[1]
        x = F.embedding(torch.cat([job["prefix"], canvas], 1), self.table) * TEXT["hidden_size"] ** 0.5
        before, own = x[:, :n], x[:, n:]
        if job["soft"] is not None:
            which = (job["inside"].cumsum(1) - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, before.shape[-1])
            before = torch.where(job["inside"].unsqueeze(-1), job["soft"].gather(1, which), before)
        if soft is None:
            soft = torch.zeros_like(own)
        return torch.cat([before, condition(self.conditioning, own, soft, self.dtype, self.ops)], 1)

    def rows(self, job, canvas, soft=None):
        """The canvas after the last layer, and how unevenly the experts were used (mean over layers)."""
        x, uneven = self.embed(job, canvas, soft), 0.0
        for i, (kind, w) in enumerate(zip(KINDS, self.layers)):
            last = i == len(KINDS) - 1
            bias = job["bias"][kind][:, :, -CANVAS:] if last else job["bias"][kind]
            x, u = text_layer(w, x, job["turn"][kind], bias, job["live"], CANVAS if last else None, self.dtype, self.ops)
            uneven = uneven + u / len(KINDS)
        return x, uneven

    def raw_logits(self, x):
        """Of rows [B, canvas, hidden], before they are capped: [rows, vocabulary]."""
        return linear(self.ops.normed(x.flatten(0, 1), self.norm, self.dtype), self.table, self.dtype)

    def logits(self, job, canvas, soft=None):
        return self.ops.capped(self.raw_logits(self.rows(job, canvas, soft)[0])).unflatten(0, canvas.shape)

    def loss(self, x, target):
        """Cross-entropy and whether the best id is the target, at every row of the canvas; [B, canvas] each."""
        ce, right = self.ops.capped_loss(self.raw_logits(x), target.flatten())
        return ce.view(target.shape), right.view(target.shape)

    def soft_of(self, z, temperature):
        """Logits of a step -> the mean embedding that the next one is conditioned on. temperature: a number, or [B, 1, 1]."""
        t = torch.as_tensor(temperature, device=z.device, dtype=torch.float32).expand(len(z), z.shape[1], 1)
        p = self.ops.spread(z.flatten(0, 1), t.reshape(-1, 1), self.dtype)
        return linear(p, self.table.t(), self.dtype).float().unflatten(0, z.shape[:2]) * TEXT["hidden_size"] ** 0.5


def part_of_job(job, n):
    """The first n samples of a prepared batch. Copies: for views, other code would have to be compiled."""
    def cut(v):
        if isinstance(v, dict):
            return {k: cut(x) for k, x in v.items()}
        return tuple(x[:n].clone() for x in v) if isinstance(v, tuple) else v if v is None else v[:n].clone()
    return cut(job)
