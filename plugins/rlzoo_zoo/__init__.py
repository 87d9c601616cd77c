"""The zoo: one algorithm per file, found through the same entry point group as any plugin."""
