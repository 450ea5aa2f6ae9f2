"""Benchmarks: Sonde beside its peers, in interleaved rounds of one run, as CPU time. `make bench` runs them."""
