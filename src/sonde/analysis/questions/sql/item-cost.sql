-- Which items take longest to load? `extra_ns` is the time beyond that of the median item, over all loads of an item.
WITH loads AS (SELECT "index", id, worker, step, dur_ns FROM items WHERE dur_ns IS NOT NULL AND NOT error),
     middle AS (SELECT quantile_disc(dur_ns, 0.5) AS p50 FROM loads)
SELECT "index", id, count(*) AS loads, quantile_disc(dur_ns, 0.5) AS p50_ns, max(dur_ns) AS max_ns,
       sum(dur_ns)::BIGINT AS total_ns, sum(greatest(dur_ns - p50, 0))::BIGINT AS extra_ns,
       list_sort(list(DISTINCT step) FILTER (step IS NOT NULL)) AS steps
FROM loads, middle GROUP BY "index", id ORDER BY extra_ns DESC, total_ns DESC, "index", id
