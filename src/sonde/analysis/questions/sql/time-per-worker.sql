-- Do loader workers share the work evenly? Batches by the worker that loaded them; no worker: the training process.
SELECT rank, loader, worker, count(*) AS batches, sum(size)::BIGINT AS samples, sum(fetch_ns)::BIGINT AS fetch_ns,
       quantile_disc(fetch_ns, 0.5) AS p50_fetch_ns, max(fetch_ns) AS max_fetch_ns,
       sum(wait_ns)::BIGINT AS wait_ns, max(wait_ns) AS max_wait_ns
FROM batches GROUP BY rank, loader, worker ORDER BY rank NULLS FIRST, loader, worker NULLS FIRST
