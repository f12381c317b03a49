"""Work in the background: the list, one of them with its progress, stop."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import HTMLResponse, Response

from twinbus.errors import EntityNotFound
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Markup, el, join
from twinbus.portal.html.parts import button, button_link, figure, form, link, notice, table, tag
from twinbus.portal.screens.live import ending, event, stream
from twinbus.portal.visit import Visit, go_to
from twinbus.portal.work.jobs import Job, JobState

KINDS = {JobState.RUNNING: "", JobState.DONE: "good", JobState.STOPPED: "warn", JobState.FAILED: "bad"}
REDRAW_S = 0.2
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""A report is one file with its styles in it. Nothing in it can run, send or ask for anything."""


async def show_all(visit: Visit) -> Response:
    rows = [
        (
            link(job.title, f"/jobs/{job.id}"),
            tag(job.state.value, KINDS[job.state]),
            job.done,
            f"{job.seconds:,.0f} s",
            job.said,
        )
        for job in visit.services.jobs.of(visit.visitor.token)
    ]
    text = "Nothing runs. Long actions such as purging or repairing appear here."
    return page(
        visit.frame("jobs"),
        "Running work",
        table(("Action", "State", "Done", "Time", "Said"), rows, "Work", empty=text),
    )


def _job(visit: Visit) -> Job:
    return visit.services.jobs.get(visit.visitor.token, visit.request.path_params["job"])


async def show(visit: Visit) -> Response:
    job = _job(visit)
    content = el("div", progress(job), id="job", data_live=f"/jobs/{job.id}/events", aria_live="polite")
    trail = (link("Running work", "/jobs"),)
    return page(visit.frame("jobs"), job.title, content, trail=trail, tools=button_link("Back", job.back))


async def events(visit: Visit) -> Response:
    job = _job(visit)

    async def follow() -> AsyncIterator[str]:
        while True:
            changed = job.changed
            yield event("job", progress(job))
            if not job.is_running:
                break
            await changed.wait()
            await asyncio.sleep(REDRAW_S)
        yield ending()

    return stream(follow())


async def stop(visit: Visit) -> Response:
    job = _job(visit)
    visit.services.jobs.stop(job)
    return go_to(f"/jobs/{job.id}")


async def report(visit: Visit) -> Response:
    job = _job(visit)
    if job.report is None:
        raise EntityNotFound("This action has no report.")
    return HTMLResponse(job.report, headers={"Content-Security-Policy": REPORT_POLICY})


def progress(job: Job) -> Markup:
    share = el("progress", value=job.done, max=job.total, aria_label="Progress") if job.total else None
    if job.is_running and share is None:
        share = el("progress", aria_label="Progress")
    of_all = f" of {figure(job.total)}" if job.total is not None else ""
    counted = (
        el("p", el("b", figure(job.done)), f"{of_all}, {job.seconds:,.1f} s, {job.rate:,.0f} a second")
        if job.done
        else None
    )
    can_stop = job.is_running and not job.is_stopping
    halt = form(f"/jobs/{job.id}/stop", button("Stop", "bad")) if can_stop else None
    said = notice(KINDS[job.state] or "plain", job.said or ("Stopping…" if job.is_stopping else "Working…"))
    lines = el("pre", "\n".join(job.lines), class_="log", tabindex=0) if job.lines else None
    made = el("p", button_link("Open the report", f"/jobs/{job.id}/report")) if job.report is not None else None
    return join(tag(job.state.value, KINDS[job.state]), said, share, counted, halt, made, lines)


ROUTES = (
    ("GET", "/jobs", show_all),
    ("GET", "/jobs/{job}", show),
    ("GET", "/jobs/{job}/events", events),
    ("GET", "/jobs/{job}/report", report),
    ("POST", "/jobs/{job}/stop", stop),
)
