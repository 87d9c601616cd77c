"""Value losses."""
