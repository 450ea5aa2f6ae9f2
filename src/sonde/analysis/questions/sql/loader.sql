-- Which stage of a loader is slow, and do finished batches wait for the trainer? Times of a batch, on average.
-- `ready` is how many finished batches there were on average; `empty_share` of requests found none; `transfer_ns` is from when a
-- batch was finished, or asked for if that was later, until the trainer had it; `computing_ns` is until it asks for the next one.
WITH seen AS (
    SELECT *, start_ns + wait_ns AS taken_ns, lead(start_ns) OVER (PARTITION BY process, loader, round ORDER BY start_ns) AS next_ns
    FROM batches WHERE wait_ns IS NOT NULL AND made_ns IS NOT NULL AND loader IS NOT NULL
)
SELECT rank, loader, round, any_value(purpose) AS purpose, count(DISTINCT worker) AS workers, count(*) AS batches,
       avg(fetch_ns - collate_ns)::BIGINT AS items_ns, avg(collate_ns)::BIGINT AS collate_ns,
       avg(taken_ns - greatest(made_ns, start_ns)) FILTER (worker IS NOT NULL)::BIGINT AS transfer_ns,
       avg(wait_ns)::BIGINT AS wait_ns, avg(next_ns - taken_ns)::BIGINT AS computing_ns,
       (median(taken_ns - made_ns) FILTER (worker IS NOT NULL))::BIGINT AS ready_ns,
       sum(greatest(taken_ns - made_ns, 0)) FILTER (worker IS NOT NULL) / nullif(max(taken_ns) - min(start_ns), 0) AS ready,
       avg((made_ns > start_ns)::INTEGER) FILTER (worker IS NOT NULL) AS empty_share
FROM seen GROUP BY process, rank, loader, round ORDER BY rank NULLS FIRST, process, min(start_ns)
