"""Text for training without padding: the prefixes of many samples end to end, then their canvases.

A prefix does not see its canvas, so it goes through the layers once and leaves keys and values for both looks at the canvas: the
one that only conditions, and the one that is trained. Shapes never change, whatever the samples are, so that a step can be one
CUDA graph. The same numbers as model.py's dense rows (check_model.py holds them to each other)."""
import torch
import torch.nn.functional as F

import model as M
from feed import FILLERS, LONGEST
from model import CANVAS, KINDS, TEXT, THETA, ROTATED

TAIL = TEXT["sliding_window"] - 1  # of a prefix, what the canvas sees in sliding layers


class Layout:
    """Who stands where. lengths [samples + FILLERS], together as many as there are rows of prefixes."""

    def __init__(self, lengths, rows):
        dev, self.n, self.rows = lengths.device, len(lengths) - FILLERS, rows
        self.cum = F.pad(lengths.cumsum(0), (1, 0)).int()
        at = torch.arange(rows, device=dev)
        sample = torch.searchsorted(self.cum[1:], at.int(), right=True).clamp_max(len(lengths) - 1)
        self.position = at - self.cum[sample]
        mine = sample < self.n
        self.live = mine.float()
        own, j = torch.arange(self.n, device=dev)[:, None], torch.arange(CANVAS, device=dev)
        length = lengths[:self.n]
        self.canvas_position = (length[:, None] + j).flatten()
        self.cum_canvas = (CANVAS * torch.arange(self.n + 1, device=dev)).int()
        self.places = {"G": self.place(length, rows + CANVAS * self.n, mine, self.cum[sample].long() + CANVAS * sample + self.position, j, own)}
        kept = length.clamp_max(TAIL)
        first = F.pad((kept + CANVAS).cumsum(0), (1, 0))
        skipped = self.position - (length - kept)[sample.clamp_max(self.n - 1)]
        self.places["S"] = self.place(kept, (TAIL + CANVAS) * self.n, mine & (skipped >= 0), first[sample.clamp_max(self.n - 1)] + skipped, j, own)

    def place(self, kept, room, has, to, j, own):
        """Keys of one kind of layer in the order in which canvases read them: (ends, which row stands at each place, where each row
        went, whether it went anywhere)."""
        ends = F.pad((kept + CANVAS).cumsum(0), (1, 0))
        to = torch.cat([torch.where(has, to, room), (ends[:-1] + kept)[:, None].add(j).flatten()])
        row = torch.zeros(room + 1, dtype=torch.long, device=to.device).scatter(0, to, torch.arange(len(to), device=to.device))
        return ends.int(), row[:room], to.clamp_max(room - 1), torch.cat([has, torch.ones_like(to[len(has):], dtype=torch.bool)])


def fetch(rows, index):
    """rows[index], eight bytes at a time."""
    return rows.flatten(1).view(torch.int64).index_select(0, index).view(rows.dtype).view(-1, *rows.shape[1:])


class Ordered(torch.autograd.Function):
    """rows[index]; backward the rows are fetched from where they went, and what went nowhere gets zeros."""

    @staticmethod
    def forward(ctx, rows, index, to, has):
        ctx.save_for_backward(to, has)
        return fetch(rows, index)

    @staticmethod
    def backward(ctx, grad):
        to, has = ctx.saved_tensors
        return torch.where(has.view(-1, *[1] * (grad.ndim - 1)), fetch(grad.contiguous(), to), 0), None, None, None


def attend(q, k, v, ends_q, ends_k, longest_q, longest_k, causal, window=None):
    """Sequences end to end: q [rows, head, hd], k and v [rows, kv head, hd]."""
    if q.is_cuda:
        return torch.ops.aten._flash_attention_forward(q, k, v, ends_q, ends_k, longest_q, longest_k, 0.0, causal, False, scale=1.0,
                                                       window_size_left=window, window_size_right=None if window is None else 0)[0]
    out, (a, b) = [], (ends_q.tolist(), ends_k.tolist())  # for tests
    for i in range(len(a) - 1):
        part = [t.transpose(0, 1) for t in (q[a[i]:a[i + 1]], k[b[i]:b[i + 1]], v[b[i]:b[i + 1]])]
        n, m = part[0].shape[1], part[1].shape[1]
        if n == 0:
            continue
        x, y = torch.arange(n)[:, None], torch.arange(m)[None]
        may = (y <= x if causal else torch.ones(n, m, dtype=torch.bool)) & ((y >= x - window) if window is not None else True)
        part[1:] = [t.repeat_interleave(q.shape[1] // k.shape[1], 0) for t in part[1:]]
        out.append(F.scaled_dot_product_attention(*part, attn_mask=may, scale=1.0).transpose(0, 1))
    return torch.cat(out)


def turned_keys(w, h, angles, dtype, ops):
    hd = w["self_attn.q_norm.weight"].shape[0]
    names = [p for p in ("k", "v") if f"self_attn.{p}_proj.weight" in w]
    kv = M.linear(h, torch.cat([w[f"self_attn.{p}_proj.weight"] for p in names]), dtype).unflatten(-1, (-1, hd))
    k, v = kv.chunk(2, 1) if len(names) == 2 else (kv, kv)
    return ops.turned(k, w["self_attn.k_norm.weight"], *angles, dtype), ops.plain_normed(v, dtype)


def turned_queries(w, h, angles, dtype, ops):
    hd = w["self_attn.q_norm.weight"].shape[0]
    return ops.turned(M.linear(h, w["self_attn.q_proj.weight"], dtype).unflatten(-1, (-1, hd)), w["self_attn.q_norm.weight"], *angles, dtype)


def after(w, x, o, live, dtype, ops):
    """What follows the attention, and (rows that chose each expert, what they gave it, rows)."""
    x = ops.added(x, M.linear(o.flatten(1), w["self_attn.o_proj.weight"], dtype), w["post_attention_layernorm.weight"])
    d = M.gated(ops.normed(x, w["pre_feedforward_layernorm.weight"], dtype), w["mlp.gate_proj.weight"], w["mlp.up_proj.weight"],
                w["mlp.down_proj.weight"], dtype, ops)
    weight, p, chosen = ops.chosen_experts(F.linear(ops.routed(x, w["router.scale"]), w["router.proj.weight"]), w["router.per_expert_scale"])
    e = M.experts(ops.normed(x, w["pre_feedforward_layernorm_2.weight"], dtype), weight, w, dtype, ops)
    x = ops.joined(x, d, e, w["post_feedforward_layernorm_1.weight"], w["post_feedforward_layernorm_2.weight"],
                   w["post_feedforward_layernorm.weight"], w["layer_scalar"])
    return x, torch.stack([live @ chosen, live @ p]), live.sum()


def angles_of(position):
    return {k: M.angles(position, TEXT["head_dim" if k == "S" else "global_head_dim"], THETA[k], ROTATED[k]) for k in "SG"}


def read(net, layout, prefix):
    """Prefixes [rows] through the layers -> keys and values of each layer, and what `after` counted."""
    turn, ops, dtype = angles_of(layout.position), net.ops, net.dtype
    x = F.embedding(prefix, net.table) * TEXT["hidden_size"] ** 0.5
    left, counted = [], []
    for i, (kind, w) in enumerate(zip(KINDS, net.layers)):
        h = ops.normed(x, w["input_layernorm.weight"], dtype)
        k, v = turned_keys(w, h, turn[kind], dtype, ops)
        left.append((k, v))
        if i < len(KINDS) - 1:
            o = attend(turned_queries(w, h, turn[kind], dtype, ops), k, v, layout.cum, layout.cum, LONGEST, LONGEST, True, TAIL if kind == "S" else None)
            x, count, n = after(w, x, o, layout.live, dtype, ops)
            counted.append((count, n))
    return left, counted


def write(net, layout, left, canvas, soft):
    """Canvases [n, CANVAS] of the first n samples, behind what `read` left -> rows [n * CANVAS, hidden], and what was counted."""
    n, ops, dtype = len(canvas), net.ops, net.dtype
    turn, live = angles_of(layout.canvas_position[:n * CANVAS]), torch.ones(n * CANVAS, device=canvas.device)
    own = F.embedding(canvas, net.table) * TEXT["hidden_size"] ** 0.5
    x = M.condition(net.conditioning, own, soft, dtype, ops).flatten(0, 1)
    counted = []
    for kind, w, (k, v) in zip(KINDS, net.layers, left):
        h = ops.normed(x, w["input_layernorm.weight"], dtype)
        ends, index, to, has = layout.places[kind]
        rows = layout.rows + n * CANVAS
        index, to, has = index.clamp_max(rows - 1), to[:rows], has[:rows]
        k, v = (Ordered.apply(torch.cat([a, b]), index, to, has) for a, b in zip((k, v), turned_keys(w, h, turn[kind], dtype, ops)))
        longest = (TAIL if kind == "S" else LONGEST) + CANVAS
        o = attend(turned_queries(w, h, turn[kind], dtype, ops), k, v, layout.cum_canvas[:n + 1], ends[:n + 1], CANVAS, longest, False)
        x, count, m = after(w, x, o, live, dtype, ops)
        counted.append((count, m))
    return x, counted


def uneven(*passes):
    """1 where rows are spread evenly over the experts, more where they are not: the mean over layers."""
    out = 0.0
    for i in range(len(KINDS)):
        parts = [p[i] for p in passes if i < len(p)]
        (chosen, mass), n = sum(c for c, _ in parts), sum(m for _, m in parts)
        out = out + TEXT["num_experts"] * (chosen / (n * TEXT["top_k_experts"]) * mass / n).sum() / len(KINDS)
    return out
