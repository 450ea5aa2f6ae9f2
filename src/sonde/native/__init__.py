"""The C parts, built where there is a compiler. Each has a twin or a plain fallback in Python."""
