"""A key typed in: where the portal is not on loopback, nobody sees anything before that.

A key is for one of the namespaces that the portal was started with or found; it cannot be used to make the portal connect
elsewhere. Which these are is not said: an unknown namespace and a wrong key get the same answer, after the same while.
"""

import asyncio
from dataclasses import replace
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from twinbus.client.connecting.connection_string import ConnectionString
from twinbus.errors import ArgumentError, MessagingError, Unauthorized
from twinbus.portal.access.visitors import COOKIE, Visitors
from twinbus.portal.form_body import read_form
from twinbus.portal.html.layout import Frame, page
from twinbus.portal.html.parts import button, field, form, hidden, notice, section, text_input
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.directory import Directory, KnownNamespace
from twinbus.portal.settings import PortalSettings

KEY_NAME = "RootManageSharedAccessKey"
REFUSED = (
    "This namespace is unknown here, or the key is not one of its keys. Check the name, the key's name and the key."
)
LOGIN_TIME_S = 1.0
"""A login takes at least this long, so that neither guessing nor measuring gets anywhere."""
LOGINS_AT_ONCE = 4
LENGTH_MAX = 1_000
FORM_SIZE_MAX = 65_536
"""Anybody can send it."""


def routes(visitors: Visitors, directory: Directory, settings: PortalSettings) -> list[Route]:
    turns = asyncio.Semaphore(LOGINS_AT_ONCE)

    async def show(request: Request) -> Response:
        if visitors.is_open:
            return RedirectResponse("/", 303)
        return _page(request.query_params.get("back", "/"))

    async def enter(request: Request) -> Response:
        try:
            sent = dict(await read_form(request, FORM_SIZE_MAX))
        except ArgumentError:
            sent = {}
        back = sent.get("back", "/")
        async with turns:
            least = asyncio.create_task(asyncio.sleep(LOGIN_TIME_S))
            known = await _checked(directory, sent)
            await least
        if known is None:
            return _page(back, sent.get("namespace", ""), sent.get("key_name", ""), REFUSED)
        # Someone who is logged in already gets one more namespace, such as the other one of a pair.
        visitor = await visitors.find(request.cookies.get(COOKIE))
        if visitor is not None:
            visitor.directory.add(known)
        else:
            visitor = await visitors.admit(Directory([known]))
        answer = RedirectResponse(_safe(back), 303)
        answer.set_cookie(COOKIE, visitor.token, secure=settings.uses_tls, httponly=True, samesite="strict", path="/")
        return answer

    async def leave(request: Request) -> Response:
        visitor = await visitors.find(request.cookies.get(COOKIE))
        if visitor is not None and visitor.token:
            await visitors.forget(visitor)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    return [
        Route("/login", show),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
    ]


async def _checked(directory: Directory, sent: dict[str, str]) -> KnownNamespace | None:
    name, key_name, key = (sent.get(part, "").strip()[:LENGTH_MAX] for part in ("namespace", "key_name", "key"))
    # A separator in a key would let it say more than a key: another endpoint.
    if name not in directory.names() or not key or ";" in key + key_name or "=" in key_name:
        return None
    known = replace(directory.reach(name), is_local=False)
    target = directory.get(name).target
    known = replace(known, name=name, connection_string=_connection_string(target, key_name, key))
    bus = Bus(name, known.connection_string, known.endpoint, known.authorities)
    try:
        # Every namespace says whether it accepts a token of the key, whatever the rights of that key are.
        namespace = await bus.amqp()
        await namespace.authorize(f"$portal-{quote(key_name, safe='')}")
    except (MessagingError, OSError):
        return None
    finally:
        await bus.close()
    return known


def _connection_string(target: ConnectionString, key_name: str, key: str) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    plain = "" if target.uses_tls else ";UseDevelopmentEmulator=true"
    port = f":{target.port}" if target.is_port_given else ""
    return f"Endpoint=sb://{host}{port};SharedAccessKeyName={key_name};SharedAccessKey={key}{plain}"


def _safe(back: str) -> str:
    """Only a page of this portal: neither another host nor, by a backslash, one that a browser takes for it."""
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"


def _page(back: str, namespace: str = "", key_name: str = KEY_NAME, problem: str = "") -> Response:
    content = section(
        "Log in",
        notice("bad", problem) if problem else None,
        form(
            "/login",
            hidden(back=_safe(back)),
            field(
                "Namespace", text_input("namespace", namespace, required=True, autofocus=True, autocomplete="username")
            ),
            field("Name of the key", text_input("key_name", key_name, required=True)),
            field("Key", text_input("key", "", type="password", required=True, autocomplete="current-password")),
            button("Log in"),
            class_="stack",
        ),
    )
    status = Unauthorized.status if problem else 200
    return page(Frame(is_bare=True), "twinbus portal", content, status=status)
