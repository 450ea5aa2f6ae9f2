"""How the HTML page of a trace looks, in light and in dark."""

from __future__ import annotations

_LIGHT = (
    "--ink:#1c2330;--soft:#5d6779;--faint:#8b95a7;--paper:#fff;--panel:#f6f7f9;--line:#e1e5eb;--mark:#2563c9;"
    "--in:#0b7285;--out:#7048a8;--info:#2563c9;--warn:#a15c00;--critical:#c2255c;--bar:#b9cdf0"
)
_DARK = (
    "--ink:#e4e8ef;--soft:#a3adbd;--faint:#78839a;--paper:#14181f;--panel:#1c222c;--line:#2d3543;--mark:#7aa7ff;"
    "--in:#5fc4d6;--out:#c09cf2;--info:#7aa7ff;--warn:#f0b35c;--critical:#ff7aa5;--bar:#34507f"
)

STYLE = f"""
.sonde{{{_LIGHT};color-scheme:light dark}}
@media (prefers-color-scheme:dark){{.sonde{{{_DARK}}}}}
body[data-jp-theme-light="true"] .sonde,body.vscode-light .sonde{{{_LIGHT}}}
body[data-jp-theme-light="false"] .sonde,body.vscode-dark .sonde{{{_DARK}}}
.sonde-page{{margin:0;background:#fff}}
@media (prefers-color-scheme:dark){{.sonde-page{{background:#14181f}}}}
.sonde-page>.sonde{{max-width:1080px;margin:0 auto;padding:24px 20px 60px}}
.sonde{{font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);background:var(--paper)}}
.sonde *{{box-sizing:border-box}}
.sonde ul{{list-style:none;margin:0;padding:0}}
.sonde i{{font-style:normal}}
.sonde code{{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:none;color:var(--ink);
padding:0;white-space:pre-wrap;overflow-wrap:anywhere}}
.sonde-head{{display:flex;gap:10px;align-items:baseline;margin:0 0 10px}}
.sonde-head b{{font-size:20px}}
.sonde-head span{{color:var(--soft)}}
.sonde-steps{{display:flex;flex-wrap:wrap;gap:8px 22px;margin:0 0 14px}}
.sonde-step{{position:relative;flex:1 1 130px;min-width:0;border:1px solid var(--line);border-radius:8px;
background:var(--panel);padding:8px 12px}}
.sonde-step b{{display:block;font-size:13px;overflow-wrap:anywhere}}
.sonde-step span{{color:var(--soft);font-size:12px;margin-right:10px}}
.sonde-step:not(:last-child)::after{{content:"\\2192";position:absolute;right:-18px;top:50%;transform:translateY(-50%);
color:var(--faint)}}
.sonde-empty{{opacity:.55}}
.sonde-findings,.sonde-notes{{border:1px solid var(--line);border-left:3px solid var(--critical);border-radius:6px;
padding:8px 14px;margin:0 0 12px;background:var(--panel)}}
.sonde-notes{{border-left-color:var(--faint);color:var(--soft)}}
.sonde-findings li{{display:flex;gap:10px;padding:3px 0;overflow-wrap:anywhere}}
.sonde-findings li>:first-child{{flex:0 0 56px;font-size:12px;font-weight:600;padding-top:2px}}
.sonde-findings li i{{color:var(--soft)}}
.sonde-info{{color:var(--info)}}.sonde-warn{{color:var(--warn)}}.sonde-critical{{color:var(--critical)}}
.sonde summary{{cursor:pointer;display:flex;gap:10px;align-items:baseline;list-style:none}}
.sonde summary::-webkit-details-marker{{display:none}}
.sonde summary::before{{content:"\\25B8";color:var(--faint);flex:0 0 10px;transition:transform .12s}}
.sonde details[open]>summary::before{{transform:rotate(90deg)}}
.sonde-stage{{border:1px solid var(--line);border-radius:8px;margin:0 0 10px;overflow:hidden}}
.sonde-stage>summary{{background:var(--panel);padding:9px 14px}}
.sonde-stage>summary b{{font-size:15px}}
.sonde-stage>summary span{{color:var(--soft);font-size:13px}}
.sonde-stage>summary .sonde-number{{color:var(--faint)}}
.sonde-time{{margin-left:auto;white-space:nowrap;font-variant-numeric:tabular-nums;color:var(--soft);font-size:13px;
display:inline-flex;align-items:center;gap:8px;flex:none}}
.sonde-time i{{display:inline-block;width:72px;height:6px;border-radius:3px;background:var(--line);overflow:hidden}}
.sonde-time s{{display:block;height:100%;background:var(--bar)}}
.sonde-call{{border-top:1px solid var(--line);padding:8px 14px}}
.sonde-deep1{{padding-left:34px}}.sonde-deep2{{padding-left:54px}}.sonde-deep3{{padding-left:74px}}
.sonde-sign{{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:var(--soft);
overflow-wrap:anywhere;min-width:0}}
.sonde-sign b{{color:var(--ink)}}
.sonde-place{{color:var(--faint);font-size:12px;margin:2px 0 4px 20px;overflow-wrap:anywhere}}
.sonde-row{{display:flex;gap:10px;margin:4px 0 4px 20px;align-items:baseline}}
.sonde-in,.sonde-left,.sonde-out{{flex:0 0 26px;font-size:11px;font-weight:600;color:var(--in)}}
.sonde-out{{color:var(--out)}}.sonde-left{{color:var(--warn)}}
.sonde-name{{flex:none;max-width:220px;overflow-wrap:anywhere;
font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:var(--mark)}}
.sonde-value{{min-width:0;flex:1}}
.sonde-type{{font-size:12px;color:var(--soft)}}
.sonde-tree{{border-left:1px solid var(--line);margin:2px 0 2px 4px!important;padding-left:12px!important}}
.sonde-tree li{{display:flex;gap:10px;align-items:baseline;padding:1px 0;margin:0}}
.sonde-tree li>div{{min-width:0;flex:1}}
.sonde-fold>summary{{gap:6px;font-size:12px}}
.sonde-array{{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:12.5px;font-variant-numeric:tabular-nums;
align-items:baseline}}
.sonde-array i{{color:var(--faint);font-size:11.5px}}
.sonde-shape{{font-weight:600}}
.sonde-hash{{color:var(--faint)}}
.sonde-pictures{{display:flex;flex-wrap:wrap;gap:5px;margin:5px 0 3px}}
.sonde-pictures img{{min-height:48px;max-width:96px;image-rendering:pixelated;border:1px solid var(--line);
border-radius:3px;margin:0;background:var(--panel)}}
@media print{{.sonde details>*{{display:block}}}}
"""
