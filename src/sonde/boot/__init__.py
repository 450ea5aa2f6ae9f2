"""The folder that `sonde run` puts first on the path of Python: its sitecustomize.py runs at each start of Python."""
