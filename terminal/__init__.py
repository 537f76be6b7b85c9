"""EVI in a terminal, over HTTP only: what `cli.py` opens the door to."""
