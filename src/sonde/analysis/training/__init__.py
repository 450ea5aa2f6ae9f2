"""From events to steps, phases and batches."""
