"""How the HTML report looks, by day and by night."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #667085; --paper: #ffffff; --line: #e4e7ec; --good: #1a7f4b; --bad: #c4320a;
  --accepted: #4c8dd6; --failed: #d6492f; --paired: #2f6fb8; --unpaired: #d98324; --fault: #f9e0d9; --backlog: #9b7fc7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --quiet: #98a2b3; --paper: #14181f; --line: #2c333f;
  --good: #53c68c; --bad: #f2795b; --accepted: #5b9be0; --failed: #e8654b; --paired: #7db3ee; --unpaired: #f0a44b;
  --fault: #432a26; --backlog: #a98fd6; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 8px; } h2 { font-size: 17px; margin: 34px 0 8px; }
.verdict { font-size: 18px; font-weight: 600; margin: 0 0 16px; } .good { color: var(--good); } .bad { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; }
.cards div { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.cards b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .cards span { color: var(--quiet); font-size: 13px; }
svg { display: block; width: 100%; min-width: 620px; height: auto; margin: 6px 0 10px; }
.legend { color: var(--quiet); font-size: 13px; } .legend span { white-space: nowrap; margin-right: 14px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 6px -1px 0; }
rect.accepted { fill: var(--accepted); } rect.failed { fill: var(--failed); } rect.fault { fill: var(--fault); }
i.accepted { background: var(--accepted); } i.failed { background: var(--failed); } i.fault { background: var(--fault); }
i.paired { background: var(--paired); } i.unpaired { background: var(--unpaired); }
polyline { fill: none; stroke-width: 1.8; } polyline.paired { stroke: var(--paired); } polyline.unpaired { stroke: var(--unpaired); }
polyline.delivered { stroke: var(--good); } polygon.backlog { fill: var(--backlog); fill-opacity: .75; }
line.grid { stroke: var(--line); stroke-width: 1; } text { font: 12px system-ui, sans-serif; }
text.tick { fill: var(--quiet); font-size: 11px; } text.label { fill: var(--ink); font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
table { text-align: left; } .number { text-align: right; } td.number { white-space: nowrap; } th { color: var(--quiet); font-weight: 500; } th, td { padding: 4px 9px 4px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } summary { cursor: pointer; margin-top: 10px; color: var(--quiet); }
footer { margin-top: 34px; color: var(--quiet); font-size: 13px; }
"""
