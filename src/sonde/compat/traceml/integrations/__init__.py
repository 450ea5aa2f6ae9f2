"""TraceML's integrations, one framework per module: `huggingface` and `lightning`."""
