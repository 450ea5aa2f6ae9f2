-- Which items have the highest loss? Mean, highest and latest value that `sonde.log_items` recorded for each item.
SELECT purpose, name, "index", id, count(*) AS times, avg(value) FILTER (isfinite(value)) AS mean,
       max(value) FILTER (isfinite(value)) AS highest, arg_max(value, step) AS latest,
       count(*) FILTER (NOT isfinite(value)) AS nonfinite
FROM item_values WHERE "index" IS NOT NULL OR id IS NOT NULL
GROUP BY purpose, name, "index", id ORDER BY nonfinite DESC, mean DESC NULLS LAST, purpose, name, "index", id
