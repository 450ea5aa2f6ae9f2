"""How the page of the black box looks: the style of the reports, and what only this page has."""

from __future__ import annotations

from sonde.html.style import STYLE as REPORT_STYLE

_RULES = """
:root{--loud:#e61e5a;--loudbg:#fff0f4;--seal:#9aa5b8;--curve:#3f7fd6}
@media (prefers-color-scheme:dark){:root{--loud:#ff4d80;--loudbg:#341822;--seal:#55617a;--curve:#5b97ea}}
.made{margin-top:10px;color:var(--soft);max-width:780px;overflow-wrap:anywhere}
.deed{margin:26px 0 0;padding:7px;border:1px solid var(--seal);border-radius:14px}
.deed>div{border:1px solid var(--seal);border-radius:9px;padding:22px 28px 24px}
.deed .caps{font-size:11.5px;letter-spacing:.16em;text-transform:uppercase;color:var(--soft)}
.deed h2{font-size:23px;line-height:1.3;margin:4px 0 0;letter-spacing:-.01em;overflow-wrap:anywhere}
.deed h2 em{font-style:normal;color:var(--loud)}
.deed .tail{margin-top:4px;font-size:16px;color:var(--soft)}
.deed dl{display:grid;grid-template-columns:max-content 1fr;gap:6px 22px;margin:20px 0 0}
.deed dt{color:var(--soft);font-size:13px;padding-top:1px}
.deed dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.deed dd b{font-weight:650}
.deed .next{margin-top:20px;padding-top:14px;border-top:1px solid var(--line);font-weight:600;overflow-wrap:anywhere}
.deed .next span{font-weight:400;font-size:12.5px;color:var(--soft);margin-right:10px}
.deed pre{margin-top:16px}
.then{margin-top:12px;font-size:13.5px}
.then li{margin:4px 0}
.batch{border:1px solid var(--line);border-radius:12px;padding:16px 20px 18px;margin:0 0 14px}
.batch h3{font-size:16px;margin:0;display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 14px}
.batch h3 span{font-size:13px;font-weight:400;color:var(--soft)}
.batch h3 .bad{font-weight:600;color:var(--loud)}
.batch h3 .turned{font-weight:600;color:var(--warn)}
.items{display:grid;grid-template-columns:repeat(auto-fill,minmax(136px,1fr));gap:14px;margin:14px 0 4px}
.item{border:1px solid var(--line);border-radius:9px;padding:9px 10px 10px;background:var(--panel);min-width:0;font-size:12.5px}
.item .name{display:flex;justify-content:space-between;gap:8px;margin:0 0 7px;align-items:baseline}
.item .name b{font-size:14px;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.item .name span{color:var(--faint);font-size:11.5px;white-space:nowrap}
.item.guilty{border:2px solid var(--loud);background:var(--loudbg);padding:8px 9px 9px}
.item.guilty .name b{color:var(--loud);font-size:16px}
.item.large{grid-column:span 2;grid-row:span 2}
.item.large svg{height:84px}.item.large svg.bins{height:34px}
.item img{display:block;width:100%;height:auto;border-radius:4px;image-rendering:pixelated;background:var(--paper)}
.item svg{display:block;width:100%;height:52px;background:var(--paper);border-radius:4px}
.item svg.bins{height:22px;margin-top:3px}
.item .fact{margin-top:5px;color:var(--soft);font-size:11.5px;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.item .fact b{color:var(--ink);font-weight:600}
.item .hot{color:var(--loud);font-weight:650}
.curve{fill:none;stroke:var(--curve);stroke-width:1.4;vector-effect:non-scaling-stroke}
.extent{fill:var(--band)}
.hit{fill:var(--loud)}
.tower{fill:var(--band)}
.batch details{margin-top:12px;font-size:13px;color:var(--soft)}
.batch details .scroll{margin-top:6px;color:var(--ink)}
.frames{font:12.5px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:6px 0 0;padding-left:0;list-style:none}
.thread{margin:10px 0 0}
.thread b{font-size:13.5px}
.swatch{background:var(--loud)}
@media (max-width:640px){
.deed>div{padding:16px 16px 18px}
.deed h2{font-size:19px}
.deed dl{grid-template-columns:1fr;gap:0}
.deed dt{margin-top:8px}
.items{grid-template-columns:repeat(auto-fill,minmax(118px,1fr));gap:9px}
.batch{padding:14px 14px}
}
"""

STYLE = REPORT_STYLE + _RULES
