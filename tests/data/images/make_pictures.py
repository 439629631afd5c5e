#!/usr/bin/env python3
"""Writes decode.safetensors: small pictures of every kind, and the pixels that PIL makes of them.

    python3 make_pictures.py OUT_DIR

Needs pillow, numpy, safetensors. For each picture NAME: `NAME.file`, its bytes, and `NAME.rgb`, what
ImageOps.exif_transpose(Image.open(...)).convert("RGB") gives, which is transformers' load_image.
"""
import io
import os
import struct
import sys
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save_file

W, H = 13, 9
rng = np.random.default_rng(7)
files = {}


def noise(n):
    return rng.integers(0, 256, n, dtype=np.uint8).tobytes()


def picture():
    y, x = np.mgrid[0:H, 0:W]
    base = np.stack([127 + 120 * np.sin(x / 3.0), 127 + 120 * np.cos(y / 2.0 + x / 7.0), ((x // 3 + y // 4) % 2) * 190 + 30], -1)
    return Image.fromarray(np.clip(base + rng.integers(-9, 10, base.shape), 0, 255).astype(np.uint8))


def save(name, image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    files[name] = out.getvalue()


def exif(orientation, big=False, kind=3, count=1):
    e = ">" if big else "<"
    value = struct.pack(e + "HH", orientation, 0) if kind == 3 else struct.pack(e + "I", orientation)
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(e + "IH", 8, 2)
    return head + struct.pack(e + "HHIHH", 0x100, 3, 1, 1, 0) + struct.pack(e + "HHI", 0x112, kind, count) + value + bytes(4)


# ---- PNG, chunk by chunk ----

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(depth, colour, before=b"", after=b"", interlaced=False, rows=None):
    if rows is None:
        rows, bits = b"", depth * CHANNELS[colour]
        for x, y, dx, dy in PASSES if interlaced else [(0, 0, 1, 1)]:
            w, h = -(-(W - x) // dx), -(-(H - y) // dy)
            rows += b"".join(b"\0" + noise((w * bits + 7) // 8) for _ in range(h if w > 0 else 0))
    head = struct.pack(">IIBBBBB", W, H, depth, colour, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + chunk(b"IDAT", zlib.compress(rows)) + after + chunk(b"IEND", b"")


def all_png():
    transparent = {0: struct.pack(">H", 1), 2: struct.pack(">HHH", 1, 2, 3), 3: noise(2)}
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            before = chunk(b"PLTE", noise(3 * min(1 << depth, 200))) if colour == 3 else b""
            files[f"png_{colour}_{depth}"] = png(depth, colour, before)
            if colour in transparent:
                before += chunk(b"tRNS", transparent[colour])
            files[f"png_{colour}_{depth}_interlaced"] = png(depth, colour, before, interlaced=True)
    dark = (np.arange(W * H) * 5).astype(">u2").reshape(H, W)
    files["png_dark16"] = png(16, 0, rows=b"".join(b"\0" + row.tobytes() for row in dark))
    files["png_gamma"] = png(8, 2, chunk(b"gAMA", struct.pack(">I", 100000)))
    files["png_exif"] = png(8, 2, chunk(b"eXIf", exif(6, True)))
    files["png_exif_behind"] = png(8, 2, after=chunk(b"eXIf", exif(8)))
    raw = b"\nexif\n%8d\n%s\n" % (len(exif(5)) + 6, (b"Exif\0\0" + exif(5)).hex().encode())
    files["png_raw_profile"] = png(8, 2, chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw)))
    xmp = b'<x tiff:Orientation="3"/>'
    files["png_xmp"] = png(8, 2, chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp))
    files["png_xmp_packed"] = png(8, 2, chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp)))
    files["png_nothing_behind"] = png(8, 2)[:-12]


# ---- GIF, with codes that are never compressed ----


def gif_pixels(index, bits=8):
    value = n = 0
    out = bytearray()
    codes = []
    for i, v in enumerate(index):
        codes += ([1 << bits] if i % ((1 << bits) - 2) == 0 else []) + [int(v)]
    for code in codes + [(1 << bits) + 1]:
        value |= code << n
        n += bits + 1
        while n >= 8:
            out.append(value & 255)
            value, n = value >> 8, n - 8
    out.append(value & 255)
    blocks = b"".join(bytes([len(out[i : i + 255])]) + out[i : i + 255] for i in range(0, len(out), 255))
    return bytes([bits]) + blocks + b"\0"


def gif(screen, frame, colours=None, own=None, transparent=None, interlaced=False, n_index=8):
    size = lambda p: (len(p) // 3 - 1).bit_length() - 1
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80 | size(colours) if colours else 0, 3, 0) + (colours or b"")
    if transparent is not None:
        out += b"!\xf9\x04\1\0\0" + bytes([transparent]) + b"\0"
    out += b"," + struct.pack("<HHHHB", *frame, (0x80 | size(own) if own else 0) | interlaced << 6) + (own or b"")
    return out + gif_pixels(rng.integers(0, n_index, frame[2] * frame[3])) + b";"


def all_gif():
    eight, sixteen, same = noise(24), noise(48), bytes(i // 3 for i in range(24))
    files["gif_offset"] = gif((14, 11), (3, 1, 10, 9), eight)
    files["gif_transparent"] = gif((14, 11), (3, 1, 10, 9), eight, transparent=6)
    files["gif_own_colours"] = gif((14, 11), (3, 1, 10, 9), eight, sixteen, n_index=16)
    files["gif_grows"] = gif((5, 5), (3, 1, 10, 9), eight, transparent=2)
    files["gif_past_colours"] = gif((10, 9), (0, 0, 10, 9), eight, n_index=256)
    files["gif_no_colours"] = gif((10, 9), (0, 0, 10, 9), n_index=256)
    files["gif_same_grey"] = gif((10, 9), (0, 0, 10, 9), same, n_index=256)
    files["gif_interlaced"] = gif((10, 9), (0, 0, 10, 9), eight, interlaced=True)
    files["gif_no_end"] = gif((10, 9), (0, 0, 10, 9), eight)[:-1]
    frames = [picture().quantize(8) for _ in range(3)]
    save("gif_animated", frames[0], "GIF", save_all=True, append_images=frames[1:])


def all_jpeg_and_webp():
    rgb, alpha = picture(), Image.fromarray(rng.integers(0, 256, (H, W), dtype=np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    for name, image, options in [
        ("420", rgb, {"subsampling": 2}), ("444", rgb, {"subsampling": 0}), ("progressive", rgb, {"progressive": True}),
        ("grey", rgb.convert("L"), {}), ("xmp", rgb, {"xmp": b"<tiff:Orientation>7</tiff:Orientation>"}),
        ("exif_long", rgb, {"exif": b"Exif\0\0" + exif(6, kind=4)}), ("exif_two", rgb, {"exif": b"Exif\0\0" + exif(6, count=2)}),
        ("exif_byte", rgb, {"exif": b"Exif\0\0" + exif(6, kind=1)}), ("exif_many", rgb, {"exif": b"Exif\0\0" + exif(6, count=99)}),
        ("exif_twice", rgb, {"exif": b"Exif\0\0Exif\0\0" + exif(6)}), ("exif_cut", rgb, {"exif": (b"Exif\0\0" + exif(6))[:-10]}),
    ]:  # fmt: skip
        save("jpeg_" + name, image, "JPEG", quality=80, **options)
    for orientation in range(10):
        save(f"jpeg_exif_{orientation}", rgb, "JPEG", quality=60, exif=b"Exif\0\0" + exif(orientation, orientation % 2 == 0))
    inks = Image.fromarray(rng.integers(0, 256, (H, W, 4), dtype=np.uint8), "CMYK")
    save("jpeg_cmyk", inks, "JPEG")
    f = files["jpeg_cmyk"]
    at = f.index(b"Adobe")
    files["jpeg_ycck"] = f[: at + 11] + b"\2" + f[at + 12 :]
    files["jpeg_cmyk_unmarked"] = f[: at - 4] + f[at - 2 + struct.unpack(">H", f[at - 2 : at])[0] :]
    for name, options in {"lossy": {}, "lossless": {"lossless": True}, "exact": {"lossless": True, "exact": True}}.items():
        save("webp_" + name, rgb, "WEBP", **options)
        save("webp_alpha_" + name, rgba, "WEBP", **options)
    save("webp_exif", rgb, "WEBP", exif=exif(7))
    save("webp_xmp", rgb, "WEBP", xmp=b'<x tiff:Orientation="8"/>')
    hole = Image.new("RGBA", (W, H), (0, 0, 0, 0))
    hole.paste(rgba.crop((2, 2, 8, 6)), (2, 2))
    save("webp_animated", rgb, "WEBP", save_all=True, append_images=[picture()], duration=100)
    save("webp_small_frame", hole, "WEBP", save_all=True, append_images=[rgba], duration=100, lossless=True)


def main():
    warnings.simplefilter("ignore")
    all_png()
    all_gif()
    all_jpeg_and_webp()
    tensors = {}
    for name, data in files.items():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        tensors[name + ".file"] = np.frombuffer(data, np.uint8)
        tensors[name + ".rgb"] = np.ascontiguousarray(np.array(image))
    save_file(tensors, os.path.join(sys.argv[1], "decode.safetensors"))


if __name__ == "__main__":
    main()
