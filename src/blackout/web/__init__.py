"""The page of `blackout web`."""
