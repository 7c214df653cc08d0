"""The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from html import escape

from pidm_nav.experiments.charts import draw_figure
from pidm_nav.experiments.report import Report, Section
from pidm_nav.experiments.tables import PAPER, Table

STYLE = """
:root { color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --ink: #1d1f23; --muted: #666c76; --rule: #e3e4e6; --accent: #1c6dd0;
  --bc: #d9480f; --pidm: #1c6dd0; --retrieval: #0b8a5f; --other: #8540c9; --third: #b3860b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #131519; --card: #1b1e24; --ink: #e8eaed; --muted: #9aa1ac; --rule: #30343c; --accent: #7ab2f7;
  --bc: #ff9057; --pidm: #6fadff; --retrieval: #3fd0a0; --other: #c197ff; --third: #e5bd4f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: clamp(1.6rem, 4vw, 2.3rem); line-height: 1.15; margin: 0 0 8px; letter-spacing: -.02em; }
h2 { font-size: 1.3rem; margin: 0 0 2px; letter-spacing: -.01em; }
h3 { font-size: 1rem; margin: 22px 0 8px; }
p { margin: 0 0 12px; } .lead, .note, figcaption, dt, .paper { color: var(--muted); }
.lead { font-size: 1.05rem; max-width: 46em; } .note, figcaption { font-size: .85rem; max-width: 62em; }
section, .tile { background: var(--card); border: 1px solid var(--rule); border-radius: 14px; }
section { padding: 24px; margin-top: 24px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin-top: 24px; }
.tile { padding: 16px 18px; display: flex; flex-direction: column; gap: 4px; font-size: .92rem; }
.tile b { font-size: 1.9rem; line-height: 1.1; color: var(--accent); letter-spacing: -.02em; }
.tile .paper { margin-top: auto; font-size: .85rem; }
nav { display: flex; flex-wrap: wrap; gap: 6px 16px; margin-top: 20px; font-size: .9rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
figure { margin: 14px 0 0; } figcaption { margin-top: 8px; }
.panels { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 6px 14px; }
@media (max-width: 1060px) { .panels { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (max-width: 600px) { .panels { grid-template-columns: 1fr; } main { padding: 24px 12px 48px; }
  section { padding: 18px 14px; } }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; } svg text.title { font-weight: 600; font-size: 12.5px; }
svg text.tick { fill: var(--muted); font-size: 10.5px; } .grid { stroke: var(--rule); stroke-width: 1; }
.bc { --tone: var(--bc); } .pidm { --tone: var(--pidm); } .retrieval-bc { --tone: var(--retrieval); }
.other { --tone: var(--other); } .third { --tone: var(--third); }
.line { fill: none; stroke: var(--tone); stroke-width: 2; stroke-linejoin: round; }
.line.dashed { stroke-dasharray: 5 4; }
.band { fill: var(--tone); opacity: .14; } .dot { fill: var(--tone); stroke: var(--card); stroke-width: 1; }
.needed { stroke: var(--tone); stroke-width: 2; stroke-dasharray: .5 7; stroke-linecap: round; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: .88rem; margin-bottom: 8px; }
.key { display: inline-flex; align-items: center; gap: 7px; }
.key i { width: 20px; border-top: 3px solid var(--tone); border-radius: 2px; }
.key.dashed i { border-top-style: dashed; }
.scroll { overflow-x: auto; } .note { margin-top: 10px; }
table { border-collapse: separate; border-spacing: 0; font-size: .88rem; width: 100%; }
td { font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } thead th { border-bottom-width: 2px; }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: var(--card); }
tr.paper th, tr.paper td { color: var(--muted); font-weight: 400; }
tr.above th, tr.above td { border-bottom-color: transparent; padding-bottom: 0; }
details { margin-top: 14px; } summary { cursor: pointer; color: var(--accent); font-size: .92rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 12px 0 0; font-size: .92rem; }
dd { margin: 0; } @media (max-width: 600px) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; } }
.bad { color: var(--bc); }
@media print { section { break-inside: avoid; border: 0; padding: 0; } body { background: #fff; } }
"""


def render_page(report: Report) -> str:
    """The whole page."""
    tiles = "".join(
        f"<div class='tile'><b>{escape(item.value)}</b><span>{escape(item.text)}</span>"
        f"<span class='paper'>{escape(item.paper)}</span></div>"
        for item in report.headlines
    )
    links = "".join(
        f"<a href='#section-{index}'>{escape(section.title)}</a>" for index, section in enumerate(report.sections)
    )
    sections = "".join(_section(index, section) for index, section in enumerate(report.sections))
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>pidm-nav: results</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        "<h1>How many demonstrations does each method need?</h1>\n"
        "<p class='lead'>Behaviour cloning (BC) copies actions. A predictive inverse dynamics model (PIDM) first "
        "predicts where the expert would be next, then the action that leads there. Our sweep over the paper's "
        "four navigation tasks, beside the paper's own numbers.</p>\n"
        f"<div class='tiles'>{tiles}</div>\n<nav aria-label='Sections'>{links}</nav>\n{sections}\n"
        f"<section id='made'><h2>How it was made</h2><dl>{facts}</dl>{_failures(report)}</section>\n"
        "</main>\n</body>\n</html>\n"
    )


def _section(index: int, section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2><p class='lead'>{escape(section.text)}</p>"]
    parts += [draw_figure(figure) for figure in section.figures]
    parts += [f"<h3>{escape(table.title)}</h3>{_table(table)}" for table in section.tables]
    parts += [f"<details><summary>{escape(table.title)}</summary>{_table(table)}</details>" for table in section.folded]
    return f"<section id='section-{index}'>{''.join(parts)}</section>\n"


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in table.header)
    body = []
    is_paper = [row[0].startswith(PAPER) for row in table.rows] + [False]
    for index, (first, *cells) in enumerate(table.rows):
        kind = "paper" if is_paper[index] else "above" if is_paper[index + 1] else ""
        numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body.append(f"<tr class='{kind}'><th scope='row'>{escape(first)}</th>{numbers}</tr>")
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    return (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{note}"
    )


def _failures(report: Report) -> str:
    if not report.failed:
        return ""
    items = "".join(
        f"<li>{escape(str(cell))}: {escape(str(content['error']))}</li>" for cell, content in report.failed.items()
    )
    return f"<p class='bad'>{len(report.failed)} jobs failed and are missing above:</p><ul>{items}</ul>"
