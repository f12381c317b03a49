"""The portal: namespaces in a browser, twinbus or Azure, from a process of its own.

application     all pages put together, and who may see them
serving         the process: the application on a socket that listening opened, until it is asked to stop
form_body       what a form sent
settings        what the portal is started with
visit           one request: who asks, and what a screen needs to answer
access          Host, Origin, headers of safety; who is logged in
namespaces      namespaces as any client reaches them
messages        messages as pages show them: browsed, searched, filtered, as JSON lines
work            long actions in the background: progress, stop
html            markup in which every text is escaped
screens         one module for each screen
static          the style sheet, the script and the icon

Pages are drawn here, as HTML, by functions of values; a little script of our own adds live figures (server-sent events), parsing
while one types and copying tables. Everything is on what the namespace itself already needs, Starlette and uvicorn, so the portal
has no dependency of its own. NiceGUI was weighed against it: tables and charts for nothing, but its pages are programs that a
WebSocket drives. They need `unsafe-eval` and inline styles, so no policy could keep a message's HTML from running; the state of a
page is in the server, so a link to it cannot be shared; and it brings forty packages and a megabyte of script. Text that becomes
markup only through `html.markup` and addresses that hold the whole state of a page are what this screen work needs most.

Nothing here imports the server side: a page can do what a client with the same key can do.
"""
