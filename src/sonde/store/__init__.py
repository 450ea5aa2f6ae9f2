"""The store: the run folder that the recording half writes and the reading half reads, and nothing else between them."""
