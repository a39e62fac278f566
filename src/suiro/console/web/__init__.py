"""The console: an HTTP API over what suiro knows of a cluster, and a page for browsers (`page/`).

- `serving`: until a signal. `application`: HTTP. `endpoint`: what an endpoint is. `api`: the endpoints, by page.
- `console`: settings, and clients to borrow. `model`: what is known of the cluster, without anybody's waiting.
- `login`: by an OpenID Connect provider (`oidc`), with `sessions`; loaded where one was named.
- `record_json`, `masks`: records as those who ask may see them. `events`, `files`, `openapi`: what is sent.
"""

from __future__ import annotations

from suiro.console.web.console import Console, ConsoleSettings, Remote
from suiro.console.web.masks import Masks
from suiro.console.web.serving import ConsoleServer, serve

__all__ = ["Console", "ConsoleServer", "ConsoleSettings", "Masks", "Remote", "serve"]
