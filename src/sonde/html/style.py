"""How reports and the page of the black box look, in light and dark mode, on a desktop and on a phone."""

from __future__ import annotations

from sonde.views.palette import DARK, LIGHT, LINES, PHASES, variables

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1060px;margin:0 auto;padding:36px 24px 72px}
h1{font-size:26px;line-height:1.25;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:17px;margin:0;letter-spacing:-.005em}
p{margin:0}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:6px 0 0;padding:10px 12px;background:var(--panel);border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}
.id,.facts,.about,.note{color:var(--soft)}
.id{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere;margin-top:2px}
.facts{display:flex;flex-wrap:wrap;gap:4px 28px;margin:18px 0 22px;padding:0}
.facts div{min-width:0}
.facts b{display:block;font-size:19px;font-weight:600;color:var(--ink);font-variant-numeric:tabular-nums;line-height:1.3;overflow-wrap:anywhere}
.facts span{font-size:12.5px}
.verdict{border-radius:12px;padding:20px 24px;margin:0 0 12px;border-left:6px solid}
.verdict .kind{font-size:21px;font-weight:700;letter-spacing:.01em}
.verdict .sure{margin-left:12px;font-size:13px;color:var(--soft);white-space:nowrap}
.verdict .why{margin-top:8px;overflow-wrap:anywhere}
.verdict .next{margin-top:12px;font-weight:600;overflow-wrap:anywhere}
.verdict .next::before{content:"Next";font-weight:400;font-size:12.5px;color:var(--soft);margin-right:10px}
.verdict details,.finding details{margin-top:10px;font-size:13px;color:var(--soft)}
.finding{border-left:4px solid;border-radius:8px;padding:10px 16px;margin:0 0 8px;font-size:14px}
.info{border-color:var(--info);background:var(--infobg)}.info .kind{color:var(--info)}
.warn{border-color:var(--warn);background:var(--warnbg)}.warn .kind{color:var(--warn)}
.critical{border-color:var(--critical);background:var(--criticalbg)}.critical .kind{color:var(--critical)}
.finding .kind{font-weight:700;margin-right:8px}
.finding p{overflow-wrap:anywhere}
summary{cursor:pointer}
section{margin-top:40px}
.about{margin:2px 0 12px;font-size:13.5px;max-width:760px}
.note{font-size:12.5px;margin-top:6px}.key+.note{margin-left:72px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{font-weight:500;font-size:12.5px;color:var(--soft);text-align:right;padding:4px 0 4px 18px;white-space:nowrap}
td{text-align:right;padding:5px 0 5px 18px;border-top:1px solid var(--line);white-space:nowrap;vertical-align:middle}
th.text,td.text{text-align:left}
th:first-child,td:first-child{padding-left:0}
.long{white-space:normal;overflow-wrap:anywhere;min-width:180px}
.whole td{font-weight:600;border-top:0}
.soft{color:var(--soft)}.bad{color:var(--critical);font-weight:600}
.chart{display:grid;grid-template-columns:64px 1fr;gap:8px;height:230px}
.ticks{width:100%;height:100%;overflow:visible}
.ticks text{font-size:11.5px;fill:var(--faint);text-anchor:end}
.plot{width:100%;height:100%;display:block;overflow:hidden}
.along{display:flex;justify-content:space-between;margin:5px 0 0 72px;font-size:11.5px;color:var(--faint)}
.rule{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke;fill:none}
.line{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.cut{fill:var(--critical)}
.caused{margin-top:14px;padding-top:10px;border-top:1px solid var(--line);font-size:14px}.caused ul{margin-top:2px}.caused b{font-weight:650}
.evidence table{width:auto;margin-top:6px}.evidence>.scroll>table>thead{display:none}.evidence td{vertical-align:top}.evidence td td,.evidence td th{padding:1px 0 1px 14px;border:0}.evidence .long{color:var(--ink)}.evidence details p{margin-top:8px}
.band{fill:var(--band)}.l-p50{stroke:var(--p50)}.l-p95{stroke:var(--p95)}
.hint{fill:var(--ink);fill-opacity:0}.hint:hover{fill-opacity:.08}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0 72px;font-size:12.5px;color:var(--soft)}
.key i,.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.k-band{background:var(--band)}.k-p50{background:var(--p50)}.k-p95{background:var(--p95)}
.bar{display:block;width:100%;height:22px;border-radius:5px;overflow:hidden;margin:2px 0 14px}
td .bar{height:12px;border-radius:3px;margin:0;min-width:120px}
.meter{display:block;width:100%;min-width:90px;height:8px;border-radius:3px;background:var(--panel)}
.flame{display:block;width:100%;min-width:760px;margin:2px 0 14px}.flame text{font-size:10.5px;fill:var(--ink);pointer-events:none}.flame g:hover rect{stroke:var(--ink);stroke-width:1}
.cost{fill:var(--p50)}
.strip{display:grid;grid-template-columns:64px 1fr;gap:8px;align-items:center;font-size:11.5px;color:var(--soft)}
.strip span{text-align:right;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.strip svg{width:100%;height:18px;display:block;margin:1px 0;background:var(--panel)}
.strip.wide{grid-template-columns:132px 1fr}.thin svg{height:5px;margin:0}.wide .along{margin-left:140px}
.scale{display:flex;align-items:center;gap:1px;margin:10px 0 0 72px;font-size:12px;color:var(--soft)}
.scale i{width:18px;height:10px;display:inline-block}.scale i:first-child{margin-left:8px}.scale i:last-child{margin-right:8px}
ul{margin:4px 0 0;padding-left:18px}
li{margin:3px 0;overflow-wrap:anywhere}
footer{margin-top:44px;padding-top:16px;border-top:1px solid var(--line);color:var(--soft);font-size:13.5px}
footer h3{font-size:13px;font-weight:600;color:var(--ink);margin:14px 0 2px}
@media (max-width:640px){
main{padding:22px 16px 48px}
h1{font-size:21px}
.verdict{padding:16px 16px}
.verdict .kind{font-size:18px}
.verdict .sure{display:block;margin:2px 0 0}
.chart,.strip{grid-template-columns:50px 1fr}
.along,.key,.scale,.key+.note{margin-left:58px}
.chart{height:180px}
.facts{gap:8px 22px}
.cards table,.cards tbody,.cards tr{display:block}.cards thead{display:none}
.cards tr{border-top:1px solid var(--line);padding:8px 0}
.cards td{display:inline-block;border:0;padding:0 12px 0 0}
.cards td:first-child::before{content:"step "}
.cards td:nth-last-child(-n+2){display:block;padding:3px 0 0}
}
@media print{section{break-inside:avoid}main{max-width:none}}
"""


def _styles() -> str:
    fills = "".join(f".f-{phase}{{fill:var(--{phase})}}.k-{phase}{{background:var(--{phase})}}" for phase in PHASES)
    lines = "".join(
        f".m{place}{{stroke:{colour}}}.k-m{place}{{background:{colour}}}" for place, colour in enumerate(LINES)
    )
    heat = "".join(
        f".h{level}{{fill:var(--heat);fill-opacity:{0.06 + 0.94 * level / 8:.2f}}}"
        f"i.h{level}{{background:var(--heat);opacity:{0.06 + 0.94 * level / 8:.2f}}}"
        for level in range(9)
    )
    light, dark = variables(LIGHT), variables(DARK)
    root = f":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return root + _RULES + fills + lines + heat


STYLE = _styles()

# What only the page of the black box has.
_BLACKBOX_RULES = """
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

BLACKBOX_STYLE = STYLE + _BLACKBOX_RULES
