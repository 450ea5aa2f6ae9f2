"""Which files are read, how much of them and how long, for which item. Only with the setting `io`."""
