"""How the HTML page of a trace looks, in light and in dark."""

from __future__ import annotations

# Text and background are the notebook's own where it has any (JupyterLab, VS Code), else those of the system's scheme.
# All other colours are mixed from these two, so that they fit every theme.
_OWN = "--own-ink:#1c2330;--own-paper:#fff"
_OWN_DARK = "--own-ink:#e4e8ef;--own-paper:#14181f"
_COLOURS = (
    "--ink:var(--jp-content-font-color1,var(--vscode-editor-foreground,var(--own-ink)));"
    "--paper:var(--jp-layout-color0,var(--vscode-editor-background,var(--own-paper)));"
    + "".join(
        f"--{name}:color-mix(in srgb,{hue} {share}%,var(--{base}));"
        for name, hue, share, base in (
            ("soft", "var(--ink)", 70, "paper"),
            ("faint", "var(--ink)", 50, "paper"),
            ("panel", "var(--ink)", 4, "paper"),
            ("line", "var(--ink)", 14, "paper"),
            ("mark", "#2f74e0", 75, "ink"),
            ("info", "#2f74e0", 75, "ink"),
            ("in", "#0e93a8", 75, "ink"),
            ("out", "#8757d0", 75, "ink"),
            ("warn", "#d07a00", 75, "ink"),
            ("critical", "#e0245f", 75, "ink"),
            ("bar", "#2f74e0", 40, "paper"),
        )
    )
)

STYLE = f"""
.sonde,.sonde-page{{{_OWN};{_COLOURS}color-scheme:light dark}}
@media (prefers-color-scheme:dark){{.sonde,.sonde-page{{{_OWN_DARK}}}}}
[theme=dark] .sonde{{{_OWN_DARK}}}[theme=light] .sonde{{{_OWN}}}
.sonde-page{{margin:0;background:var(--paper)}}
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
.sonde-pictures{{display:flex;flex-wrap:wrap;gap:5px;margin:5px 0 3px;align-items:end}}
.sonde-pictures i{{color:var(--faint);font-size:11.5px}}
.sonde-zoom img{{display:block;min-height:48px;max-width:96px;image-rendering:pixelated;border:1px solid var(--line);
border-radius:3px;margin:0;background:var(--panel)}}
.sonde-zoom>summary{{cursor:zoom-in}}.sonde-zoom>summary::before{{content:none}}
.sonde-zoom[open]>summary{{cursor:zoom-out}}
.sonde-zoom[open] img{{width:min(480px,80vw);max-width:none}}
.sonde a{{color:var(--mark);white-space:nowrap;margin-left:4px}}
.sonde-call>div{{scroll-margin-top:48px}}
.sonde-marked{{box-shadow:inset 3px 0 var(--critical)}}
li.sonde-marked{{padding-left:8px!important}}
@media print{{.sonde details>*{{display:block}}}}
"""
