-- How much of the loading overlaps with computing? Time in which the loaders of a rank fetched while its model computed.
WITH kinds AS (
    SELECT coalesce(rank, -1) AS rank, start_ns, start_ns + dur_ns AS end_ns,
           CASE WHEN (cat = 'probe' AND name = 'fetch') OR (cat = 'dataloader' AND name = 'fetch') THEN 0
                WHEN cat = 'probe' AND name IN ('forward', 'backward', 'optimizer') THEN 1
                WHEN cat = 'compute' THEN 1 END AS kind
    FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL
), edges AS (
    SELECT rank, start_ns AS moment, (kind = 0)::INT AS measured, (kind = 1)::INT AS compute FROM kinds WHERE kind IS NOT NULL
    UNION ALL SELECT rank, end_ns, -(kind = 0)::INT, -(kind = 1)::INT FROM kinds WHERE kind IS NOT NULL
-- include overlap
SELECT rank, measured_ns AS loading_ns, computing_ns, both_ns, hidden_share FROM overlap ORDER BY rank
