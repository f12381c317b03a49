"""Everything a namespace answers over HTTP, by URL. `application` puts it together, and the server gives it a socket.

/health, /metrics                          own/health.py, own/metrics.py
/$stores, /$connections                    own/faults.py: faults on purpose
/$access                                   own/access_rules.py: SAS rules and their keys
/$backlog                                  own/backlog.py: what waits for which destination
/$sessions                                 own/session_counts.py: what waits in which message session
/$meter                                    own/operations_log.py
/$servicebus/websocket                     websocket.py: AMQP inside WebSockets
/{entity}/messages...                      messaging/: send, receive and settle, the service's REST API
any other path                             administration/: the service's administration API, whose XML is in atom/

`access` checks the right of every request, `request_body` reads its body, `refusals` writes every error, `pace` cuts long answers
into steps, and `paced_reading` what clients send.
"""
