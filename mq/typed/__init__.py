"""From a declared type to functions that check, encode and decode its values."""
