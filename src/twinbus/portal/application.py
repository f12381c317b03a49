"""All pages put together: who asks is found, the screen answers, and every error becomes a sentence on a page."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from twinbus.errors import MessagingError, Unauthorized
from twinbus.portal.access.guard import Guard
from twinbus.portal.access.visitors import COOKIE, Visitors
from twinbus.portal.html.layout import Frame, page
from twinbus.portal.html.parts import address, button_link, notice
from twinbus.portal.namespaces.directory import Directory
from twinbus.portal.namespaces.sentences import sentence_of
from twinbus.portal.screens import ROUTES, login
from twinbus.portal.settings import PortalSettings
from twinbus.portal.visit import Services, Visit

log = logging.getLogger(__name__)

STATIC = {"portal.css": "text/css", "portal.js": "text/javascript", "icon.svg": "image/svg+xml"}
UNEXPECTED = 500

Screen = Callable[[Visit], Awaitable[Response]]


def portal_application(settings: PortalSettings, directory: Directory) -> ASGIApp:
    """Open to everyone on loopback; elsewhere a key has to be typed in."""
    visitors = Visitors(is_open=settings.is_loopback, directory=directory)
    services = Services(settings)

    def screen(show: Screen) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            visitor = await visitors.find(request.cookies.get(COOKIE))
            if visitor is None:
                back = str(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(address("/login", back=back), 303)
            visit = Visit(request, visitor, services)
            try:
                return await show(visit)
            except Exception as error:
                return _refusal(visit, error)

        return respond

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        await services.jobs.close()
        await visitors.close()

    routes = [
        Route("/static/{name}", _static),
        *login.routes(visitors, directory, settings),
        *(Route(path, screen(show), methods=[method]) for method, path, show in ROUTES),
    ]
    application = Starlette(routes=routes, lifespan=life, exception_handlers={404: _not_found})
    return Guard(application, settings.names, uses_tls=settings.uses_tls, is_for_owner=settings.is_loopback)


def _refusal(visit: Visit, error: Exception) -> Response:
    text = sentence_of(error)
    status = error.status if isinstance(error, MessagingError) else UNEXPECTED
    if text is None:
        log.exception("page=%s", visit.request.url.path)
        text = "Something unexpected happened. Details are in the portal's log; please report it as a bug."
    if isinstance(error, Unauthorized):
        status = 403  # 401 would ask the browser for a password that does not exist
    if "application/json" in visit.request.headers.get("accept", ""):
        return JSONResponse({"error": text}, status)
    back = button_link("To the overview", "/")
    return page(visit.frame(""), "This did not work", notice("bad", text), back, status=status)


async def _not_found(request: Request, _: Exception) -> Response:
    return page(Frame(is_bare=True), "There is no such page", button_link("To the overview", "/"), status=404)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return PlainTextResponse("There is no such file.", 404)
    content = resources.files("twinbus.portal").joinpath("static", name).read_bytes()
    # Small enough to be asked for again; a new version must not meet an old script.
    return Response(content, media_type=STATIC[name], headers={"Cache-Control": "no-cache"})
