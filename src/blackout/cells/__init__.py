"""Single cells."""
