"""The output of the black box and the watch: dumps, the first NaN, the last batches."""
