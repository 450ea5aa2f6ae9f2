"""Writes packets of Perfetto's protobuf format: tracks, slices, counters, with names that are written once."""

from __future__ import annotations

from typing import IO, Any

import xxhash

from sonde.errors import MissingExtra
from sonde.exchange.protobuf import INT64, put_scalar, text

MOST_NAMES = 65_536  # then the tables of names begin anew: the reader holds them in memory too
SEQUENCE = 1  # all packets are of one writer
BUFFER = 1 << 18


def number(*parts: object) -> int:
    """A number for a track or a flow that no other one has."""
    return xxhash.xxh3_64_intdigest("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")) or 1


class Packets:
    """The packets of one trace. Slices of a track must be given in the order of their times."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
        except ImportError:
            raise MissingExtra.of("perfetto", "perfetto", "The export to Perfetto") from None
        self._file = file
        self._protos: Any = protos
        self._event: Any = protos.TrackEvent
        self._names: dict[str, dict[str, int]] = {}
        self._waiting: list[bytes] = []
        self._bytes = 0

    def clock(self, origin: int) -> None:
        """Say that time 0 is `origin`, in ns from 1970; it also begins the tables of names."""
        packet = self._protos.TracePacket()
        packet.sequence_flags = self._protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        ids = self._protos.BuiltinClock
        for clock, at in ((ids.BUILTIN_CLOCK_BOOTTIME, 0), (ids.BUILTIN_CLOCK_REALTIME, origin)):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=at)
        packet.clock_snapshot.primary_trace_clock = ids.BUILTIN_CLOCK_BOOTTIME
        self._put(packet)

    def process(self, uuid: int, pid: int, name: str, rank: int) -> None:
        """A process; those with a lower rank are drawn above."""
        packet = self._track(uuid, None, rank)
        packet.track_descriptor.process.pid = pid
        packet.track_descriptor.process.process_name = name
        self._put(packet)

    def thread(self, uuid: int, pid: int, tid: int, name: str, rank: int) -> None:
        """A thread of a process."""
        packet = self._track(uuid, None, rank)
        packet.track_descriptor.thread.pid = pid
        packet.track_descriptor.thread.tid = tid
        packet.track_descriptor.thread.thread_name = name
        self._put(packet)

    def named(self, uuid: int, parent: int, name: str, *, counter: bool = False, rank: int = 0) -> None:
        """A track below a process: of slices, or of a counter."""
        packet = self._track(uuid, parent, rank)
        packet.track_descriptor.name = name
        if counter:
            packet.track_descriptor.counter.SetInParent()
        self._put(packet)

    def begin(
        self,
        uuid: int,
        at: int,
        cat: str,
        name: str,
        args: dict[str, object],
        *,
        instant: bool = False,
        flows: list[int] | None = None,
        ends: list[int] | None = None,
    ) -> None:
        """A slice begins, or is a moment. Arrows lead from `flows` of an earlier slice to `ends` of a later one."""
        packet = self._protos.TracePacket()
        event = packet.track_event
        event.type = self._event.TYPE_INSTANT if instant else self._event.TYPE_SLICE_BEGIN
        event.track_uuid = uuid
        if cat:
            event.category_iids.append(self._interned(packet, "event_categories", cat))
        event.name_iid = self._interned(packet, "event_names", name)
        for key, value in args.items():
            self._annotate(
                event.debug_annotations.add(name_iid=self._interned(packet, "debug_annotation_names", key)), value
            )
        if flows:
            event.flow_ids.extend(flows)
        if ends:
            event.terminating_flow_ids.extend(ends)
        self._put_event(packet, at)

    def end(self, uuid: int, at: int) -> None:
        """The slice that began last ends."""
        packet = self._protos.TracePacket()
        packet.track_event.type = self._event.TYPE_SLICE_END
        packet.track_event.track_uuid = uuid
        self._put_event(packet, at)

    def count(self, uuid: int, at: int, value: float) -> None:
        """A value of a counter."""
        packet = self._protos.TracePacket()
        packet.track_event.type = self._event.TYPE_COUNTER
        packet.track_event.track_uuid = uuid
        packet.track_event.double_counter_value = value
        self._put_event(packet, at)

    def flush(self) -> None:
        """Write what is left."""
        self._file.write(b"".join(self._waiting))
        self._waiting.clear()
        self._bytes = 0

    def _track(self, uuid: int, parent: int | None, rank: int) -> Any:
        packet = self._protos.TracePacket()
        packet.track_descriptor.uuid = uuid
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        packet.track_descriptor.sibling_order_rank = rank
        packet.track_descriptor.child_ordering = self._protos.TrackDescriptor.EXPLICIT
        return packet

    def _interned(self, packet: Any, table: str, name: str) -> int:
        """The number of a name; the packet that needs it first says what it is."""
        known = self._names.setdefault(table, {})
        found = known.get(name)
        if found is None:
            found = known[name] = len(known) + 1
            getattr(packet.interned_data, table).add(iid=found, name=text(name))
        return found

    def _annotate(self, into: Any, value: object) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                self._annotate(into.dict_entries.add(name=text(str(key))), one)
        elif isinstance(value, list):
            for one in value:
                self._annotate(into.array_values.add(), one)
        else:
            put_scalar(into, value)

    def _put_event(self, packet: Any, at: int) -> None:
        packet.timestamp = min(max(at, 0), INT64 - 1)  # a damaged file may hold any number
        packet.sequence_flags = self._protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self._put(packet)
        if sum(map(len, self._names.values())) > MOST_NAMES:
            self._names.clear()
            cleared = self._protos.TracePacket(sequence_flags=self._protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
            self._put(cleared)

    def _put(self, packet: Any) -> None:
        packet.trusted_packet_sequence_id = SEQUENCE
        content = packet.SerializeToString()
        self._waiting += (b"\x0a", _varint(len(content)), content)  # a trace is a list of packets: field 1
        self._bytes += len(content)
        if self._bytes > BUFFER:
            self.flush()


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
