from typing import Any

Result = tuple[int, Any]  # exit status, and the document that --json prints
