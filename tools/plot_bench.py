#!/usr/bin/env python3
"""Plots of what `dgemma bench --json` measured, as SVG: step time over threads, and over context.

    plot_bench.py [-o FOLDER] [NAME=]FILE.json ...

Writes step_threads.svg and step_context.svg into the folder (the present one), each with a line for every file,
called NAME or as the model in it is; bars reach from quartile to quartile. A plot that has fewer than two points is left
out. Python's own library is all that is needed."""

import argparse
import json
import math
import os
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 48, 60
COLOURS = ["#1f6fb2", "#d1682a", "#2f8f4e", "#8c4ba0", "#a8862c", "#5a6672"]


def fail(text):
    sys.exit("plot_bench.py: " + text)


def read(argument):
    """The name of a line, and the steps of its file."""
    name, equals, path = argument.partition("=")
    if not equals:
        name, path = "", argument
    try:
        with open(path, encoding="utf-8") as f:
            results = json.load(f)["results"]
        steps = [r for r in results if r["kind"] == "step" and "name" not in r]
        for r in steps:
            r["threads"], r["context"], r["batch"], r["median"], r["lower"], r["upper"]
        machine = next((r for r in results if r["kind"] == "machine"), {"model": path})
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{path}: not what dgemma bench --json prints: {error!r}")
    return name or os.path.basename(machine["model"]), steps


def over(steps, what, others):
    """Points (value, lower, median, upper) along one quantity: the longest line with the others fixed."""
    lines = []
    for key in sorted({tuple(r[o] for o in others) for r in steps}, reverse=True):
        points = {r[what]: r for r in steps if tuple(r[o] for o in others) == key}
        lines.append([(v, points[v]["lower"], points[v]["median"], points[v]["upper"]) for v in sorted(points)])
    return max(lines, key=len, default=[])


def nice_step(most):
    """A round distance that divides [0, most] into four to ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / 5))
    return next(power * f for f in (1, 2, 5, 10) if most / (power * f) <= 8)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def thousands(value):
    return f"{value:,}"


class Plot:
    def __init__(self, title, x_label, lines):
        self.title, self.x_label, self.lines = title, x_label, lines
        most = max(p[3] for _, points in lines for p in points)
        self.unit, self.scale = ("s", 1.0) if most >= 1 else ("ms", 1e3)
        self.step = nice_step(most * self.scale)
        self.top = self.step * math.ceil(1.06 * most * self.scale / self.step)
        values = sorted({p[0] for _, points in lines for p in points})
        self.values = values
        # Doublings are equally far apart; zero has its place left of the first.
        self.places = [math.log2(v) if v > 0 else math.log2(max(values[1], 2)) - 1 for v in values]

    def x(self, value):
        place = self.places[self.values.index(value)]
        low, high = min(self.places), max(self.places)
        part = (place - low) / (high - low) if high > low else 0.5
        return LEFT + 20 + part * (WIDTH - LEFT - RIGHT - 40)

    def y(self, seconds):
        return HEIGHT - BOTTOM - seconds * self.scale / self.top * (HEIGHT - TOP - BOTTOM)

    def axes(self):
        out = []
        for i in range(round(self.top / self.step) + 1):
            value = i * self.step
            y = self.y(value / self.scale)
            out.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            out.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{number(value)}</text>')
        last = -1e9
        for value in self.values:
            x = self.x(value)
            if x - last < 44:
                continue
            last = x
            out.append(f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}">{thousands(value)}</text>')
        out.append(f'<text class="middle" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 16}">{escape(self.x_label)}</text>')
        out.append(f'<text x="{LEFT - 60}" y="{TOP - 10}">{self.unit} a step</text>')
        return out

    def series(self, index, name, points):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{self.x(p[0]):.1f},{self.y(p[2]):.1f}" for p in points)
        out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
        for value, lower, median, upper in points:
            x = self.x(value)
            out.append(f'<line x1="{x:.1f}" y1="{self.y(lower):.1f}" x2="{x:.1f}" y2="{self.y(upper):.1f}" '
                       f'stroke="{colour}" stroke-width="5" stroke-opacity="0.35"/>')
            out.append(f'<circle cx="{x:.1f}" cy="{self.y(median):.1f}" r="4" fill="{colour}">'
                       f"<title>{escape(name)}, {thousands(value)}: {number(median * self.scale)} {self.unit}</title></circle>")
            out.append(f'<text class="middle small" x="{x:.1f}" y="{self.y(upper) - 9:.1f}">{number(median * self.scale)}</text>')
        y = HEIGHT - BOTTOM - 6 - 18 * (len(self.lines) - 1 - index)
        out.append(f'<rect x="{LEFT + 14}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + 32}" y="{y - 3}">{escape(name)}</text>')
        return out

    def svg(self):
        body = [f'<text class="title" x="{LEFT - 60}" y="22">{escape(self.title)}</text>', *self.axes()]
        for i, (name, points) in enumerate(self.lines):
            body += self.series(i, name, points)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">',
            "<style>text{font:13px sans-serif;fill:#333}.title{font-weight:bold;font-size:15px}.end{text-anchor:end}"
            ".middle{text-anchor:middle}.small{font-size:11px}.grid{stroke:#ddd}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            *body, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER", help="where the plots go")
    parser.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="what dgemma bench --json printed")
    arguments = parser.parse_args()
    files = [read(f) for f in arguments.files]
    plots = [("step_threads", "Denoise step over threads", "threads", "threads", ("context", "batch")),
             ("step_context", "Denoise step over context", "tokens of context", "context", ("threads", "batch"))]
    for file, title, label, what, others in plots:
        lines = [(name, over(steps, what, others)) for name, steps in files]
        lines = [(name, points) for name, points in lines if len(points) > 1]
        if not lines:
            print(f"{file}.svg: left out, nothing was measured at two places", file=sys.stderr)
            continue
        path = os.path.join(arguments.output, file + ".svg")
        try:
            with open(path, "w", encoding="utf-8") as f:
                f.write(Plot(title, label, lines).svg())
        except OSError as error:
            fail(f"{path}: {error.strerror}")
        print(path)


if __name__ == "__main__":
    main()
