-- How much of the communication overlaps with computing in other threads?
-- A collective inside a forward or backward pass interrupts it, so it does not overlap. Collectives that DistributedDataParallel starts
-- itself leave no span: `communication_ns` in `steps` has what it could not hide.
WITH kinds AS (
    SELECT coalesce(rank, -1) AS rank, process, seq, parent, start_ns, start_ns + dur_ns AS end_ns,
           CASE WHEN (cat = 'probe' AND starts_with(name, 'communication.')) OR cat = 'comm' THEN 0
                WHEN cat = 'probe' AND name IN ('forward', 'backward', 'optimizer') THEN 1
                WHEN cat = 'compute' THEN 1 END AS kind
    FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL
), stopping AS (
    SELECT inner_span.rank, inner_span.start_ns, inner_span.end_ns
    FROM kinds inner_span JOIN kinds outer_span ON outer_span.process = inner_span.process AND outer_span.seq = inner_span.parent
    WHERE inner_span.kind = 0 AND outer_span.kind = 1
), edges AS (
    SELECT rank, start_ns AS moment, (kind = 0)::INT AS measured, (kind = 1)::INT AS compute FROM kinds WHERE kind IS NOT NULL
    UNION ALL SELECT rank, end_ns, -(kind = 0)::INT, -(kind = 1)::INT FROM kinds WHERE kind IS NOT NULL
    UNION ALL SELECT rank, start_ns, 0, -1 FROM stopping
    UNION ALL SELECT rank, end_ns, 0, 1 FROM stopping
-- include overlap
SELECT rank, measured_ns AS communication_ns, computing_ns, both_ns, hidden_share FROM overlap ORDER BY rank
