-- How many spans were open at the same time, over all processes and threads? Time at each level.
WITH edges AS (
    SELECT start_ns AS moment, 1 AS change FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL AND depth = 0
    UNION ALL
    SELECT start_ns + dur_ns, -1 FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL AND depth = 0
), moments AS (
    SELECT moment, sum(change) AS change FROM edges GROUP BY moment
), levels AS (
    SELECT sum(change) OVER (ORDER BY moment) AS spans, lead(moment) OVER (ORDER BY moment) - moment AS dur_ns FROM moments
)
SELECT spans::BIGINT AS spans, sum(dur_ns)::BIGINT AS dur_ns, sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share
FROM levels WHERE dur_ns IS NOT NULL GROUP BY spans ORDER BY spans
