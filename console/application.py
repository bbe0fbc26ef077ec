"""The ASGI application under /ui: finds the page, reads forms, renders templates."""

from __future__ import annotations

import asyncio
import pathlib
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from magnetar.console import gate, views
from magnetar.console.actions import ACTIONS, Action, BadFormError, page_of
from magnetar.console.gate import CLOSED, is_open
from magnetar.console.inner_calls import InnerCalls
from magnetar.console.pages import PAGES, Refused, Visit
from magnetar.console.places import Places, TooManyWaitError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Console"]

_HERE: Final = pathlib.Path(__file__).resolve().parent
_MOST_FORM_BYTES: Final = 1 << 20
_MOST_FIELDS: Final = 50
_AT_WORK: Final = 4
_AT_WORK_OF_ADDRESS: Final = 3
_MOST_WAITING: Final = 256
_MOST_WAITING_OF_ADDRESS: Final = 64
"""The most requests whose page is made, and that wait, in all and of an address: they bound the console's memory."""
_FORM_SLICE_BYTES: Final = 8192
"""Bytes of a form that are decoded in one turn of the event loop; each may be the third part of a character."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _BadRequestError(ValueError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Console:
    """Serves /ui.

    rest: the REST API as an ASGI application; the console calls nothing else.
    authentication_enabled: whether visitors must prove a role.

    A request whose client has left raises ClientDisconnect; errors of `receive` pass through.
    """

    def __init__(self, rest: ASGIApp, *, authentication_enabled: bool) -> None:
        self._rest = rest
        self._authentication_enabled = authentication_enabled
        self._places = Places(_AT_WORK, _AT_WORK_OF_ADDRESS, _MOST_WAITING_OF_ADDRESS, _MOST_WAITING)
        self._static = StaticFiles(directory=_HERE / "static")
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            size=views.size, amount=views.amount, moment=views.moment, ago=lambda ms: views.ago(ms, time.time() * 1000)
        )
        self._templates.globals["page_of"] = page_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].removeprefix("/ui").strip("/")
        if path.startswith("static/") and request.method in ("GET", "HEAD"):
            response = await self._file(path.removeprefix("static/"), scope)
        elif not is_open(scope, authentication_enabled=self._authentication_enabled):
            response = self._page("refused.html", 403, text=CLOSED, visitor=None)
        else:
            response = await self._answer(request, path)
        for name, value in _HEADERS.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _file(self, name: str, scope: Scope) -> Response:
        try:
            return await self._static.get_response(name, scope)
        except HTTPException as e:
            return Response(status_code=e.status_code)

    async def _answer(self, request: Request, path: str) -> Response:
        try:  # before the request counts as waiting: a form that arrives slowly blocks no other page
            body = await _body(request) if request.method == "POST" else b""
            async with self._places.place(request.client.host if request.client else "") as has_waited:
                if has_waited and await request.is_disconnected():
                    raise ClientDisconnect  # the page would delay those of visitors that stayed
                return await self._made(request, path, await _form(body))
        except TooManyWaitError:
            return self._refused(503, "Too many requests for pages at once.")
        except _BadRequestError as e:
            return self._refused(e.status, str(e))

    async def _made(self, request: Request, path: str, form: dict[str, str]) -> Response:
        try:
            if request.method == "POST":
                return await self._post(request, path, form)
            if request.method not in ("GET", "HEAD"):
                return self._refused(405, "This address takes GET and POST.")
            return await self._get(request, path)
        except BadFormError as e:
            return self._refused(400, str(e))
        except Refused as e:
            return self._refused_call(request, e.status, e.reason)

    # --- pages ------------------------------------------------------------------------------------------------------

    async def _get(self, request: Request, path: str) -> Response:
        page = PAGES.get(path)
        if page is None:
            return self._refused(404, "There is no such page.")
        if path == "login":
            return self._page("login.html", 200, visitor=None, error="")
        visit = self._visit(request)
        values = await page.load(visit)
        done = ACTIONS.get(request.query_params.get("done", ""))
        return self._page(page.template, 200, said=done.done if done else "", visitor=self._visitor(request), **values)

    def _visit(self, request: Request) -> Visit:
        authorization = gate.header_of(request.headers.get("cookie", ""))
        return Visit(InnerCalls(self._rest, request.scope, authorization), request.query_params)

    def _visitor(self, request: Request) -> str | None:
        """`signed in` or `not signed in`; None when the broker does not authenticate visitors."""
        if not self._authentication_enabled:
            return None
        return "signed in" if gate.header_of(request.headers.get("cookie", "")) else "not signed in"

    def _page(self, template: str, status: int, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    def _refused(self, status: int, text: str) -> HTMLResponse:
        return self._page("refused.html", status, text=text, visitor=None)

    def _refused_call(self, request: Request, status: int, reason: str) -> Response:
        """Redirect a visitor without credentials to the login form; show any other visitor the refusal's reason."""
        if self._authentication_enabled and not gate.header_of(request.headers.get("cookie", "")):
            return RedirectResponse("/ui/login", 303)
        if status == 401 and not reason:
            reason = "These credentials are not accepted."
        return self._refused(status, reason)

    # --- forms ------------------------------------------------------------------------------------------------------

    async def _post(self, request: Request, path: str, form: dict[str, str]) -> Response:
        if path == "login":
            return await self._sign_in(request, form)
        if path == "logout":
            response: Response = RedirectResponse("/ui/login", 303)
            response.headers["Set-Cookie"] = gate.forget_cookie(secure=request.url.scheme == "https")
            return response
        name = path.removeprefix("do/")
        action = ACTIONS.get(name) if path.startswith("do/") else None
        if action is None:
            return self._refused(404, "There is no such action.")
        return await self._act(request, name, action, form)

    async def _act(self, request: Request, name: str, action: Action, form: dict[str, str]) -> Response:
        call = action.call(form)
        answer = await self._visit(request).rest.call(*call)
        failed = _failed_message(answer.json()) if name == "publish" else None
        if not answer.ok or failed:
            return self._refused_call(request, answer.status if not answer.ok else 400, failed or answer.reason)
        back = action.back(form)
        return RedirectResponse(f"{back}{'&' if '?' in back else '?'}done={name}", 303)

    async def _sign_in(self, request: Request, form: dict[str, str]) -> Response:
        import base64  # noqa: PLC0415 - with the form alone

        if form.get("token", "").strip():
            authorization = f"Bearer {form['token'].strip()}"
        else:
            pair = f"{form.get('user', '')}:{form.get('password', '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = await InnerCalls(self._rest, request.scope, authorization).get("/admin/v2/clusters")
        if not answer.ok:
            return self._page("login.html", 401, visitor=None, error="These credentials are not accepted.")
        try:
            kept = gate.cookie(authorization, secure=request.url.scheme == "https")
        except ValueError as e:
            return self._page("login.html", 400, visitor=None, error=str(e))
        response = RedirectResponse("/ui/", 303)
        response.headers["Set-Cookie"] = kept
        return response


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise _BadRequestError(415, "A form of this console is application/x-www-form-urlencoded.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            raise _BadRequestError(413, "The form is too large.")
    return bytes(body)


async def _form(body: bytes) -> dict[str, str]:
    """Decode the fields of a form like `urllib.parse.parse_qsl`, in slices."""
    if not body.isascii() or body.count(b"&") >= _MOST_FIELDS:
        raise _BadRequestError(400, "The form cannot be read.")
    fields = {}
    for field in filter(None, body.split(b"&")):
        name, _, value = field.partition(b"=")
        fields[await _text(name)] = await _text(value)
    return fields


async def _text(quoted: bytes) -> str:
    """Decode a percent-encoded text, a slice in each turn of the event loop."""
    plain, at = bytearray(), 0
    while at < len(quoted):
        end = at + _FORM_SLICE_BYTES
        escape = quoted.rfind(b"%", end - 2, end)
        if escape >= 0 and end < len(quoted):
            end = escape
        plain += unquote_to_bytes(quoted[at:end].replace(b"+", b" "))
        at = end
        await asyncio.sleep(0)
    return plain.decode("utf-8", "replace")


def _failed_message(answer: Any) -> str | None:
    """Why the message of a produce request is not stored; None for a stored message."""
    results = (answer or {}).get("messagePublishResults") if isinstance(answer, dict) else None
    if not results or not results[0].get("errorCode"):
        return None
    return str(results[0].get("errorMsg") or "the message is not stored")
