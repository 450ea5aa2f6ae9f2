-- When did the training thread record nothing? Its longest gaps, with the spans before and after.
WITH thread AS (
    SELECT process, lane FROM events WHERE cat = 'probe' AND name = 'update' GROUP BY ALL
    UNION SELECT process, lane FROM events WHERE cat = 'compute' AND kind = 'span' GROUP BY ALL
), roots AS (
    SELECT e.rank, e.process, e.lane, e.step, e.cat || '.' || e.name AS name, e.start_ns, e.start_ns + e.dur_ns AS end_ns
    FROM events e JOIN thread USING (process, lane)
    WHERE e.kind = 'span' AND e.dur_ns IS NOT NULL AND e.depth = 0
), gaps AS (
    SELECT rank, step, lag(name) OVER w AS after_span, name AS before_span, process, start_ns AS until_ns,
           max(end_ns) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS start_ns
    FROM roots WINDOW w AS (PARTITION BY process, lane ORDER BY start_ns, end_ns)
)
SELECT until_ns - start_ns AS dur_ns, rank, step, after_span, before_span, start_ns, process
FROM gaps WHERE until_ns > start_ns ORDER BY dur_ns DESC, start_ns
