"""Reads the tensors of a GGUF file of pocket's kind with numpy alone: F32, F16 and Q8_0."""
import struct

import numpy as np

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of the plain types of values
STRING, ARRAY = 8, 9
F32, F16, Q8_0 = 0, 1, 8


class Reader:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        """Strings and arrays of them are kept, numbers are stepped over; what they say is not needed here."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, n = self.take("I"), self.take("Q")
            if inner == STRING:
                return [self.text() for _ in range(n)]
            self.at += n * SIZES[inner]
        else:
            self.at += SIZES[kind]
        return None


def widen(kind, raw, shape):
    if kind == F32:
        return np.frombuffer(raw, np.float32).reshape(shape).copy()
    if kind == F16:
        return np.frombuffer(raw, np.float16).reshape(shape).astype(np.float32)
    blocks = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("values", "i1", 32)]))
    return (blocks["scale"].astype(np.float32)[:, None] * blocks["values"]).reshape(shape)


def n_bytes(kind, n):
    if kind not in (F32, F16, Q8_0):
        raise ValueError(f"tensors of type {kind} are not of pocket's kind")
    return n * 4 if kind == F32 else n * 2 if kind == F16 else n // 32 * 34


def read(path):
    """({name: float32 array}, {key: string or list of strings})"""
    r = Reader(path)
    if r.take("4s") != b"GGUF" or r.take("I") != 3:
        raise ValueError(f"{path}: not a GGUF file of version 3")
    n_tensor, n_key = r.take("QQ")
    keys = {}
    for _ in range(n_key):
        name = r.text()
        keys[name] = r.value(r.take("I"))
    infos = []
    for _ in range(n_tensor):
        name, n_dim = r.text(), r.take("I")
        shape = [r.take("Q") for _ in range(n_dim)][::-1]
        infos.append((name, shape, r.take("I"), r.take("Q")))
    begin = (r.at + 31) // 32 * 32
    out = {}
    for name, shape, kind, offset in infos:
        at = begin + offset
        out[name] = widen(kind, r.data[at:at + n_bytes(kind, int(np.prod(shape)))], shape)
    return out, keys
