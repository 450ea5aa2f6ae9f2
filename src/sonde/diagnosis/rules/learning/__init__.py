"""Rules about learning itself, one finding in each file. Those that need `--learning` say so."""
