#!/usr/bin/env python3
"""Makes matrices as MLX quantises them, and the values that it gives back for them, for the unit tests:

    python3 tools/make_mlx_vectors.py tests/data/quantised/mlx.safetensors

"FORM.weight", "FORM.scales" and "FORM.biases" are parts of a matrix, "want.FORM" its values; FORM has bits, the size of groups and
the type of scales in its name, and "experts" are three matrices in one tensor. Needs mlx (its build for processors will do).
"""
import sys

import mlx.core as mx

TYPES = {"bfloat16": mx.bfloat16, "float16": mx.float16, "float32": mx.float32}


def main():
    mx.random.seed(7)
    out = {}
    for bits, group, scales in ((4, 32, "float16"), (4, 64, "bfloat16"), (4, 128, "float32"),
                                (8, 32, "bfloat16"), (8, 64, "float16"), (8, 128, "float32")):
        for name, shape in (("matrix", (5, 256)), ("experts", (3, 4, 128))):
            form = f"{name}-{bits}-{group}-{scales}"
            w = (0.02 * mx.random.normal(shape)).astype(TYPES[scales])
            q, s, b = mx.quantize(w, group_size=group, bits=bits)
            out[f"{form}.weight"], out[f"{form}.scales"], out[f"{form}.biases"] = q, s, b
            wide = [t.astype(mx.float32) for t in (s, b)]
            out[f"want.{form}"] = mx.dequantize(q, *wide, group_size=group, bits=bits)
    mx.save_safetensors(sys.argv[1], out)


if __name__ == "__main__":
    main()
