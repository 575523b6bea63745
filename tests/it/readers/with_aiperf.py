"""Reads `profile_export.jsonl` with AIPerf's own models, and holds it against the records and AIPerf's list of metrics:
`with_aiperf.py EXPORT REQUESTS`; complaints go to stdout, and exit 1.
"""

import json
import sys

from aiperf.common.models.record_models import MetricRecordInfo
from aiperf.metrics.metric_registry import MetricRegistry
from pydantic import BaseModel

# Tags and the fields they are of.
OF_OK = {
    "input_sequence_length": "input_tokens",
    "output_sequence_length": "output_tokens",
    "requested_osl": "expected_output_tokens",
    "usage_prompt_cache_read_tokens": "cached_tokens",
    "time_to_first_token": "ttft_ms",
    "request_latency": "e2e_ms",
    "inter_token_latency": "tpot_ms",
}


def unknown(model, path=""):
    """Keys that the model takes in without knowing them."""
    found = [f"{path}{key}" for key in (model.model_extra or {})]
    for key, value in model:
        if isinstance(value, BaseModel):
            found += unknown(value, f"{path}{key}.")
    return found


def complaints(line, record):
    read = MetricRecordInfo.model_validate_json(line)
    found = [f"AIPerf does not know {key}" for key in unknown(read)]
    for tag, metric in read.metrics.items():
        known = MetricRegistry.get_class(tag)
        unit = str(known.display_unit or known.unit)
        if metric.unit != unit:
            found.append(f"{tag} is in {metric.unit}, not {unit}")
    metadata = read.metadata
    told = (metadata.conversation_id, metadata.turn_index, metadata.request_start_ns, metadata.request_end_ns, metadata.x_request_id)
    wanted = tuple(record[key] for key in ["session_id", "turn_id", "sent_ns", "ended_ns", "request_id"])
    if told != wanted:
        found.append(f"{told} is not {wanted}")
    is_ok = record["outcome"] == "ok"
    fields = OF_OK if is_ok else {"error_isl": "input_tokens"}
    wanted = {tag: record[field] for tag, field in fields.items() if record[field] is not None}
    told = {tag: metric.value for tag, metric in read.metrics.items() if tag != "output_token_throughput_per_user"}
    if told != wanted:
        found.append(f"{told} is not {wanted}")
    if is_ok != (read.error is None):
        found.append(f"outcome {record['outcome']} has error {read.error}")
    if read.error and read.error.message != (record["error_message"] or record["outcome"]):
        found.append(f"the message is {read.error.message!r}")
    return found


def main():
    export, requests = sys.argv[1:]
    with open(requests) as lines:
        records = [record for record in map(json.loads, lines) if record["sent_ns"] is not None]
    with open(export) as lines:
        exported = list(lines)
    found = []
    if len(exported) != len(records) or not records:
        found.append(f"{len(exported)} lines for {len(records)} requests that were sent")
    for number, (line, record) in enumerate(zip(exported, records), 1):
        found += [f"line {number}: {complaint}" for complaint in complaints(line, record)]
    print("\n".join(found[:20]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
