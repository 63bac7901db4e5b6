"""The local web page of `blackout web`."""
