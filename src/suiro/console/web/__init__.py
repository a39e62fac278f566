"""The web console: an HTTP API for a cluster, and a page for browsers (`page/`).

- `serving`: runs the server until a signal. `application`: HTTP. `endpoint`: the definition of an endpoint, and the
  OpenAPI document. `api`: the endpoints, by page.
- `console`: settings, and clients to borrow. `model`: the state of the cluster, read in the background.
- `login`: logins by an OpenID Connect provider (`oidc`), and their sessions; loaded only if a provider is configured.
- `record_json`, `masks`: records, restricted to what a user may see. `streams`: server-sent events.
"""

from __future__ import annotations

from suiro.console.web.console import Console, ConsoleSettings, Remote
from suiro.console.web.masks import Masks
from suiro.console.web.serving import ConsoleServer, serve

__all__ = ["Console", "ConsoleServer", "ConsoleSettings", "Masks", "Remote", "serve"]
