"""The entities of a namespace as a file, and trusted issuers as another: documents in, descriptions out, and back.

entity_file, emulator_file     files of ours, and of the service's own emulator
table                          one table of a file, and errors that name its place
entity_table, rule_table       entities and rules as tables
wanted_entities                what should exist, in the order in which it can be created
local_creation                 create it in a namespace of this process
remote_import                  create or update it over the administration API
remote_entities, remote_rules  what the administration client has for our descriptions
toml_text                      TOML, written
trust_file                     issuers of JSON web tokens
"""
