"""What several tests share; pytest puts tests/ on the path (pyproject.toml)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
