"""Training scripts with one fault each, healthy ones beside them, and how often the diagnosis names the right one."""
