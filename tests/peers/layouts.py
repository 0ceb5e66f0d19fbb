"""What engines write on the wire, in every layout that the tests use.

The structs are declared anew from the published field lists; msgspec lays
them out as it does for the engines.
"""

import hashlib
import struct
from typing import Any

import msgspec


def _event(name: str, fields: list, array: bool):
    return msgspec.defstruct(
        name, fields, tag=name, array_like=array, omit_defaults=True, kw_only=False
    )


_NONE = None


def _vllm(array: bool):
    stored = [
        ("block_hashes", list),
        ("parent_block_hash", Any),
        ("token_ids", list),
        ("block_size", int),
        ("lora_id", Any, _NONE),
        ("medium", Any, _NONE),
        ("lora_name", Any, _NONE),
        ("extra_keys", Any, _NONE),
        ("group_idx", Any, _NONE),
        ("kv_cache_spec_kind", Any, _NONE),
        ("kv_cache_spec_sliding_window", Any, _NONE),
    ]
    removed = [("block_hashes", list), ("medium", Any, _NONE), ("group_idx", Any, _NONE)]
    return (
        _event("BlockStored", stored, array),
        _event("BlockRemoved", removed, array),
        _event("AllBlocksCleared", [], array),
    )


def _sglang(array: bool):
    stored = [
        ("block_hashes", list),
        ("parent_block_hash", Any),
        ("token_ids", list),
        ("block_size", int),
        ("lora_id", Any, _NONE),
        ("medium", Any, _NONE),
    ]
    # The array form ends with a map of what is rare, the map form has it as
    # keys of its own.
    stored += [("extra", Any, _NONE)] if array else [("cache_salt", Any, _NONE)]
    removed = [("block_hashes", list), ("medium", Any, _NONE)]
    return (
        _event("BlockStored", stored, array),
        _event("BlockRemoved", removed, array),
        _event("AllBlocksCleared", [], array),
    )


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list
    data_parallel_rank: Any = None


class BatchOfOld(msgspec.Struct, array_like=True):
    ts: float
    events: list


class Layout:
    """How one engine's version writes."""

    def __init__(self, engine: str, array: bool, byte_hashes=False, topic_in_replay=False, rank=True):
        self.engine = engine
        self.byte_hashes = byte_hashes
        self.topic_in_replay = topic_in_replay
        self.rank = rank
        self.array = array
        make = _sglang if engine == "sglang" else _vllm
        self.Stored, self.Removed, self.Cleared = make(array)
        self.encoder = msgspec.msgpack.Encoder()

    def name_of(self, seed: bytes, parent, content: bytes):
        """A block's hash as the engine computes it: the value on the wire,
        and the 64 bits that it stands for."""
        digest = hashlib.sha256(seed + struct.pack(">Q", parent or 0) + content).digest()
        if self.engine == "sglang":
            bits = int.from_bytes(digest[:8], "big")
        else:
            bits = int.from_bytes(digest[-8:], "big")
        return digest, bits

    def wire_hash(self, digest: bytes):
        if self.engine == "sglang":
            return int.from_bytes(digest[:8], "big", signed=True)
        return digest if self.byte_hashes else int.from_bytes(digest[-8:], "big")

    def stored(self, blocks, parent, medium, with_tokens=True, group=None):
        """One event for a run of blocks of one prompt."""
        first = blocks[0]
        fields = dict(
            block_hashes=[self.wire_hash(block.digest) for block in blocks],
            parent_block_hash=None if parent is None else self.wire_hash(parent.digest),
            token_ids=[token for block in blocks for token in block.tokens] if with_tokens else [],
            block_size=len(first.tokens),
            medium=medium,
        )
        if self.engine == "sglang":
            if first.salt:
                if self.array:
                    fields["extra"] = {"cache_salt": first.salt}
                else:
                    fields["cache_salt"] = first.salt
        else:
            if first.lora:
                fields["lora_id"] = 1
                fields["lora_name"] = first.lora
            if with_tokens and (first.lora or first.salt):
                # The salt is a key of a prompt's first block only.
                fields["extra_keys"] = [
                    ([block.lora] if block.lora else [])
                    + ([block.salt] if block.salt and block.parent is None else [])
                    or None
                    for block in blocks
                ]
            if group is not None:
                fields["group_idx"], fields["kv_cache_spec_kind"] = group
        return self.Stored(**fields)

    def removed(self, blocks, medium, group=None):
        fields = dict(block_hashes=[self.wire_hash(block.digest) for block in blocks], medium=medium)
        if group is not None and self.engine != "sglang":
            fields["group_idx"] = group[0]
        return self.Removed(**fields)

    def payload(self, ts: float, events: list, rank: int) -> bytes:
        batch = Batch(ts, events, rank) if self.rank else BatchOfOld(ts, events)
        return self.encoder.encode(batch)


LAYOUTS = {
    # What is published now: maps, hashes as integers, the topic in replays.
    "vllm": Layout("vllm", array=False, topic_in_replay=True),
    # With digests as byte strings.
    "vllm-bytes": Layout("vllm", array=True, byte_hashes=True, topic_in_replay=True),
    # Older ones: arrays, no rank, no topic in replays.
    "vllm-old": Layout("vllm", array=True, rank=False),
    "sglang": Layout("sglang", array=True),
    "sglang-map": Layout("sglang", array=False),
}
