"""A small OpenID Connect provider: everybody who comes to it is `user`, and its answers can be made wrong.

Real RS256 keys, codes that count once, PKCE that is checked. `logins_url` is what a browser would be sent to.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from suiro.foundation.http import HttpServer, listen_on

CLIENT_ID, SECRET = "suiro-console", "s3cret:/ of the console"
Claims = dict[str, Any]


class OidcProvider:
    """`claims` go into tokens; `token(claims)` makes one, and a test may put another in its place. `asked` counts the
    requests by path; `answers` are given in place of its own, by path."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.reset()
        self._codes: dict[str, dict[str, str]] = {}
        paths = {
            "/.well-known/openid-configuration": self._document,
            "/authorize": self._authorize,
            "/token": self._token,
            "/keys": self._keys,
            "/end": lambda _: Response("logged out"),
        }
        routes = [Route(path, self._counted(path, make), methods=["GET", "POST"]) for path, make in paths.items()]
        self._server = HttpServer(Starlette(routes=routes), listen_on("127.0.0.1", 0, name="test"), name="oidc")
        self.issuer = self._server.url

    def reset(self) -> None:
        self.claims: Claims = {"sub": "ada", "roles": ["kafka-admins"]}
        self.token: Callable[[Claims], str] = self.signed
        self.published = [self.key]
        self.asked: dict[str, int] = {}
        self.answers: dict[str, Callable[[], Response]] = {}

    def stop(self) -> None:
        self._server.stop()

    def signed(self, claims: Claims, *, key: Any = None, **header: Any) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one", **header}, claims, key or self.key)

    def signed_with_public_key(self, claims: Claims) -> str:
        """HS256 with what everybody knows of the key: what a careless reader takes for a signature."""
        key = OctKey.import_key(self.key.as_pem(private=False))
        return jwt.encode({"alg": "HS256", "kid": "one"}, claims, key)

    def _counted(self, path: str, make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            self.asked[path] = self.asked.get(path, 0) + 1
            if path in self.answers:
                return self.answers[path]()
            made = make(request)
            return made if isinstance(made, Response) else await made

        return answer

    def _document(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "end_session_endpoint": f"{self.issuer}/end",
            }
        )

    def _keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [key.as_dict(private=False) for key in self.published]})

    def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert (asked["client_id"], asked["response_type"]) == (CLIENT_ID, "code")
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", status_code=303)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        asked = self._codes.pop(form.get("code", ""), None)
        login = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or login != f"{CLIENT_ID}:{SECRET}"
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return JSONResponse({"access_token": "opaque", "token_type": "Bearer", "id_token": self.token(claims)})
