"""Who may see and do what: a request in, a visitor or a refusal out.

guard       checks Host and Origin of every request, and puts the headers of safety on every answer
local_peers whose connection it is, on loopback
visitors    who is there: anyone on loopback, elsewhere those who typed a key, which only this process's memory holds
"""
