"""Pictures with known content, and questions about them.

draw() paints coloured shapes, a number or nothing, at a size the image processor leaves as it is
(patches of 4 pixels pooled by 3, 70 soft tokens); question_answer() asks about what was painted.
Everything follows from the random.Random that is passed in. One scene in ten, chosen by a hash of
its content, and two phrasings of each question belong to the evaluation and are never trained on.

    python pictures.py sheet.png     # 64 of them with question and answer, to look at
"""

import hashlib
import math
import random

import numpy as np
from PIL import Image, ImageDraw

PATCH, POOL, MAX_SOFT = 4, 3, 70
UNIT = PATCH * POOL

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS = {
    "red": (214, 28, 36),
    "green": (32, 150, 52),
    "blue": (32, 72, 216),
    "yellow": (246, 222, 40),
    "orange": (250, 136, 16),
    "purple": (138, 40, 176),
    "black": (18, 18, 18),
    "white": (248, 248, 248),
}
BACKGROUNDS = (
    ("white", (250, 250, 250)),
    ("black", (16, 16, 16)),
    ("grey", (196, 196, 196)),
    ("grey", (128, 128, 128)),
    ("beige", (232, 214, 176)),
)
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def target_size(width, height):
    """The size at which the engine encodes a picture (dg_image_target_size)."""
    factor = math.sqrt(MAX_SOFT * UNIT * UNIT / (width * height))
    return (math.floor(factor * width / UNIT) * UNIT, math.floor(factor * height / UNIT) * UNIT)


# Width, height: fixed points of target_size, the square most often.
SIZES = ((96, 96),) * 6 + ((120, 72), (72, 120), (108, 84), (84, 108), (120, 84), (84, 120), (132, 72), (72, 132))
assert all(target_size(*size) == size for size in SIZES)


# --- what is in a scene ---------------------------------------------------------------------------


def contrast(a, b):
    """Distance of two colours, green weighing most as it does for the eye."""
    return math.sqrt(sum(w * (x - y) ** 2 for w, x, y in zip((2, 4, 3), a, b)) / 9)


# For each colour the backgrounds on which it is told apart at a glance.
BEHIND = {c: [b for b in BACKGROUNDS if contrast(rgb, b[1]) > 80] for c, rgb in COLORS.items()}


def scene_key(scene):
    """What makes two scenes the same question: content, not places, jitter or background."""
    if scene["kind"] == "number":
        return f"number {scene['number']} {scene['color']}"
    if scene["kind"] == "empty":
        return f"empty {scene['background']} {scene['size']}"
    return "shapes " + " ".join(f"{g['count']} {g['color']} {g['shape']}" for g in scene["groups"])


def split_of(scene):
    """'eval' for one scene in ten, 'train' for the others, the same in every run."""
    digest = hashlib.sha256(scene_key(scene).encode()).digest()
    return "eval" if digest[0] % 10 == 0 else "train"


def group_order(group):
    return SHAPES.index(group["shape"]), list(COLORS).index(group["color"])


def random_scene(rng):
    """Content alone. `ground` is the exact background, whose name is `background`."""
    width, height = rng.choice(SIZES)
    scene = {"groups": [], "number": None, "color": None, "size": (width, height)}
    draw_of = rng.random()
    if draw_of < 0.05:
        scene["kind"] = "empty"
        name, rgb = rng.choice(BACKGROUNDS + tuple(COLORS.items()))
    elif draw_of < 0.35:
        scene["kind"] = "number"
        scene["number"] = str(rng.randrange(10) if rng.random() < 0.4 else rng.randrange(10, 100))
        scene["color"] = rng.choice(tuple(COLORS))
        name, rgb = rng.choice(BEHIND[scene["color"]])
    else:
        scene["kind"] = "shapes"
        kinds = [(c, s) for c in COLORS for s in SHAPES]
        if rng.random() < 0.45:
            picked, most = [rng.choice(kinds)], 6
        else:
            picked, most = rng.sample(kinds, 2), 4
            while not any(b in BEHIND[picked[1][0]] for b in BEHIND[picked[0][0]]):
                picked = rng.sample(kinds, 2)
        groups = [{"count": rng.randint(1, most), "color": c, "shape": s} for c, s in picked]
        scene["groups"] = sorted(groups, key=group_order)
        name, rgb = rng.choice([b for b in BACKGROUNDS if all(b in BEHIND[c] for c, _ in picked)])
    scene["background"], scene["ground"] = name, rgb
    return scene


# --- painting -------------------------------------------------------------------------------------


def jitter(rng, rgb, by):
    shift = rng.randint(-by, by)
    return tuple(min(255, max(0, v + shift + rng.randint(-by // 2, by // 2))) for v in rgb)


def ring(n, radius, turn):
    step = 2 * math.pi / n
    return [(radius[i % len(radius)] * math.sin(turn + i * step),
             -radius[i % len(radius)] * math.cos(turn + i * step)) for i in range(n)]


def outline(rng, shape, size):
    """The polygon of a shape around the origin, within a square of `size`."""
    r, lean = size / 2, math.radians(rng.uniform(-12, 12))
    if shape == "square":
        return ring(4, (r * 1.22,), math.pi / 4 + lean * 0.6)
    if shape == "triangle":
        return [(x, y + r * 0.15) for x, y in ring(3, (r * 1.12,), lean)]
    if shape == "star":
        return ring(10, (r * 1.08, r * 0.42), lean)
    a = r * rng.uniform(0.26, 0.34)  # half the width of a cross's arm
    arm = [(-a, -r), (a, -r), (a, -a)]
    cos, sin = math.cos(lean), math.sin(lean)
    points = []
    for _ in range(4):
        points += [(x * cos - y * sin, x * sin + y * cos) for x, y in arm]
        arm = [(-y, x) for x, y in arm]
    return points


def places(rng, n, width, height):
    """n free squares (x, y, side), one in each of n cells of a random grid: they cannot overlap."""
    grids = [(c, r) for c in range(1, 6) for r in range(1, 6)
             if c * r >= n and min(width / c, height / r) >= 23 and c * r <= 2 * n + 4]
    cols, rows = rng.choice(grids)
    cw, ch = width / cols, height / rows
    most = min(cw, ch) - 3
    least = max(17.5, min(0.5 * most, 34))
    usual = rng.uniform(least, min(most, 52))
    for cell in rng.sample(range(cols * rows), n):
        side = min(most, max(least, usual * rng.uniform(0.9, 1.12)))
        x = cell % cols * cw + rng.uniform(1.5, cw - side - 1.5) if cw - side > 3 else cell % cols * cw + 1.5
        y = cell // cols * ch + rng.uniform(1.5, ch - side - 1.5) if ch - side > 3 else cell // cols * ch + 1.5
        yield x, y, side


# What training asks of every soft token: nothing here, or a part or the middle of one of these.
N_CELL = 1 + 2 * (len(SHAPES) * len(COLORS) + 10)


def mark(scene, what, x, y, width, height):
    """Notes what covers a box of pixels: what = shape * 8 + colour, or 40 + digit."""
    cells = scene["cells"]
    rows, cols = cells.shape
    for r in range(rows):
        for c in range(cols):
            if abs((c + 0.5) * UNIT - x - width / 2) <= width / 2 and abs((r + 0.5) * UNIT - y - height / 2) <= height / 2:
                cells[r, c] = 1 + 2 * what
    middle = min(rows - 1, int((y + height / 2) / UNIT)), min(cols - 1, int((x + width / 2) / UNIT))
    cells[middle] = 2 + 2 * what


def paint_shapes(rng, pen, scene, sx, sy):
    kinds = [(g["shape"], g["color"], jitter(rng, COLORS[g["color"]], 10)) for g in scene["groups"] for _ in range(g["count"])]
    for (shape, color, rgb), (x, y, side) in zip(kinds, places(rng, len(kinds), *scene["size"])):
        mark(scene, SHAPES.index(shape) * len(COLORS) + list(COLORS).index(color), x, y, side, side)
        if shape == "circle":
            pen.ellipse((x * sx, y * sy, (x + side) * sx, (y + side) * sy), fill=rgb)
            continue
        cx, cy = x + side / 2, y + side / 2
        # A star or cross fills less of its square than the others and needs all of it.
        size = side * (0.88 if shape in ("square", "triangle") else 0.96)
        pen.polygon([((cx + px) * sx, (cy + py) * sy) for px, py in outline(rng, shape, size)], fill=rgb)


def arc(cx, cy, rx, ry, start, end):
    """Points of an ellipse, degrees clockwise from the right, as seen on a screen."""
    n = max(4, abs(end - start) // 18)
    at = [math.radians(start + (end - start) * i / n) for i in range(n + 1)]
    return [(cx + rx * math.cos(a), cy + ry * math.sin(a)) for a in at]


# Strokes in a box 0.6 wide and 1 high; several ways to write a digit where people have them.
GLYPHS = {
    "0": [[arc(0.3, 0.5, 0.3, 0.5, 0, 360)]],
    "1": [[[(0.1, 0.24), (0.36, 0), (0.36, 1)]],
          [[(0.1, 0.24), (0.34, 0), (0.34, 1)], [(0.1, 1), (0.58, 1)]]],
    "2": [[arc(0.3, 0.29, 0.29, 0.29, 190, 375) + [(0.02, 1), (0.6, 1)]]],
    "3": [[arc(0.28, 0.26, 0.27, 0.26, 205, 450), arc(0.28, 0.75, 0.31, 0.25, 270, 510)]],
    "4": [[[(0.44, 1), (0.44, 0), (0, 0.68), (0.62, 0.68)]]],
    "5": [[[(0.55, 0), (0.09, 0), (0.05, 0.46)] + arc(0.27, 0.68, 0.32, 0.32, 230, 500)]],
    "6": [[arc(0.46, 0.62, 0.46, 0.62, 275, 190) + arc(0.3, 0.7, 0.3, 0.3, 180, -180)]],
    "7": [[[(0, 0), (0.6, 0), (0.2, 1)]],
          [[(0, 0), (0.6, 0), (0.2, 1)], [(0.16, 0.5), (0.56, 0.5)]]],
    "8": [[arc(0.3, 0.25, 0.25, 0.25, 0, 360), arc(0.3, 0.74, 0.3, 0.26, 0, 360)]],
    "9": [[arc(0.3, 0.3, 0.3, 0.3, 0, 360) + arc(0.14, 0.38, 0.46, 0.62, 0, 85)]],
}


def paint_number(rng, pen, scene, sx, sy):
    number, (width, height) = scene["number"], scene["size"]
    n = len(number)
    high = rng.uniform(0.5, 0.82) * height
    stretch = rng.uniform(0.85, 1.12)
    gap = rng.uniform(0.26, 0.36)
    across = stretch * (0.6 * n + gap * (n - 1))  # of the height
    slant = rng.uniform(-0.16, 0.2)
    thick = rng.uniform(0.09, 0.17)
    high = min(high, (width - 6) / (across + abs(slant) + thick))
    thick *= high
    room_x = width - high * (across + abs(slant)) - thick
    room_y = height - high - thick
    left = thick / 2 + rng.uniform(0.1, 0.9) * room_x + max(0, -slant) * high
    top = thick / 2 + rng.uniform(0.1, 0.9) * room_y
    rgb = jitter(rng, COLORS[scene["color"]], 10)
    pen_x, pen_y = thick * sx / 2, thick * sy / 2
    for digit in number:
        mark(scene, len(SHAPES) * len(COLORS) + int(digit), left, top, 0.6 * stretch * high, high)
        for stroke in rng.choice(GLYPHS[digit]):
            points = [((left + (x * stretch + slant * (1 - y)) * high) * sx, (top + y * high) * sy)
                      for x, y in stroke]
            pen.line(points, fill=rgb, width=max(1, round(pen_x + pen_y)), joint="curve")
            for x, y in (points[0], points[-1]):
                pen.ellipse((x - pen_x, y - pen_y, x + pen_x, y + pen_y), fill=rgb)
        left += stretch * (0.6 + gap) * high


def raw_size(rng, width, height):
    """Mostly the target itself; sometimes a size from which the engine would resize to it."""
    if rng.random() < 0.8:
        return width, height
    scale = rng.uniform(0.75, 2.2)
    raw = round(width * scale * rng.uniform(0.97, 1.03)), round(height * scale)
    return raw if target_size(*raw) == (width, height) else (width, height)


def paint(rng, scene):
    width, height = scene["size"]
    scene["cells"] = np.zeros((height // UNIT, width // UNIT), np.int16)
    w, h = raw_size(rng, width, height)
    fine = 3 if w * h < 160 * 160 else 2  # a large one is smoothed by its resize as well
    image = Image.new("RGB", (w * fine, h * fine), jitter(rng, scene["ground"], 6))
    pen = ImageDraw.Draw(image)
    if scene["kind"] == "shapes":
        paint_shapes(rng, pen, scene, w * fine / width, h * fine / height)
    elif scene["kind"] == "number":
        paint_number(rng, pen, scene, w * fine / width, h * fine / height)
    image = image.reduce(fine)
    if (w, h) != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    rgb = np.array(image)
    if rng.random() < 0.3:
        by = rng.randint(2, 8)
        noise = np.random.default_rng(rng.getrandbits(63)).integers(-by, by, rgb.shape, np.int16, True)
        rgb = np.clip(rgb + noise, 0, 255).astype(np.uint8)
    return rgb


def draw(rng, split=None):
    """A picture (uint8 [height, width, 3]) and its scene; with `split` only scenes of that part."""
    scene = random_scene(rng)
    while split and split_of(scene) != split:
        scene = random_scene(rng)
    return paint(rng, scene), scene


# --- questions ------------------------------------------------------------------------------------

HELD_OUT = 2  # the last phrasings of each list are asked in the evaluation only

ASK = {
    "describe": (
        "What is in the picture?", "Describe the picture.", "What do you see?", "What does the picture show?",
        "Describe this image.", "What is in this image?", "What can you see in the picture?",
        "Tell me what is in the picture.", "What is shown here?", "What is this?", "Say what you see.",
        "Please describe the picture.", "What does this image show?", "Tell me what you see.",
    ),
    "count": (
        "How many {} are there?", "How many {} do you see?", "Count the {}.", "How many {} are in the picture?",
        "How many {} does the picture show?", "What is the number of {}?", "How many {} can you see?",
        "How many {} are shown?", "Please count the {}.", "Tell me how many {} there are.",
        "How many {} are in this image?", "Count the {} in the picture.", "How many {} can you count?",
        "How many {} are there in the picture?",
    ),
    "color": (
        "What colour {is} the {}?", "Which colour {is} the {}?", "What color {is} the {}?",
        "What is the colour of the {}?", "Tell me the colour of the {}.", "Which colour {has} the {}?",
        "What colour {is} the {} in the picture?", "What is the color of the {}?", "Name the colour of the {}.",
        "What colour {does} the {} have?", "In which colour {is} the {} drawn?", "Say which colour the {} {has}.",
        "Which color {is} the {}?", "Please tell me the colour of the {}.",
    ),
    "number": (
        "What number is in the picture?", "Which number do you see?", "What number is this?", "Read the number.",
        "Which number is shown?", "What does the picture say?", "Tell me the number in the picture.",
        "What number can you see?", "Which number is in this image?", "Read what is written.",
        "What number does the picture show?", "Please read the number.", "What number do you see?",
        "Tell me which number is shown.",
    ),
    "digit": (
        "Which digit do you see?", "What digit is in the picture?", "What digit is this?", "Read the digit.",
        "Which digit is shown?", "Tell me the digit in the picture.", "What digit can you see?",
        "Which digit is in this image?", "What digit does the picture show?", "Please read the digit.",
        "Which digit is it?", "Name the digit.", "What digit do you see?", "Tell me which digit is shown.",
    ),
}


def plural(shape):
    return shape + ("es" if shape.endswith("s") else "s")


def thing(count, name):
    return name if count == 1 else plural(name)


def description(scene):
    if scene["kind"] == "empty":
        return f"An empty {scene['background']} picture."
    if scene["kind"] == "number":
        return f"The number {scene['number']} in {scene['color']}."
    parts = [f"{WORDS[g['count']]} {g['color']} {thing(g['count'], g['shape'])}" for g in scene["groups"]]
    return " and ".join(parts).capitalize() + "."


def ask(rng, topic, split, name="", count=1):
    """One phrasing; the verb agrees with `count`."""
    phrasings = ASK[topic] if split == "eval" else ASK[topic][:-HELD_OUT]
    one = count == 1
    text = rng.choice(phrasings)
    return text.format(name, **{"is": "is" if one else "are", "has": "has" if one else "have",
                                "does": "does" if one else "do"})


def ask_count(rng, scene, split):
    groups = scene["groups"]
    draw_of = rng.random()
    if groups and draw_of < 0.7:  # of a shape that is there
        shape = rng.choice(groups)["shape"]
    else:
        shape = rng.choice(SHAPES)
    same = [g for g in groups if g["shape"] == shape]
    color = rng.choice(same)["color"] + " " if same and rng.random() < 0.3 else ""
    n = sum(g["count"] for g in same if not color or g["color"] == color.strip())
    if groups and draw_of > 0.9:
        shape, color, n = "shape", "", sum(g["count"] for g in groups)
    verb = "is" if n == 1 else "are"
    return (ask(rng, "count", split, color + plural(shape)),
            f"There {verb} {WORDS[n]} {color}{thing(n, shape)}.")


def ask_color(rng, scene, split):
    """None where no shape has one colour only."""
    if scene["kind"] == "number":
        return ask(rng, "color", split, "number"), f"The number is {scene['color']}."
    if scene["kind"] == "empty" or rng.random() < 0.1:
        return ask(rng, "color", split, "background"), f"The background is {scene['background']}."
    shapes = [g["shape"] for g in scene["groups"]]
    clear = [g for g in scene["groups"] if shapes.count(g["shape"]) == 1]
    if not clear:
        return None
    g = rng.choice(clear)
    name = thing(g["count"], g["shape"])
    verb = "is" if g["count"] == 1 else "are"
    return ask(rng, "color", split, name, g["count"]), f"The {name} {verb} {g['color']}."


def question_answer(rng, scene, split):
    """A question about the scene and its one right answer. split: 'train' or 'eval'."""
    draw_of = rng.random()
    if scene["kind"] == "number" and draw_of < 0.6:
        topic = "digit" if len(scene["number"]) == 1 and rng.random() < 0.5 else "number"
        return ask(rng, topic, split), f"The number is {scene['number']}."
    if 0.4 < draw_of < 0.75 and scene["kind"] != "number":
        return ask_count(rng, scene, split)
    if draw_of >= 0.75:
        asked = ask_color(rng, scene, split)
        if asked:
            return asked
    return ask(rng, "describe", split), description(scene)


def contact_sheet(path, seed=1):
    rng = random.Random(seed)
    sheet = Image.new("RGB", (8 * 190, 8 * 172), (255, 255, 255))
    pen = ImageDraw.Draw(sheet)
    for i in range(64):
        rgb, scene = draw(rng)
        x, y = i % 8 * 190, i // 8 * 172
        pen.rectangle((x, y, x + rgb.shape[1] + 1, y + rgb.shape[0] + 1), outline=(255, 0, 255))
        sheet.paste(Image.fromarray(rgb), (x + 1, y + 1))
        question, answer = question_answer(rng, scene, "eval")
        pen.text((x, y + 136), question[:31] + "\n" + answer[:31] + "\n" + answer[31:], fill=(0, 0, 0))
    sheet.save(path)


if __name__ == "__main__":
    import sys

    contact_sheet(sys.argv[1])
