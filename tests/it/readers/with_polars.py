"""Reads a CSV export with python's csv and with polars, and `requests.parquet` with polars, and holds each column against the
records: `with_polars.py CSV PARQUET REQUESTS`; complaints go to stdout, and exit 1.
"""

import csv
import json
import sys

import polars

INTEGERS, TEXTS = (polars.Int64, polars.UInt64, polars.UInt32), (polars.String,)
# What polars must take a column of such values for. Of one without a value it makes text.
KINDS = {int: INTEGERS, float: (polars.Float64,), bool: (polars.Boolean,), str: TEXTS}


def shown(value):
    """As it stands in the CSV: nothing for null, else as in JSON; escapes for control characters."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "".join(f"\\u{{{ord(c):x}}}" if ord(c) < 32 and c not in "\t\n\r" or 126 < ord(c) < 160 else c for c in value)
    return json.dumps(value)


def of_python(path, records):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    found = [] if len(rows) == len(records) else [f"csv: {len(rows)} rows for {len(records)} records"]
    for number, (row, record) in enumerate(zip(rows, records), 1):
        if list(row) != list(record):
            found.append(f"csv: row {number} has the columns {list(row)}")
            continue
        for name, value in record.items():
            told = row[name]
            if isinstance(value, float):
                same = told != "" and float(told) == value
            else:
                same = told == shown(value)
            if not same:
                found.append(f"csv: row {number}, {name}: {told!r} is not {value!r}")
    return found


def of_polars(what, frame, records):
    found = [] if frame.height == len(records) else [f"{what}: {frame.height} rows for {len(records)} records"]
    for name in records[0]:
        values = [record[name] for record in records]
        # A float that is whole has a point all the same.
        kinds = {type(value) for value in values if value is not None}
        kind = frame.schema[name]
        if kinds and not any(kind in KINDS[one] for one in kinds):
            found.append(f"{what}: {name} is read as {kind}, and holds {kinds}")
            continue
        wanted = [shown(value) if isinstance(value, str) and what == "csv" else value for value in values]
        if kinds and frame[name].to_list() != wanted:
            at = next(at for at, (told, one) in enumerate(zip(frame[name].to_list(), wanted)) if told != one)
            found.append(f"{what}: row {at + 1}, {name}: {frame[name][at]!r} is not {wanted[at]!r}")
    return found


def main():
    csv_path, parquet, requests = sys.argv[1:]
    with open(requests, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    # A CSV has no types: ids of digits alone are numbers, unless they are said to be text.
    ids = {name: polars.String for name in ["session_id", "request_id", "trace_request_id"]}
    frame = polars.read_csv(csv_path, infer_schema_length=None, schema_overrides=ids)
    found = of_python(csv_path, records) + of_polars("csv", frame, records)
    if parquet != "-":
        found += of_polars("parquet", polars.read_parquet(parquet), records)
    print("\n".join(found[:20]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
