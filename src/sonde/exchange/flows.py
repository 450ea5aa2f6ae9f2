"""Links in a run: from an item to its batch, and from a batch to the step that used it.

`ITEM_TO_BATCH` and `BATCH_TO_STEP` give the process, number, lane and time of the one, and the process, track and time of the other.
"""

from __future__ import annotations

from sonde.exchange.tracks import BATCHES, STEPS
from sonde.store import probe

BATCH_READY = f"""
    SELECT b.*, w.key, b.start_ns + b.wait_ns AS ready FROM batches b JOIN events w ON w.process = b.process AND w.start_ns = b.start_ns
    WHERE w.kind = 'span' AND w.cat = '{probe.PROBE}' AND w.name IN ('{probe.INPUT_WAIT}', '{probe.PREFETCH}') AND b.wait_ns IS NOT NULL
"""
_ITEMS = f"""
    SELECT i.process, i.seq, coalesce(i.lane, 0) AS lane, i.start_ns, o.process AS owner, f.key
    FROM events i JOIN events f ON f.process = i.process AND f.seq = i.parent AND f.cat = '{probe.PROBE}' AND f.name = '{probe.FETCH}'
    JOIN process_numbers n ON n.process = i.process JOIN process_numbers o ON o.number = n.owner
    WHERE i.cat = '{probe.PROBE}' AND i.name = '{probe.ITEM}'
"""
ITEM_TO_BATCH = f"""
    SELECT i.process, i.seq, i.lane, i.start_ns, b.process, {BATCHES}, b.ready
    FROM ({_ITEMS}) i JOIN ({BATCH_READY}) b ON b.process = i.owner AND b.key = i.key AND b.ready >= i.start_ns
    ORDER BY ALL
"""
BATCH_TO_STEP = f"""
    SELECT b.process, 0, {BATCHES}, b.ready, s.process, {STEPS}, s.start_ns + greatest(s.dur_ns - 1, 0)
    FROM ({BATCH_READY}) b JOIN steps s ON s.process = b.process AND s.step = b.step
    WHERE b.purpose <> 'evaluate' AND b.ready < s.start_ns + s.dur_ns
    ORDER BY ALL
"""

# Each batch once for each of its items, and each step once for each of its batches; at least once.
BATCHES_WITH_ITEMS = f"""
    SELECT b.process, b.key, b.ready, b.batch, b.step, i.process, i.seq, i.start_ns, b.start_ns
    FROM ({BATCH_READY}) b LEFT JOIN ({_ITEMS}) i ON b.process = i.owner AND b.key = i.key AND b.ready >= i.start_ns
    ORDER BY ALL
"""
STEPS_WITH_BATCHES = f"""
    SELECT s.process, s.start_ns, s.dur_ns, s.step, s.epoch, s.loss, b.key, b.ready
    FROM steps s LEFT JOIN ({BATCH_READY}) b
        ON s.process = b.process AND s.step = b.step AND b.purpose <> 'evaluate' AND b.ready < s.start_ns + s.dur_ns
    ORDER BY ALL
"""
