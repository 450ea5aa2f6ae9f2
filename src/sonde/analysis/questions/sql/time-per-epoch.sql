-- How long did each epoch take, and which phase took most of it? Warm-up steps count too.
-- If the program counts no epochs, each iteration over its loader is one.
WITH rounds AS (
    SELECT process, step, min(round) AS round FROM batches WHERE purpose = 'train' AND step IS NOT NULL GROUP BY ALL
)
SELECT coalesce(epoch, round) AS epoch, rank, count(*) AS steps, sum(dur_ns)::BIGINT AS total_ns,
       quantile_disc(dur_ns, 0.5) AS p50_ns, sum(input_wait_ns)::BIGINT AS input_wait_ns,
       sum(forward_ns)::BIGINT AS forward_ns, sum(backward_ns)::BIGINT AS backward_ns,
       sum(optimizer_ns)::BIGINT AS optimizer_ns, sum(communication_ns)::BIGINT AS communication_ns,
       sum(evaluation_ns)::BIGINT AS evaluation_ns, sum(residual_ns)::BIGINT AS residual_ns,
       avg(loss) FILTER (isfinite(loss)) AS mean_loss
FROM steps LEFT JOIN rounds USING (process, step)
GROUP BY 1, rank ORDER BY 1 NULLS LAST, rank NULLS FIRST
