"""The process and its host: memory, collections, stacks, children, ranks."""
