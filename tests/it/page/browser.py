"""Looks at pages in a headless Chromium: `browser.py CHROMIUM GOLDENS KIND=FILE...`; complaints go to stdout, and exit 1.

A golden is a small screenshot, compared by the mean colours of a coarse grid, since fonts and versions differ.
PDREPLAY_BLESS=1 rewrites them.
"""

import os
import re
import struct
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True
from chrome import Chrome  # noqa: E402

RUN = ["verdict", "outcome", "latency", "why", "starved", "modes", "cdf", "sessions", "workers", "transfers", "lag", "errors",
       "events", "facts"]
SECTIONS = {
    "run": RUN, "many": RUN, "none": RUN, "hostile": RUN, "live": RUN,
    "sweep": ["verdict", "maps", "knees", "predicted", "points", "broken", "cells", "facts"],
    "diff": ["verdict", "sides", "figures", "cdf", "splits", "transitions", "sessions", "why", "workers", "outcomes"],
    "replicas": ["verdict", "bands", "replicas"],
}
# Charts that must have drawn, at least.
CHARTS = {
    "run": ["chart-modes", "chart-ttft", "chart-e2e", "chart-sessions", "chart-direct", "chart-workers"],
    "many": ["chart-modes", "chart-ttft", "chart-e2e", "chart-sessions"],
    "none": ["chart-modes", "chart-sessions"], "hostile": ["chart-sessions"], "live": ["chart-lag"],
    "sweep": ["map-1", "chart-predicted"], "diff": ["chart-deltas", "chart-cdf-0", "chart-cdf-1", "chart-split-0"],
    "replicas": ["chart-bands"],
}
COLUMNS, ROWS = 24, 16
# Largest mean distance of a grid from its golden, of 255.
TOLERANCE = 14
MOST_BYTES = 40_000

# Text whose contrast with what is behind it is below 4.5 (3 for large text), and controls and pictures without a name.
ACCESSIBLE = r"""
(() => {
  const found = [];
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (color) => { const [r, g, b] = color.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const seen = new Set();
  // Rows of a table are alike: the first few stand for all.
  for (const element of document.querySelectorAll('body *:not(tr:nth-child(n+4) *)')) {
    const words = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
    if (!words.length || element.closest('.chart, script, noscript') || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), below = behind(element);
    const key = [style.color, below, style.fontSize].join();
    if (seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [light(over(rgba(style.color), below)), light(below)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < least) found.push(`contrast ${ratio.toFixed(2)} of "${words[0].textContent.trim().slice(0, 40)}"`);
  }
  for (const chart of document.querySelectorAll('.chart')) {
    if (chart.getAttribute('role') !== 'img' || (chart.getAttribute('aria-label') || '').length < 20) found.push(`no words for ${chart.parentElement.id}`);
  }
  for (const control of document.querySelectorAll('button, select, input, a, summary')) {
    const label = control.labels && control.labels.length ? control.labels[0].textContent : '';
    if (!(control.textContent + label + (control.getAttribute('aria-label') || '')).trim()) found.push(`no name for ${control.outerHTML.slice(0, 60)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`id ${id} is there twice`);
  if (document.querySelectorAll('h1').length !== 1 || !document.querySelector('main') || !document.documentElement.lang) found.push('no h1, main or lang');
  for (const table of document.querySelectorAll('table')) if (!table.querySelector('th[scope]')) found.push('a table without headings');
  return found;
})()
"""

# Charts that are blank: an SVG of few nodes, a canvas of one colour.
BLANK = r"""
(() => [...document.querySelectorAll('.chart')].filter((chart) => {
  if (chart.dataset.drawn === 'svg') return chart.querySelectorAll('svg path').length < 4;
  const canvas = chart.querySelector('canvas');
  if (!canvas) return true;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data, colors = new Set();
  for (let i = 0; i < data.length && colors.size < 4; i += 16) if (data[i + 3] > 200) colors.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  return colors.size < 2;
}).map((chart) => chart.parentElement.id))()
"""

# Words, or raw values, of the column that is sorted, as they stand.
SORTED = r"""
(() => { const head = document.querySelector('table.sortable th[aria-sort$="ending"]');
  if (!head) return null;
  const rows = [...head.closest('table').tBodies[0].rows];
  return [head.getAttribute('aria-sort'), rows.map((row) => row.cells[head.cellIndex].dataset.v ?? row.cells[head.cellIndex].textContent)]; })()
"""


# Numbers on axes that are not 1, 2 or 5 × a power of ten apart, or on a logarithmic axis not such numbers themselves; axes of
# numbers without a unit, unless they count.
ODD_TICKS = r"""
(() => {
  const round = (n) => { const d = Math.abs(n) / 10 ** Math.floor(Math.log10(Math.abs(n)) + 1e-9); return [1, 2, 5].some((m) => Math.abs(d - m) < 1e-6); };
  const found = [];
  for (const host of document.querySelectorAll('.chart[data-drawn]')) {
    const model = echarts.getInstanceByDom(host).getModel();
    for (const kind of ['xAxis', 'yAxis']) model.eachComponent(kind, (part) => {
      const type = part.get('type'), shown = part.axis.getViewLabels().map((l) => l.tickValue);
      if (type === 'category' || !shown.length) return;
      const labels = part.get('axisLabel.showMaxLabel') === false ? shown.slice(0, -1) : shown;
      const steps = type === 'log' ? labels : labels.slice(1).map((v, i) => v - labels[i]);
      if (!steps.every(round)) found.push(`${host.parentElement.id} ${kind}: ${labels}`);
      if (!/, |sessions/.test(part.get('name'))) found.push(`${host.parentElement.id} ${kind}: no unit in "${part.get('name')}"`);
    });
  }
  return found;
})()
"""


# The first two figures of a map; of each map the chosen figure, its sentence, and what a reader without a screen is told.
FIGURES = ["direct share", "starved sessions"]
SAYS = r"""
(() => [...document.querySelectorAll('#maps figure')].map((map) => [map.querySelector('select').selectedOptions[0].text,
  map.querySelector('.says').textContent, map.querySelector('.chart').getAttribute('aria-label')]))()
"""
SCALES = r"""
(() => [...document.querySelectorAll('#maps .chart')].map((host) => { const [v] = echarts.getInstanceByDom(host).getOption().visualMap;
  return [v.min, v.max, ...v.text]; }))()
"""

# Where the curves end: the slowest request of each, on every scale.
ENDS = r"""
(() => [...document.querySelectorAll('.chart[data-drawn]')].map((host) => echarts.getInstanceByDom(host).getOption().series
  .filter((s) => s.type === 'line' && s.step).map((s) => s.data.length && s.data[s.data.length - 1][0])))()
"""


def quantity(words):
    """`−1,044 s` as seconds, `42.8 ms` too; None for what is no number."""
    found = re.match(r"[^\d+−-]{0,2}([+−-]?[\d.,]+(?:e[+-]?\d+)?)\s*(ms|K|M)?", words)
    return found and float(found[1].replace("−", "-").replace(",", "")) * {"ms": 1e-3, "K": 1e3, "M": 1e6, None: 1}[found[2]]


class Look:
    """One page under examination."""

    def __init__(self, chrome, kind, path):
        self.kind, self.path, self.wrong = kind, path, []
        self.tab = chrome.open(path)

    def need(self, holds, what):
        if not holds:
            self.wrong.append(f"{self.kind}: {what}")

    def all(self):
        self.content()
        self.themes()
        self.widths()
        self.ticks()
        self.paper()
        self.sorting()
        self.filtering()
        self.arrows()
        complaints = self.tab.complaints()
        self.need(not complaints, f"the page complains: {complaints}")
        self.policy()
        return self.wrong

    def content(self):
        found = self.tab.evaluate("[...document.querySelectorAll('main > section')].map((s) => s.id)")
        self.need(found == SECTIONS[self.kind], f"sections are {found}")
        links = self.tab.evaluate("[...document.querySelectorAll('nav a')].filter((a) => !document.querySelector(a.hash)).length")
        self.need(links == 0, f"{links} links of the navigation lead nowhere")
        for chart in CHARTS[self.kind]:
            drawn = self.tab.evaluate(f"!!document.querySelector('#{chart} .chart[data-drawn]')")
            self.need(drawn, f"no chart {chart}")
        blank = self.tab.evaluate(BLANK)
        self.need(not blank, f"blank charts: {blank}")
        if self.kind == "hostile":
            self.need(self.tab.evaluate("window.foreign === undefined && !document.querySelector('img, iframe, b')"), "an id became markup")
            turned = self.tab.evaluate(r"/[\u200b\ufeff\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)")
            self.need(not turned, "an id turns the direction of writing")

    def themes(self):
        background = lambda: self.tab.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
        for dark in [False, True]:
            self.tab.media(dark=dark)
            self.tab.settle()
            found = self.tab.evaluate(ACCESSIBLE)
            self.need(not found, f"{'dark' if dark else 'light'}: {found[:6]}")
        self.tab.media()
        self.tab.settle()
        seen = [background()]
        self.tab.evaluate("document.getElementById('theme').focus()")
        for _ in range(2):
            self.tab.key("Enter", "\r")
            seen.append(background())
        name = self.tab.evaluate("document.getElementById('theme').textContent")
        self.need(seen[0] == seen[1] != seen[2] and name == "Theme: dark", f"the theme does not follow its button: {seen} {name}")
        blank = self.tab.evaluate(BLANK)
        self.need(not blank, f"blank charts in the dark: {blank}")
        self.tab.key("Enter", "\r")
        self.need(background() == seen[0], "the theme does not go back")

    def widths(self):
        for width in [390, 1280]:
            self.tab.size(width, 900)
            self.tab.settle()
            wide = self.tab.evaluate("document.documentElement.scrollWidth")
            self.need(wide <= width, f"at {width} px the page is {wide} px wide")

    def ticks(self):
        """Axes have round numbers, on each scale that can be chosen."""
        choices, ends = "[...document.querySelectorAll('.choose select')]", []
        for at in ["0", "1"]:
            self.tab.evaluate(f"{choices}.forEach((s) => {{ s.value = '{at}'; s.dispatchEvent(new Event('change')); }})")
            odd = self.tab.evaluate(ODD_TICKS)
            self.need(not odd, f"odd axes: {odd}")
            if self.kind == "sweep":
                said = self.tab.evaluate(SAYS)
                self.need(said[0][0] == FIGURES[int(at)] and all(s == said[0][0] for s, _, _ in said), f"figure {at}: {said}")
                self.need(all(words.startswith(name) and label.endswith(words) for name, words, label in said), f"words of {said}")
                scales = self.tab.evaluate(SCALES)
                self.need(len(scales) > 1 and all(scale == scales[0] for scale in scales), f"maps side by side have the scales {scales}")
            ends.append(self.tab.evaluate(ENDS))
        self.need(ends[0] == ends[1], f"curves end at {ends[0]}, their tails at {ends[1]}")
        self.tab.evaluate(f"{choices}.forEach((s) => {{ s.value = '0'; s.dispatchEvent(new Event('change')); }})")

    def paper(self):
        self.tab.media(dark=True, paper=True)
        self.tab.settle()
        found = self.tab.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('nav')).display]")
        self.need(found == ["rgb(255, 255, 255)", "none"], f"on paper: {found}")
        self.need(not self.tab.evaluate(BLANK), "blank charts on paper")
        self.tab.media()
        self.tab.settle()

    def sorting(self):
        button = "document.querySelector('table.sortable th.n button')"
        if not self.tab.evaluate(f"!!{button}"):
            return
        for order in ["descending", "ascending"]:
            self.tab.evaluate(f"{button}.focus()")
            self.tab.key("Enter", "\r")
            found = self.tab.evaluate(SORTED)
            values = [value for value in map(quantity, found[1] if found else []) if value is not None]
            right = found and found[0] == order and values == sorted(values, reverse=order == "descending")
            self.need(right, f"sorting by keyboard gives {str(found)[:200]}")

    def filtering(self):
        field = "document.querySelector('input[data-table]')"
        if not self.tab.evaluate(f"!!{field} && {field}.offsetParent !== null"):
            return
        self.tab.evaluate(f"{field}.focus()")
        self.tab.call("Input.insertText", text="no row has this")
        left = self.tab.evaluate(f"[...document.getElementById({field}.dataset.table).tBodies[0].rows].filter((r) => !r.hidden).length")
        self.need(left == 0, f"{left} rows are left by a filter that none passes")

    def arrows(self):
        """The points of a chart can be walked through, also when it is drawn anew meanwhile."""
        chart = f"document.querySelector('#{CHARTS[self.kind][0]} .chart')"
        self.tab.evaluate(f"{chart}.focus()")
        for _ in range(3):
            self.tab.key("ArrowRight")
        self.tab.settle()
        shown = self.tab.evaluate(f"[...{chart}.querySelectorAll('div')].some((d) => d.style.pointerEvents === 'none' && d.textContent.trim())")
        self.need(shown or self.kind in ("hostile", "live"), "arrows show no tip")
        self.tab.media(dark=True)
        self.tab.settle()
        self.tab.media()
        self.tab.settle()

    def policy(self):
        """A script that got in would not run."""
        self.tab.evaluate("{ const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.head.append(s); 0 }")
        self.need(self.tab.evaluate("window.foreign === undefined"), "the policy lets a foreign script run")


def pixels(png):
    """Width, height and rows of a PNG of 8 bits a channel, as Chromium writes it: (channels, list of rows)."""
    at, data, head = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            head = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            data += body
        at += length + 12
    width, height, depth, color = head
    assert depth == 8 and color in (2, 6), "not an RGB picture of 8 bits"
    size = 3 if color == 2 else 4
    raw, stride, rows, before = zlib.decompress(data), width * size, [], bytes(width * size)
    for y in range(height):
        start = y * (stride + 1)
        before = unfilter(raw[start], bytearray(raw[start + 1:start + 1 + stride]), before, size)
        rows.append(before)
    return width, height, size, rows


def unfilter(kind, row, above, size):
    """One row of a PNG (specification, 9.2)."""
    for i in range(len(row) if kind else 0):
        left = row[i - size] if i >= size else 0
        corner = above[i - size] if i >= size else 0
        up = above[i]
        if kind == 4:
            guess = left + up - corner
            near = sorted([(abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner)])
            add = near[0][2]
        else:
            add = [0, left, up, (left + up) // 2][kind]
        row[i] = (row[i] + add) & 255
    return bytes(row)


def grid(png):
    """Mean colours of a coarse grid."""
    width, height, size, rows = pixels(png)
    means = []
    for r in range(ROWS):
        lines = rows[r * height // ROWS:(r + 1) * height // ROWS]
        for c in range(COLUMNS):
            left, right = c * width // COLUMNS * size, (c + 1) * width // COLUMNS * size
            for channel in range(3):
                values = [value for line in lines for value in line[left + channel:right:size]]
                means.append(sum(values) / len(values))
    return means


def golden(tab, folder, name, selector, dark, scale):
    """Compares what `selector` looks like with its golden."""
    tab.media(dark=dark)
    tab.settle()
    box = tab.evaluate(f"(() => {{ const b = document.querySelector('{selector}').getBoundingClientRect();"
                       "return { x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: Math.min(b.height, 900) }; })()")
    png, path = tab.screenshot(clip={**box, "scale": scale}), Path(folder) / f"{name}.png"
    if os.environ.get("PDREPLAY_BLESS"):
        path.write_bytes(png)
    if not path.exists():
        return [f"golden {path.name} is missing; PDREPLAY_BLESS=1 makes it"]
    if path.stat().st_size > MOST_BYTES:
        return [f"golden {path.name} has {path.stat().st_size} bytes"]
    now, then = grid(png), grid(path.read_bytes())
    distance = sum(abs(a - b) for a, b in zip(now, then)) / len(then)
    return [f"{path.name} looks different: mean distance {distance:.1f} of 255"] if distance > TOLERANCE else []


GOLDENS = [("run", "run-light", "body", False, 0.3), ("run", "run-modes-dark", "#chart-modes", True, 0.35),
           ("run", "run-cdf-light", "#cdf", False, 0.35), ("run", "run-sessions-dark", "#chart-sessions", True, 0.35),
           ("sweep", "sweep-map-light", "#map-1", False, 0.35), ("diff", "diff-deltas-light", "#chart-deltas", False, 0.35)]


def main(executable, goldens, pages):
    wrong = []
    with Chrome(executable) as chrome:
        for kind, path in (re.match("([a-z]+)=(.*)", page).groups() for page in pages):
            look = Look(chrome, kind, path)
            wrong += look.all()
            look.tab.close()
            chosen = [entry for entry in GOLDENS if entry[0] == kind]
            if chosen:
                tab = chrome.open(path)
                for _, name, selector, dark, scale in chosen:
                    wrong += golden(tab, goldens, name, selector, dark, scale)
                tab.close()
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
