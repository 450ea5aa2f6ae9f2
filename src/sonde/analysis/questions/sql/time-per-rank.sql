-- Which rank is slow, and in which phase? Steps after warm-up.
SELECT rank, host, pid, count(*) AS steps, quantile_disc(dur_ns, 0.5) AS p50_ns, max(dur_ns) AS max_ns,
       sum(dur_ns)::BIGINT AS total_ns, sum(input_wait_ns)::BIGINT AS input_wait_ns, sum(forward_ns)::BIGINT AS forward_ns,
       sum(backward_ns)::BIGINT AS backward_ns, sum(optimizer_ns)::BIGINT AS optimizer_ns,
       sum(communication_ns)::BIGINT AS communication_ns, sum(residual_ns)::BIGINT AS residual_ns
FROM steps WHERE NOT warmup GROUP BY rank, host, pid ORDER BY rank NULLS FIRST, host, pid
