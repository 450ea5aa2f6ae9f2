-- How much of the loading is hidden behind computing? Time in which the loaders of a rank fetched while its model worked.
WITH kinds AS (
    SELECT coalesce(rank, -1) AS rank, start_ns, start_ns + dur_ns AS end_ns,
           CASE WHEN (cat = 'probe' AND name = 'fetch') OR (cat = 'dataloader' AND name = 'fetch') THEN 0
                WHEN cat = 'probe' AND name IN ('forward', 'backward', 'optimizer') THEN 1
                WHEN cat = 'compute' THEN 1 END AS kind
    FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL
), edges AS (
    SELECT rank, start_ns AS moment, (kind = 0)::INT AS load, (kind = 1)::INT AS compute FROM kinds WHERE kind IS NOT NULL
    UNION ALL SELECT rank, end_ns, -(kind = 0)::INT, -(kind = 1)::INT FROM kinds WHERE kind IS NOT NULL
), moments AS (
    SELECT rank, moment, sum(load) AS load, sum(compute) AS compute FROM edges GROUP BY ALL
), levels AS (
    SELECT rank, sum(load) OVER w > 0 AS load, sum(compute) OVER w > 0 AS compute, lead(moment) OVER w - moment AS dur
    FROM moments WINDOW w AS (PARTITION BY rank ORDER BY moment)
)
SELECT nullif(rank, -1) AS rank, coalesce(sum(dur) FILTER (load), 0)::BIGINT AS loading_ns,
       coalesce(sum(dur) FILTER (compute), 0)::BIGINT AS computing_ns,
       coalesce(sum(dur) FILTER (load AND compute), 0)::BIGINT AS both_ns,
       sum(dur) FILTER (load AND compute) / nullif(sum(dur) FILTER (load), 0) AS hidden_share
FROM levels GROUP BY rank ORDER BY rank
