"""What the black box and the watch left: dumps, the first NaN, the last batches."""
