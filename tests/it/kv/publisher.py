"""A publisher of KV events that does what it is told, a line of JSON at a time, over libzmq.

`xllm` is written here: XPUB and ROUTER in one loop, replays are snapshots of what it holds. `vllm FILE` and `sglang FILE` are
the ZmqEventPublisher of those engines, in FILE as released; only what that file imports from the rest of its engine (log,
addresses, configuration) is stood in for.

Lines in: {"events": [...]}, with {"skip": true} the number is used up and nothing is sent (xllm). Lines out: endpoints
first, then the number of each batch.
"""

import importlib.util
import json
import logging
import queue
import sys
import threading
import time
import types

import zmq

END = b"\xff" * 8


def say(**words):
    print(json.dumps(words), flush=True)


def told():
    for line in sys.stdin:
        yield json.loads(line)


class Xllm:
    """Maps, media gpu and cpu, snapshots."""

    def __init__(self, ports):
        import msgpack

        self.pack = msgpack.packb
        self.blocks = {}
        self.number = 0
        context = zmq.Context()
        self.publisher = context.socket(zmq.XPUB)
        self.router = context.socket(zmq.ROUTER)
        for socket, port in zip((self.publisher, self.router), ports):
            socket.bind(f"tcp://127.0.0.1:{port}")
        ends = [socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in (self.publisher, self.router)]
        say(endpoint=ends[0], replay_endpoint=ends[1])

    def run(self):
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in told()] and None, daemon=True).start()
        while True:
            if self.router.poll(5):
                self.replay()
            try:
                self.publish(**lines.get_nowait())
            except queue.Empty:
                pass

    def batch(self, events):
        return self.pack([time.time(), events, 0])

    def publish(self, events, skip=False):
        self.number += 1
        wire = [self.event(event) for event in events]
        if not skip:
            self.publisher.send_multipart((b"xllm-kv", self.number.to_bytes(8, "big"), self.batch(wire)))
        say(sequence=self.number)

    def event(self, event):
        if event == "cleared":
            self.blocks.clear()
            return {"type": "AllBlocksCleared"}
        if "removed" in event:
            removed = event["removed"]
            for block in removed["hashes"]:
                self.blocks.get(block, (0, 0, set()))[2].discard(removed["medium"])
            return {"type": "BlockRemoved", "block_hashes": removed["hashes"], "medium": removed["medium"]}
        stored, parent = event["stored"], event["stored"]["parent"]
        for at, block in enumerate(stored["hashes"]):
            size = stored["block_size"]
            known = self.blocks.setdefault(block, (parent, stored["tokens"][at * size : (at + 1) * size], set()))
            known[2].add(stored["medium"])
            parent = block
        return self.stored(stored["hashes"], stored["parent"], stored["tokens"], stored["block_size"], stored["medium"])

    def stored(self, hashes, parent, tokens, size, medium):
        head = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens}
        return head | {"block_size": size, "medium": medium}

    def replay(self):
        peer, empty, _ = self.router.recv_multipart()
        events = [
            self.stored([block], parent, tokens, len(tokens), medium)
            for block, (parent, tokens, media) in self.blocks.items()
            for medium in sorted(media)
        ]
        watermark = self.number.to_bytes(8, "big")
        self.router.send_multipart((peer, empty, watermark, self.batch(events)))
        self.router.send_multipart((peer, empty, END, b""))


def load(file, stands):
    for name, content in stands.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module
    spec = importlib.util.spec_from_file_location("kv_events", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vllm(file, ports, steps):
    class Config(types.SimpleNamespace):
        pass

    nothing = dict.fromkeys(("get_ip", "get_tcp_uri", "is_valid_ipv6_address", "split_zmq_path"))
    stands = {
        "vllm": {},
        "vllm.config.kv_events": {"KVEventsConfig": Config},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.utils.network_utils": nothing,
        "vllm.v1.core.kv_cache_utils": {"ExternalBlockHash": bytes | int},
    }
    module = load(file, stands)
    ends = [f"tcp://*:{port}" for port in ports]
    publisher = module.ZmqEventPublisher(0, *ends, buffer_steps=steps, topic="kv")
    stored = lambda s, medium: dict(lora_id=None, medium=medium, lora_name=None)
    return module, publisher, {"gpu": module.MEDIUM_GPU, "cpu": module.MEDIUM_CPU}, stored


def sglang(file, ports, steps):
    stands = {
        "sglang": {},
        "sglang.srt.runtime_context": {"get_parallel": None},
        "sglang.srt.utils.network": {"NetworkAddress": None},
    }
    module = load(file, stands)
    ends = [f"tcp://127.0.0.1:{port}" for port in ports]
    publisher = module.ZmqEventPublisher(0, *ends, buffer_steps=steps, topic="kv", bind=True)
    media = {"gpu": module.StorageMedium.GPU, "cpu": module.StorageMedium.CPU}
    return module, publisher, media, lambda s, medium: dict(lora_id=None, medium=medium)


def engine(kind, file, ports, steps):
    module, publisher, media, more = kind(file, ports, steps)
    say(endpoint=f"tcp://127.0.0.1:{ports[0]}", replay_endpoint=f"tcp://127.0.0.1:{ports[1]}")

    def event(told):
        if told == "cleared":
            return module.AllBlocksCleared()
        if "removed" in told:
            removed = told["removed"]
            return module.BlockRemoved(block_hashes=removed["hashes"], medium=media[removed["medium"]])
        s = told["stored"]
        return module.BlockStored(
            block_hashes=s["hashes"],
            parent_block_hash=s["parent"],
            token_ids=s["tokens"],
            block_size=s["block_size"],
            **more(s, media[s["medium"]]),
        )

    for number, line in enumerate(told()):
        publisher.publish(module.KVEventBatch(ts=time.time(), events=[event(e) for e in line["events"]]))
        say(sequence=number)


def main():
    kind, file, port, replay_port, steps = sys.argv[1:]
    ports = (port, replay_port)
    if kind == "xllm":
        Xllm(ports).run()
    else:
        engine({"vllm": vllm, "sglang": sglang}[kind], file, ports, int(steps))


if __name__ == "__main__":
    main()
