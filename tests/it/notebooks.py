"""Runs notebooks from top to bottom, at once; prints the first error of each and exits 1 when there was one."""

import sys
from concurrent.futures import ThreadPoolExecutor

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def run(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    try:
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    except CellExecutionError as error:
        return f"{path}: {error}"
    shown = sum(bool(output.get("data")) for cell in notebook.cells for output in cell.get("outputs", []))
    return None if shown else f"{path}: shows nothing"


with ThreadPoolExecutor(2) as pool:
    failures = [failure for failure in pool.map(run, sys.argv[1:]) if failure]
print("\n".join(failures))
sys.exit(bool(failures))
