"""Reads of views: the HTTP server, what is asked and answered, and the clients."""
