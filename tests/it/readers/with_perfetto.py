"""Opens traces in Perfetto itself, its page served from a folder on loopback, and holds what its trace processor made of each
against the file; then counts what the importer of chrome://tracing, which comes with the page, made of it: `with_perfetto.py CHROMIUM PAGE good=FILE... bad=FILE...`; complaints go to stdout, and exit 1.

A bad file is one that must give complaints: it shows that they would be heard.
"""

import gzip
import http.server
import json
import sys
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "page"))
sys.dont_write_bytecode = True
from chrome import Chrome  # noqa: E402

OPEN_S = 60
TRACKS = "join thread_track k on s.track_id = k.id join thread t using (utid) left join process p using (upid)"
ROWS = """
app.trace.engine.query(%s).then((found) => {
  const rows = [], names = found.columns();
  for (const row = found.iter({}); row.valid(); row.next()) {
    rows.push(names.map((name) => { const value = row.get(name); return typeof value === 'bigint' ? value.toString() : value; }));
  }
  return rows;
})
"""


def serve(page, traces):
    """Serves the page, and the traces beside it by their names; gives the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            path = path.split("?")[0].lstrip("/")
            return str(traces.get(path, Path(page) / (path or "index.html")))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # A browser that hangs up is no error.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class Page:
    """A page of a reader, in a tab of its own."""

    def __init__(self, chrome, url, is_there):
        self.chrome = chrome
        target = chrome.call("Target.createTarget", {"url": url})["targetId"]
        self.session = chrome.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.wait(is_there, url)

    def wait(self, condition, what):
        until = time.monotonic() + OPEN_S
        while self.evaluate(condition) is not True:
            if time.monotonic() > until:
                raise RuntimeError(f"{what} is not open after {OPEN_S} s")
            time.sleep(0.1)

    def open(self, url):
        """Has Perfetto open a trace, in place of the one before."""
        self.evaluate(f"window.before = app.trace; app.openTraceFromUrl({json.dumps(url)}); 1")
        self.wait("!!app.trace && app.trace !== window.before", url)

    def evaluate(self, expression):
        call = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        result = self.chrome.call("Runtime.evaluate", call, self.session)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        return result["result"].get("value")

    def rows(self, sql):
        return [tuple(row) for row in self.evaluate(ROWS % json.dumps(sql))]


# Counts of what was imported, by phase of the event, and what was wrong.
BY_CHROME = """
(async () => {
  const model = new tr.Model(), sum = (list) => list.reduce((a, b) => a + b, 0);
  new tr.importer.Import(model).importTraces([await (await fetch('%s')).text()]);
  return [model.importWarnings.map((warning) => warning.message), sum(model.getAllThreads().map((thread) => thread.sliceGroup.length)),
    model.flowEvents.length, sum(model.getAllCounters().map((counter) => counter.numSamples))];
})()
"""


def by_chrome(page, place, events):
    warnings, slices, flows, samples = page.evaluate(BY_CHROME % place)
    count = Counter(event["ph"] for event in events)
    found = [f"chrome://tracing warns: {warning}" for warning in warnings]
    for what, read, wrote in [("slices", slices, count["X"] + count["i"]), ("arrows", flows, count["s"]), ("samples", samples, count["C"])]:
        if read != wrote:
            found.append(f"chrome://tracing has {read} of {wrote} {what}")
    return found


def nanoseconds(microseconds):
    whole = microseconds * 1000
    assert whole == int(whole), f"{microseconds} us are no whole nanoseconds"
    return str(int(whole))


def spans_of(events):
    """Every span with its depth: how many of its thread it begins in."""
    found, open_until = [], {}
    # Of those that begin together the longest is the outermost.
    order = sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"]))
    for event in order:
        track, end = (event["pid"], event["tid"]), event["ts"] + event["dur"]
        around = [until for until in open_until.get(track, []) if until > event["ts"]]
        found.append((*track, event["name"], nanoseconds(event["ts"]), nanoseconds(event["dur"]), len(around)))
        open_until[track] = [*around, end]
    return found


def differences(what, read, wrote):
    """Of two lists of rows, in whatever order."""
    more, less = Counter(read) - Counter(wrote), Counter(wrote) - Counter(read)
    if not more and not less:
        return []
    return [f"{what}: {sum(less.values())} of {len(wrote)} lost, such as {list(less)[:3]}; {sum(more.values())} others, such as {list(more)[:3]}"]


def complaints(page, events):
    found = []
    for name, value in page.rows("select name, value from stats where value > 0 and severity in ('error', 'data_loss')"):
        found.append(f"Perfetto counts {value} {name}")
    points = [(e["pid"], e["tid"], e["name"], nanoseconds(e["ts"])) for e in events if e["ph"] == "i"]
    read = page.rows(f"select p.pid, t.tid, s.name, s.ts, s.dur, s.depth from slice s {TRACKS}")
    read = [(int(pid), int(tid), name, str(ts), str(dur), depth) for pid, tid, name, ts, dur, depth in read]
    spans = spans_of(events)
    # A point is a slice without length, wherever it lies.
    as_points = Counter(row[:4] for row in read if row[4] == "0") & Counter(points)
    found += differences("points", list(as_points.elements()), points)
    left = Counter(points)
    read_spans = []
    for row in read:
        if row[4] == "0" and left[row[:4]] > 0:
            left[row[:4]] -= 1
        else:
            read_spans.append((*row[:5], int(row[5])))
    found += differences("spans", read_spans, spans)
    named = {(e["pid"], e["tid"], e["name"]): e["args"].get("name") for e in events if e["ph"] == "M"}
    threads = [(pid, tid, name) for (pid, tid, kind), name in named.items() if kind == "thread_name"]
    read = page.rows("select p.pid, t.tid, t.name from thread t join process p using (upid) where p.pid != 0 and t.name is not null")
    found += differences("threads", [(int(pid), int(tid), name) for pid, tid, name in read], threads)
    processes = [(pid, name) for (pid, _, kind), name in named.items() if kind == "process_name"]
    read = page.rows("select pid, name from process where pid != 0")
    found += differences("processes", [(int(pid), name) for pid, name in read], processes)
    counters = [(e["pid"], e["name"], nanoseconds(e["ts"]), float(e["args"]["value"])) for e in events if e["ph"] == "C"]
    sql = "select p.pid, k.name, c.ts, c.value from counter c join process_counter_track k on c.track_id = k.id join process p using (upid)"
    read = [(int(pid), name.removesuffix(" value"), str(ts), float(value)) for pid, name, ts, value in page.rows(sql)]
    found += differences("counters", read, counters)
    found += arrows(page, events)
    return found


def arrows(page, events):
    """Every arrow leads from a span of the turn's thread to the span on the worker that begins where it ends."""
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    wrote = []
    for start in (e for e in events if e["ph"] == "s"):
        end = ends[start["id"]]
        wrote.append((start["pid"], start["tid"], end["pid"], end["tid"], nanoseconds(end["ts"])))
    sides = "join thread_track k{0} on s{0}.track_id = k{0}.id join thread t{0} on k{0}.utid = t{0}.utid join process p{0} on t{0}.upid = p{0}.upid"
    sql = ("select p1.pid, t1.tid, p2.pid, t2.tid, s2.ts from flow f join slice s1 on f.slice_out = s1.id join slice s2 on f.slice_in = s2.id "
           f"{sides.format(1)} {sides.format(2)}")
    # Two columns of one name are one to the reader of rows.
    sql = sql.replace("select p1.pid, t1.tid, p2.pid, t2.tid, s2.ts", "select p1.pid a, t1.tid b, p2.pid c, t2.tid d, s2.ts e")
    read = [(int(a), int(b), int(c), int(d), str(e)) for a, b, c, d, e in page.rows(sql)]
    return differences("arrows", read, wrote)


def main():
    chromium, page, *named = sys.argv[1:]
    files = [(kind, Path(path)) for kind, path in (name.split("=", 1) for name in named)]
    traces = {f"trace-{number}/{path.name}": path for number, (_, path) in enumerate(files)}
    address = serve(page, traces)
    viewer = next(Path(page).glob("v*/assets/catapult_trace_viewer.html")).relative_to(page)
    failed = False
    # No name is looked up: the page would ask a host of its makers who is looking.
    with Chrome(chromium, ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]) as chrome:
        perfetto = Page(chrome, f"{address}/", "typeof app === 'object' && typeof app.openTraceFromUrl === 'function'")
        viewer = Page(chrome, f"{address}/{viewer}", "typeof tr === 'object' && typeof tr.importer === 'object'")
        for (kind, path), place in zip(files, traces):
            content = path.read_bytes()
            text = gzip.decompress(content) if path.suffix == ".gz" else content
            events = json.loads(text, parse_float=Decimal)["traceEvents"]
            perfetto.open(f"{address}/{place}")
            found = complaints(perfetto, events)
            # It unpacks what it reads from a disk, not what comes from a server.
            if path.suffix != ".gz":
                found += by_chrome(viewer, f"{address}/{place}", events)
            if kind == "bad" and not found:
                found = ["nothing is wrong with it, they say"]
            elif kind == "bad":
                found = []
            for complaint in found:
                print(f"{path.name}: {complaint}")
            failed |= bool(found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
