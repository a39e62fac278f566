"""Connections: the listening sockets, frames in and answers out, TLS, and the memory and turns that a peer may take."""
