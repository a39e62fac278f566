"""Interactive queries: reading a named store while its application runs."""
