"""Draws the pictures of docs/diagnose-starvation.md: charts of notebooks/02-diagnose-starvation.ipynb, on the runs of the story.

    pdreplay replay --scenario v2-1p7d --allow-conflict --name v2
    pdreplay replay --scenario v3-1p7d --name v3
    pdreplay replay --scenario v4-1p7d --name v4
    python scripts/pictures.py docs/pictures

Needs the notebook's packages (scripts/test_tools.sh), vl-convert-python, which turns a chart into a PNG, and pillow, which makes it
small. Reads outputs/, or the
folder that PDREPLAY_OUTPUTS names.
"""

import io
import os
import sys
from pathlib import Path

import nbformat
import vl_convert
from PIL import Image

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "02-diagnose-starvation.ipynb"
# The runs (looked into, held against) and, by the name of the chart in the notebook, the file it becomes.
PICTURES = [
    ("v2 v3", {"strip": "v2-strip"}),
    ("v3 v4", {"shares": "v3-direct-share", "strip": "v3-strip", "moved": "v3-v4-direct-share"}),
    ("v4 v3", {"strip": "v4-strip"}),
]


def charts(runs):
    """The names that the notebook's cells leave behind, on these runs."""
    os.environ["PDREPLAY_RUNS"] = runs
    os.chdir(NOTEBOOK.parent)
    names = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    return names


target = Path(sys.argv[1]).absolute()
target.mkdir(parents=True, exist_ok=True)
for runs, wanted in PICTURES:
    names = charts(runs)
    for chart, file in wanted.items():
        png = vl_convert.vegalite_to_png(names[chart].to_json(), scale=1)
        path = target / f"{file}.png"
        Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} KB")
