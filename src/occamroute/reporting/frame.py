"""The frame of every page: one style for light, dark, phones and paper; nothing is loaded from anywhere."""

from __future__ import annotations

from html import escape

from occamroute._version import __version__

__all__ = ["POLICY", "page"]

# Nothing may be fetched, nothing may run; styles and pictures are in the page itself.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b2430; --muted: #55606e; --rule: #dfe4ea; --panel: #f5f7f9;
  --accent: #0b5c93; --good: #00694b; --bad: #a33f00; --warn: #fff6e0; --warn-rule: #c98a00; --occam-ink: currentColor }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --ink: #e6e9ed; --muted: #a5afba; --rule: #2d3640;
  --panel: #1a2027; --accent: #7abdf0; --good: #5fd0a8; --bad: #ff9e66; --warn: #2b2410; --warn-rule: #c98a00 } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 }
.sheet { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem 3rem }
header.top { display: flex; justify-content: space-between; gap: 1rem; padding: 1.1rem 0 .6rem; color: var(--muted);
  font-size: .875rem; border-bottom: 1px solid var(--rule) }
header.top b { color: var(--ink); letter-spacing: .01em }
h1 { font-size: clamp(1.5rem, 1.1rem + 2vw, 2.25rem); line-height: 1.2; letter-spacing: -.015em; margin: 1.6rem 0 .6rem;
  text-wrap: balance; overflow-wrap: anywhere }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .6rem; letter-spacing: -.01em }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem }
p, li, dd { max-width: 46rem; overflow-wrap: anywhere }
.lead { font-size: 1.125rem; max-width: 46rem; margin: 0 0 1rem }
a { color: var(--accent) } :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
section { border-top: 1px solid var(--rule); margin-top: 2.2rem; padding-top: 1.4rem }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: 1.2rem 0; padding: 0;
  list-style: none }
.figures li { background: var(--panel); border-radius: .6rem; padding: .9rem 1.1rem; min-width: 0 }
.figures span { display: block } .figures .what { color: var(--muted); font-size: .875rem }
.figures .value { font-size: clamp(1.5rem, 1.1rem + 1.6vw, 2rem); font-weight: 650; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; line-height: 1.25 }
.figures .sure { font-size: .875rem }
.aside { max-width: 46rem; margin: 0 0 1rem }
.notice { border-left: 4px solid var(--warn-rule); background: var(--warn); padding: .7rem 1rem; border-radius: .3rem;
  margin: 1rem 0; max-width: 46rem }
@media (prefers-color-scheme: dark) { figure svg { filter: brightness(1.25) } }
figure { margin: 1.2rem 0 } figure svg { display: block } figcaption { color: var(--muted); font-size: .875rem;
  max-width: 46rem; margin-top: .4rem }
.narrow { display: none }
.scroll { overflow-x: auto; margin: .8rem 0 1.2rem }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; min-width: 100% }
caption { text-align: left; color: var(--muted); padding: 0 0 .5rem; font-size: .875rem }
th, td { text-align: right; padding: .38rem .7rem; border-bottom: 1px solid var(--rule); vertical-align: top }
th { font-weight: 600 } thead th { border-bottom: 2px solid var(--rule); vertical-align: bottom }
td { white-space: nowrap } td.text { white-space: normal; min-width: 12rem; overflow-wrap: anywhere }
th.text, td.text, tbody th { text-align: left }
tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem; max-width: 18rem }
.scroll tbody th, .scroll thead th:first-child { position: sticky; left: 0; background: var(--paper) }
td small, .quiet { color: var(--muted); font-size: .8125rem; display: block; font-weight: 400 }
tr.strong th, tr.strong td { font-weight: 650 } td.better { color: var(--good) } td.worse { color: var(--bad) }
dl { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .35rem 1.4rem; margin: .8rem 0 }
dt { color: var(--muted); overflow-wrap: anywhere } dd { margin: 0; min-width: 0 }
code, pre { font: .875em/1.5 ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere }
pre { background: var(--panel); border-radius: .4rem; padding: .8rem 1rem; white-space: pre-wrap; margin: .6rem 0 1rem }
details { margin: .8rem 0 } summary { cursor: pointer; color: var(--accent) }
nav ul { columns: 2; padding-left: 1.1rem; margin: .6rem 0 } nav li { break-inside: avoid }
footer { border-top: 1px solid var(--rule); margin-top: 2.4rem; padding-top: 1rem; color: var(--muted);
  font-size: .875rem; overflow-wrap: anywhere }
@media (max-width: 40rem) {
  .figures, dl { grid-template-columns: 1fr } .figures { gap: .6rem } nav ul { columns: 1 } dt { margin-top: .5rem }
  .wide { display: none } .narrow { display: block } .lead { font-size: 1.0625rem }
  tbody th { max-width: 9.5rem }
}
@media print {
  figure svg { filter: none }
  :root { color-scheme: light; --paper: #fff; --ink: #000; --muted: #444; --rule: #bbb; --panel: #fff; --accent: #000;
    --good: #00553d; --bad: #8a3500; --warn: #fff }
  body { font-size: 10pt } .sheet { max-width: none; padding: 0 } nav { display: none }
  section, figure, .figures, .notice, tr { break-inside: avoid } section { break-inside: auto }
  .figures li { border: 1px solid var(--rule) } .scroll { overflow: visible } table { font-size: 6.5pt }
  td small { font-size: 6pt } details { display: none }
  th, td { padding: .1rem .2rem } td { white-space: normal } a { text-decoration: none }
  .wide { display: block } .narrow { display: none } h2, h3 { break-after: avoid } @page { margin: 14mm }
}
"""


def page(title: str, body: str, *, kind: str, made: str = "") -> str:
    """A whole page around ``body`` (HTML); ``kind`` says what it is a page of, ``made`` when and from what."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>{escape(title)}</title><style>{STYLE}</style></head><body><div class="sheet">
<header class="top"><b>occamroute</b><span>{escape(kind)}</span></header>
<main>
{body}
</main>
<footer>Made by occamroute {escape(__version__)}{escape(made)}. Nothing in this page is loaded from anywhere.</footer>
</div></body></html>
"""
