-- Which items got worse? A value of `sonde.log_items` above the one before it for the same item, and by how much.
SELECT purpose, name, "index", id, step, earlier, value, value - earlier AS rise FROM (
    SELECT *, lag(value) OVER (PARTITION BY process, purpose, name, "index", id ORDER BY step) AS earlier
    FROM item_values WHERE isfinite(value) AND ("index" IS NOT NULL OR id IS NOT NULL)
) WHERE value > earlier ORDER BY rise DESC, step, "index", id
