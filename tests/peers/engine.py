"""A simulated engine: a prefix cache on a device and on slower tiers, and a
publisher for each data-parallel rank.

It does what it is told, a JSON object a line on standard input, and answers
each with one on standard output. It keeps a journal of all it published, so
that it can say what it holds, or what somebody knows who has seen its batches
from some number on.
"""

import argparse
import json
import os
import random
import struct
import sys
import time
from collections import deque

import zmq

from layouts import LAYOUTS

END = b"\xff" * 8


class Block:
    __slots__ = ("digest", "bits", "parent", "tokens", "lora", "salt")

    def __init__(self, layout, seed, parent, tokens, lora, salt):
        content = json.dumps([tokens, lora, salt]).encode()
        self.digest, self.bits = layout.name_of(seed, parent and parent.bits, content)
        self.parent, self.tokens, self.lora, self.salt = parent, tokens, lora, salt


class Holding:
    """What somebody knows who applies the events literally."""

    def __init__(self, copies):
        self.copies = copies
        # Block to the copies on each medium, in the order of first stores.
        self.media = {}

    def holds(self, block, medium=None):
        media = self.media.get(block.bits, (block, {}))[1]
        return media.get(medium, 0) > 0 if medium else bool(media)

    def apply(self, kind, medium, blocks, with_tokens):
        if kind == "cleared":
            self.media.clear()
            return
        if kind == "stored" and with_tokens:
            parent = blocks[0].parent
            if parent is not None and not self.holds(parent):
                return  # refused: nobody knows where it would be
        for block in blocks:
            if kind == "stored" and not with_tokens and not self.holds(block):
                continue
            _, media = self.media.setdefault(block.bits, (block, {}))
            many = media.get(medium, 0)
            if kind == "stored":
                media[medium] = many + 1 if self.copies else 1
            elif many > 1:
                media[medium] = many - 1
            else:
                media.pop(medium, None)
            if not media:
                del self.media[block.bits]


class Rank:
    def __init__(self, context, args, rank):
        self.args, self.rank, self.layout = args, rank, LAYOUTS[args.layout]
        self.number = 0
        self.buffer = deque(maxlen=args.history)
        self.journal = []
        self.events = []  # of the batch to come
        self.plain = []  # the same, for the journal
        self.drop = 0
        self.deaf = False
        self.held = Holding(args.copies)
        # A PUB that can also be asked who has subscribed.
        self.pub = context.socket(zmq.XPUB)
        self.pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.pub.set_hwm(args.hwm)
        self.pub.setsockopt(zmq.LINGER, 0)
        if args.sndbuf:
            self.pub.setsockopt(zmq.SNDBUF, args.sndbuf)
        if args.connect:
            self.pub.connect(f"tcp://127.0.0.1:{args.port + rank}")
        else:
            bind(self.pub, args.port + rank)
        self.replay = None
        if args.replay_port:
            self.replay = context.socket(zmq.ROUTER)
            self.replay.setsockopt(zmq.LINGER, 0)
            if args.replay_hwm:
                self.replay.set_hwm(args.replay_hwm)
            bind(self.replay, args.replay_port + rank)

    def answer_replay(self):
        client, empty, start = self.replay.recv_multipart()
        if self.deaf:
            return
        start = int.from_bytes(start, "big")
        topic = [self.args.topic.encode()] if self.layout.topic_in_replay else []
        for number, payload in self.buffer:
            if number >= start:
                self.replay.send_multipart([client, empty, *topic, number.to_bytes(8, "big"), payload])
        end = [b""] if self.layout.topic_in_replay else []
        self.replay.send_multipart([client, empty, *end, END, b""])

    def send(self, frames):
        if self.drop > 0:
            self.drop -= 1
        else:
            self.pub.send_multipart(frames)

    def publish(self):
        """Ends the batch."""
        payload = self.layout.payload(time.time(), self.events, self.rank)
        self.journal.append((self.number, self.plain))
        self.buffer.append((self.number, payload))
        self.send([self.args.topic.encode(), self.number.to_bytes(8, "big"), payload])
        self.number += 1
        self.events, self.plain = [], []

    def note(self, kind, medium, blocks, event, counts=True, with_tokens=True):
        self.events.append(event)
        if counts:
            self.plain.append((kind, medium, blocks, with_tokens))
            self.held.apply(kind, medium, blocks, with_tokens)

    def store(self, blocks, medium="GPU", with_tokens=True, group=None, counts=True):
        event = self.layout.stored(blocks, blocks[0].parent, medium, with_tokens, group)
        self.note("stored", medium, blocks, event, counts, with_tokens)

    def remove(self, blocks, medium="GPU", group=None, counts=True):
        event = self.layout.removed(blocks, medium, group)
        self.note("removed", medium, blocks, event, counts)

    def clear(self):
        self.note("cleared", None, [], self.layout.Cleared())


def bind(socket, port):
    # The port may still be another process's that is just being killed.
    for _ in range(200):
        try:
            return socket.bind(f"tcp://127.0.0.1:{port}")
        except zmq.ZMQError:
            time.sleep(0.05)
    raise SystemExit(f"port {port} stays taken")


class Engine:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        # vLLM's names are its process's own unless it is told otherwise.
        self.names = os.urandom(8) if args.random_names else b"fixed"
        context = zmq.Context()
        self.ranks = [Rank(context, args, rank) for rank in range(args.ranks)]
        # Prompts come again; most begin like another.
        self.prompts = []

    # What happens inside of an engine.

    def prompt(self):
        draw = self.random
        if self.prompts and draw.random() < 0.5:
            tokens, lora, salt = draw.choice(self.prompts)
            size = self.args.block_size
            keep = draw.randrange(len(tokens) // size + 1) * size
            tokens = tokens[:keep]
        else:
            tokens = []
            lora = draw.choice([None, None, "lora-a", "lora-b"]) if self.args.adapters else None
            salt = draw.choice([None, None, "salt-1"]) if self.args.adapters else None
            if self.args.layout.startswith("sglang"):
                lora = None
        more = draw.randrange(1, 6) * self.args.block_size
        tokens = tokens + [draw.randrange(1, 1 << 17) for _ in range(more)]
        self.prompts.append((tokens, lora, salt))
        if len(self.prompts) > 400:
            self.prompts.pop(0)
        return tokens, lora, salt

    def blocks(self, tokens, lora, salt):
        blocks, parent, size = [], None, self.args.block_size
        for start in range(0, len(tokens) - size + 1, size):
            parent = Block(self.ranks[0].layout, self.names, parent, tokens[start : start + size], lora, salt)
            blocks.append(parent)
        return blocks

    def serve(self, rank, tokens, lora, salt, again=False):
        """What is not on the device is computed and stored, a run at a time."""
        run = []
        for block in self.blocks(tokens, lora, salt):
            if again or not rank.held.holds(block, "GPU"):
                run.append(block)
            elif run:
                rank.store(run)
                run = []
        if run:
            rank.store(run)

    def on(self, rank, medium):
        return [block for block, media in rank.held.media.values() if media.get(medium, 0) > 0]

    def evict(self, rank, many, medium="GPU"):
        held = self.on(rank, medium)
        if not held:
            return
        if self.args.evict == "any":
            gone = self.random.sample(held, min(many, len(held)))
        else:
            parents = {block.parent.bits for block in held if block.parent}
            gone = [block for block in held if block.bits not in parents][:many]
        rank.remove(gone, medium)

    def offload(self, rank, many):
        """A copy on a slower tier; then the device may drop its own."""
        held = self.on(rank, "GPU")
        if not held:
            return
        medium = self.random.choice(["CPU", "DISK"])
        for block in self.random.sample(held, min(many, len(held))):
            parent = block.parent
            placed = parent is None or rank.held.holds(parent)
            rank.store([block], medium, with_tokens=placed and self.random.random() < 0.5)
            if self.random.random() < 0.5:
                rank.remove([block])

    def step(self, rank, kinds):
        kind = self.random.choice(kinds)
        if kind == "serve":
            self.serve(rank, *self.prompt())
        elif kind == "evict":
            self.evict(rank, self.random.randrange(1, 4))
        elif kind == "offload":
            self.offload(rank, self.random.randrange(1, 4))
        elif kind == "unload":
            self.evict(rank, self.random.randrange(1, 3), self.random.choice(["CPU", "DISK"]))
        elif kind == "again" and self.prompts:
            # Equal blocks computed twice at once: a second copy each.
            self.serve(rank, *self.random.choice(self.prompts[-5:]), again=True)
        elif kind == "groups" and not self.args.layout.startswith("sglang"):
            # A sliding window's blocks: not a prefix's.
            blocks = self.blocks(*self.prompt())
            rank.store(blocks, group=(1, "sliding_window"), counts=False)
            rank.remove(blocks[:1], group=(1, None), counts=False)
        if rank.events:
            rank.publish()

    # What it can be told.

    def do(self, command):
        rank = self.ranks[command.get("rank", 0)]
        op = command["op"]
        if op == "steps":
            for _ in range(command["steps"]):
                self.step(rank, command.get("kinds", ["serve", "serve", "evict"]))
                if command.get("pause"):
                    time.sleep(command["pause"])
                while rank.replay and rank.replay.poll(0):
                    rank.answer_replay()
        elif op == "clear":
            rank.clear()
            rank.publish()
        elif op == "drop":
            rank.drop = command["batches"]
        elif op == "deaf":
            rank.deaf = command["deaf"]
        elif op == "subscribed":
            arrived = False
            while not arrived and rank.pub.poll(30_000):
                # The other kind is of somebody who leaves.
                arrived = rank.pub.recv()[:1] == b"\x01"
            return {"subscribed": arrived}
        elif op == "twice":
            # The newest batches are sent once more.
            for number, payload in list(rank.buffer)[-command["batches"] :]:
                rank.pub.send_multipart([self.args.topic.encode(), number.to_bytes(8, "big"), payload])
        elif op == "garbage":
            self.garbage(rank)
        elif op == "history":
            numbers = [number for number, _ in rank.buffer]
            return {"first": numbers[0] if numbers else None, "next": rank.number}
        elif op == "holds":
            return {"blocks": self.known(rank, command.get("since", 0))}
        elif op == "prompts":
            return {"prompts": [{"tokens": t, "lora": l, "salt": s} for t, l, s in self.prompts]}
        return {}

    def garbage(self, rank):
        """Messages that are no batch, and batches that are no good. None of it
        says anything of the cache."""
        draw, topic = self.random, self.args.topic.encode()
        whole = rank.layout.payload(1.5, [], rank.rank)
        for frames in (
            [topic],
            [topic, b"\0" * 8],
            [topic, b"\0" * 7, whole],
            [topic, b"\0" * 9, whole],
            [topic, rank.number.to_bytes(8, "big"), whole, b"more"],
            [topic, END, b""],
        ):
            rank.pub.send_multipart(frames)
        payloads = [b"", b"\xc1", b"\x93", draw.randbytes(200), b"\x94" * 5000, b"\xdd\xff\xff\xff\xff"]
        cut = rank.layout.encoder.encode([1.5, [["BlockRemoved", [1, 2, 3]]], 0])
        payloads += [cut[:at] for at in (1, 9, 11, 20)]
        for payload in payloads:
            rank.journal.append((rank.number, []))
            rank.buffer.append((rank.number, payload))
            rank.send([topic, rank.number.to_bytes(8, "big"), payload])
            rank.number += 1
        bad = [
            ["BlockStored", "no list", None, [1], 1],
            ["BlockStored", [1], None],
            ["BlockStored", [1, 2], None, [1, 2, 3], 2],
            ["BlockStored", [5], 5, [1] * self.args.block_size, self.args.block_size],
            ["BlockStored", [5, 5], None, [1] * 2 * self.args.block_size, self.args.block_size],
            ["BlockStored", [9], 123456789, [1] * self.args.block_size, self.args.block_size],
            ["Unheard", 1, 2],
            ["BlockRemoved", {}],
            [],
            7,
            None,
        ]
        rank.events, rank.plain = bad, []
        rank.publish()

    def known(self, rank, since):
        """Every block of the journal from there on, parents first, and where
        it is held in the end."""
        holding = Holding(self.args.copies)
        blocks = {}
        for number, events in rank.journal:
            if number < since:
                continue
            for kind, medium, run, with_tokens in events:
                holding.apply(kind, medium, run, with_tokens)
                for block in run:
                    blocks.setdefault(block.bits, block)
        # A run's parents may be from before.
        for block in list(blocks.values()):
            while block.parent and block.parent.bits not in blocks:
                block = block.parent
                blocks[block.bits] = block
        depth = lambda block: 1 + depth(block.parent) if block.parent else 0
        return [
            {
                "name": block.bits,
                "parent": block.parent.bits if block.parent else None,
                "tokens": block.tokens,
                "lora": block.lora,
                "salt": block.salt,
                "media": sorted(holding.media.get(block.bits, (block, {}))[1]),
            }
            for block in sorted(blocks.values(), key=depth)
        ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", choices=LAYOUTS, default="vllm")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--replay-port", type=int, default=0)
    parser.add_argument("--connect", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--history", type=int, default=10_000)
    parser.add_argument("--hwm", type=int, default=100_000)
    parser.add_argument("--sndbuf", type=int, default=0)
    parser.add_argument("--replay-hwm", type=int, default=0)
    parser.add_argument("--topic", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evict", choices=["tail", "any"], default="tail")
    parser.add_argument("--adapters", action="store_true")
    parser.add_argument("--copies", action="store_true")
    parser.add_argument("--random-names", action="store_true")
    engine = Engine(parser.parse_args())

    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    for rank in engine.ranks:
        if rank.replay:
            poller.register(rank.replay, zmq.POLLIN)
    print(json.dumps({"ready": True}), flush=True)
    pending = b""
    while True:
        ready = dict(poller.poll())
        for rank in engine.ranks:
            if rank.replay in ready:
                rank.answer_replay()
        if sys.stdin.fileno() in ready:
            read = os.read(sys.stdin.fileno(), 1 << 16)
            if not read:
                return
            pending += read
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                print(json.dumps(engine.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
