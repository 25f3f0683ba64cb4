"""Who may ask the server: pages of its own, from this machine, or with the token that it printed.

A page of another site must learn nothing, even if its name is made to resolve to this machine (DNS rebinding):
requests must name a host that is ours, and an Origin, where there is one, must be that host.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "nfdrl"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Rules:
    """Whom the server answers: the names by which it may be called, and the token it asks for, if any."""

    hosts: frozenset[str]
    addresses: bool = False  # whether any IP address is a name of ours
    token: str | None = None

    @classmethod
    def for_host(cls, host: str, also: Iterable[str] = ()) -> Rules:
        """Rules for an address to listen on; any but the loopback gets a token."""
        if is_loopback(host):
            return cls(LOOPBACK | {host, *also})
        return cls(LOOPBACK | {host, *also}, addresses=host in ("0.0.0.0", "::", ""), token=secrets.token_urlsafe(24))

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server; the port does not matter, since it may be forwarded."""
        name = host.lower()
        name = name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() else name
        return name in self.hosts or (self.addresses and _is_address(name))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host == "localhost" or (_is_address(host) and ip_address(host.strip("[]")).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Guard:
    """Refuses what the rules do not allow, before anything else sees it, and adds the security headers."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        answer = self._answer(scope)
        if answer is None:
            await self.app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": ""})  # before it is accepted: HTTP 403
        else:
            await answer(scope, receive, _with_headers(send))

    def _answer(self, scope: Scope) -> Response | None:
        """The refusal of a request, or None if it may pass."""
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = found.get("host", []), found.get("origin", [])
        if len(hosts) != 1 or not self.rules.knows(hosts[0]):
            return PlainTextResponse("unknown host: open the address that nfdrl printed", 421)
        ours = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in ours for origin in origins) or (scope["type"] == "websocket" and not origins):
            return PlainTextResponse("another site may not ask this server", 403)
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this server only shows: GET or HEAD", 405)
        return self._check_token(scope, found.get("cookie", []))

    def _check_token(self, scope: Scope, cookies: list[str]) -> Response | None:
        token = self.rules.token
        if token is None or _same(_cookie(cookies), token):
            return None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["type"] == "http" and scope["path"] == "/" and _same(given, token):
            answer = RedirectResponse("/", 303)  # so that the token does not stay in the address bar
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return answer
        return PlainTextResponse("open the address with the token that nfdrl printed", 401)


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _cookie(values: list[str]) -> str:
    try:
        found = SimpleCookie("; ".join(values))
    except CookieError:
        return ""
    return found[COOKIE].value if COOKIE in found else ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending
