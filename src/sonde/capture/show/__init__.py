"""How a trace looks, as text and as a page."""
