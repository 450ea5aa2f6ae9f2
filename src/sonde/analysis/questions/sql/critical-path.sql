-- What determined the time of a step? For each phase the slowest rank, and how much longer it took than the median rank.
-- `--step N` chooses the step; without it, the slowest one after warm-up.
WITH chosen AS (
    SELECT coalesce($step, (SELECT step FROM steps WHERE NOT warmup GROUP BY step ORDER BY max(dur_ns) DESC, step LIMIT 1)) AS step
), parts AS (
    SELECT p.step, p.phase, p.rank, p.start_ns, p.dur_ns FROM phases p JOIN chosen USING (step)
)
SELECT step, phase, arg_max(rank, dur_ns) AS slowest_rank, max(dur_ns) AS dur_ns,
       CASE WHEN count(*) > 1 THEN max(dur_ns) - quantile_disc(dur_ns, 0.5) END AS beyond_median_ns,
       min(start_ns) AS start_ns,
       max(dur_ns) / sum(max(dur_ns)) OVER () AS share
FROM parts GROUP BY step, phase ORDER BY min(start_ns) NULLS LAST, phase
