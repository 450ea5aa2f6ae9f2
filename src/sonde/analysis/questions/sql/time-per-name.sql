-- Where did the time go? Every span by category and name, the most time first.
-- `self_ns` is the time of a span without the spans inside it.
WITH spans AS (
    SELECT process, seq, parent, cat, name, dur_ns, error FROM events WHERE kind = 'span' AND dur_ns IS NOT NULL
), inside AS (
    SELECT process, parent AS seq, sum(dur_ns) AS inside_ns FROM spans WHERE parent IS NOT NULL GROUP BY ALL
)
SELECT cat, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
       sum(greatest(dur_ns - coalesce(inside_ns, 0), 0))::BIGINT AS self_ns,
       quantile_disc(dur_ns, 0.5) AS p50_ns, quantile_disc(dur_ns, 0.99) AS p99_ns, max(dur_ns) AS max_ns,
       count(*) FILTER (error) AS errors
FROM spans LEFT JOIN inside USING (process, seq)
GROUP BY cat, name ORDER BY total_ns DESC, cat, name
