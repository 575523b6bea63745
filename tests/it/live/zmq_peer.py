"""libzmq at the other end: a publisher as the engines have it (XPUB and ROUTER in one thread), a SUB, a DEALER.

Prints one line of JSON for each thing a test waits for. Batches are MessagePack `[seconds, [], 0]`, padded where asked.
"""

import argparse
import json
import sys
import time

import msgpack
import zmq

END = b"\xff" * 8


def say(**words):
    print(json.dumps(words), flush=True)


def heartbeats(socket, args):
    if args.heartbeat_ms:
        socket.setsockopt(zmq.HEARTBEAT_IVL, args.heartbeat_ms)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3000)


def publish(args):
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.setsockopt(zmq.SNDHWM, args.hwm)
    publisher.setsockopt(zmq.SNDBUF, 65536)
    heartbeats(publisher, args)
    router = context.socket(zmq.ROUTER)
    for socket, endpoint in (publisher, args.endpoint), (router, args.replay_endpoint):
        socket.setsockopt(zmq.IPV6, 1)
        socket.bind(endpoint)
    say(endpoint=publisher.getsockopt_string(zmq.LAST_ENDPOINT), replay=router.getsockopt_string(zmq.LAST_ENDPOINT))
    while args.wait and publisher.recv()[:1] != b"\x01":
        pass
    ring = []
    for sequence in range(args.count):
        batch = [time.time(), [], 0] + ([b"x" * args.padding] if args.padding else [])
        payload = msgpack.packb(batch)
        ring.append((sequence, payload))
        publisher.send_multipart((args.topic.encode(), sequence.to_bytes(8, "big"), payload))
        if sequence + 1 == args.burst:
            say(burst=args.burst)
        if sequence >= args.burst and router.poll(args.interval_ms):
            peer, empty, start = router.recv_multipart()
            for known, old in ring:
                if known >= int.from_bytes(start, "big"):
                    router.send_multipart((peer, empty, known.to_bytes(8, "big"), old))
            router.send_multipart((peer, empty, END, b""))


def subscribe(args):
    socket = zmq.Context().socket(zmq.SUB)
    socket.setsockopt_string(zmq.SUBSCRIBE, args.topic)
    socket.setsockopt(zmq.IPV6, 1)
    heartbeats(socket, args)
    socket.connect(args.endpoint)
    for _ in range(args.count):
        say(frames=[frame.hex() for frame in socket.recv_multipart()])


def ask(args):
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(args.endpoint)
    for start in range(args.count):
        socket.send_multipart((b"", start.to_bytes(8, "big")))
        while True:
            frames = socket.recv_multipart()
            say(frames=[frame.hex() for frame in frames])
            if frames[-2:] == [END, b""]:
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("publish", "subscribe", "ask"))
    parser.add_argument("endpoint")
    parser.add_argument("--replay-endpoint", default="tcp://127.0.0.1:*")
    parser.add_argument("--topic", default="")
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--burst", type=int, default=0, help="messages sent without a pause first")
    parser.add_argument("--wait", action="store_true", help="for a subscription, before anything is sent")
    parser.add_argument("--interval-ms", type=int, default=5)
    parser.add_argument("--padding", type=int, default=0)
    parser.add_argument("--hwm", type=int, default=100_000)
    parser.add_argument("--heartbeat-ms", type=int, default=0)
    args = parser.parse_args()
    {"publish": publish, "subscribe": subscribe, "ask": ask}[args.role](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
