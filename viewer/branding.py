"""The look of the page: its title and icon in the browser, its titlebar, its styles, and its layout on a phone.

viser serves its own index.html and has no option for a title or for styles. An HTML element of its GUI may carry a
``<style>`` block and an image whose ``onerror`` handler runs once: that is how both get onto the page.
"""

from __future__ import annotations

import html
import urllib.parse

import viser
from viser.theme import TitlebarConfig, TitlebarImage

TITLE = "Engram"
ACCENT = (11, 114, 133)
ACCENT_HEX = "#0b7285"
DANGER_HEX = "#c92a2a"
PAST_HEX = "#b35c00"

_MARK = (  # three linked nodes: a scene graph
    f'<g fill="none" stroke="{ACCENT_HEX}" stroke-width="3"><path d="M9 25L18 8L29 22Z"/></g>'
    f'<g fill="{ACCENT_HEX}"><circle cx="9" cy="25" r="5"/><circle cx="18" cy="8" r="5"/>'
    '<circle cx="29" cy="22" r="5" fill="#f08c00"/></g>'
)

STYLE = f"""
.engram-text {{ padding: 0.15em 0.75em; font-size: 0.9em; line-height: 1.45; overflow-wrap: anywhere; }}
.engram-muted {{ color: #5c6670; }}
.engram-heading {{ padding: 0.5em 0.75em 0.1em; font-size: 0.8em; font-weight: 600; letter-spacing: 0.02em;
  color: {ACCENT_HEX}; }}
.engram-chip {{ color: #fff; border-radius: 0.7em; padding: 0.1em 0.6em; font-size: 0.85em; white-space: nowrap; }}
.engram-goal {{ min-height: 6.8em; }}
.engram-bar {{ margin: 0.1em 0.75em 0.3em; height: 0.45em; border-radius: 0.3em; background: #e9ecef;
  overflow: hidden; }}
.engram-bar div {{ height: 100%; background: {ACCENT_HEX}; }}
.engram-scroll {{ overflow-x: auto; padding: 0 0.6em; }}
.engram-table {{ border-collapse: collapse; font-size: 0.84em; line-height: 1.35; width: 100%; }}
.engram-table th {{ text-align: left; font-weight: 500; color: #5c6670; padding: 0.1em 0.7em 0.1em 0.15em; }}
.engram-table td {{ padding: 0.2em 0.7em 0.2em 0.15em; vertical-align: top; border-top: 1px solid #edf0f2; }}
.engram-faint td {{ color: #868e96; }}
.engram-question {{ margin: 0.5em 0.75em 0.2em 3em; padding: 0.35em 0.7em; border-radius: 0.8em 0.8em 0.2em 0.8em;
  background: {ACCENT_HEX}; color: #fff; font-size: 0.9em; }}
.engram-answer {{ margin: 0.2em 1.5em 0.2em 0.75em; padding: 0.4em 0.7em; border-radius: 0.8em 0.8em 0.8em 0.2em;
  background: #f1f3f5; font-size: 0.9em; line-height: 1.4; }}
.engram-answer ul {{ margin: 0.3em 0 0; padding-left: 1.1em; color: #5c6670; font-size: 0.92em; }}
#engram-banner {{ position: fixed; left: 0; right: 0; top: 0; z-index: 9000; padding: 0.75em 1em; color: #fff;
  text-align: center; font-weight: 600; pointer-events: none; font-family: system-ui, sans-serif; }}
#engram-banner:empty {{ display: none; }}
#engram-banner small {{ font-weight: 400; font-size: 0.9em; }}
button:has(.tabler-icon-adjustments), .mantine-Notification-root {{ display: none; }}
img[src^="blob:"] {{ width: 100%; border-radius: 4px; }}
@media (max-width: 576px) {{
  .mantine-Burger-root {{ display: none; }}
  #engram-banner {{ font-size: 0.85em; padding: 0.5em; }}
  .engram-goal {{ min-height: 0; }}
  [data-dock-root] {{ height: 40% !important; }}
  div[style*="width: 20em"] {{ width: 100% !important; }}
  div:has(> .mantine-Tabs-root > [aria-label*="panel Cameras"]) {{ display: flex; flex-direction: column; }}
  .mantine-Tabs-root:has(> [aria-label*="panel Cameras"]) {{ order: -1; }}
  div:has(> div > div > img[src^="blob:"]) {{ display: flex; }}
  div:has(> div > img[src^="blob:"]) {{ flex: 1; }}
}}
"""


def icon_url() -> str:
    """Return the browser tab's icon as a data URL."""
    return _data_url(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 38 34">{_MARK}</svg>')


def logo_url() -> str:
    """Return the titlebar's picture as a data URL: the mark and the name."""
    words = (
        f'<text x="44" y="25" font-family="system-ui,sans-serif" font-size="23" font-weight="600" '
        f'fill="#212529">{TITLE}</text>'
    )
    size = 'width="150" height="34" viewBox="0 0 150 34"'
    return _data_url(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_MARK}{words}</svg>')


def _data_url(svg: str) -> str:
    return "data:image/svg+xml," + urllib.parse.quote(svg)


def head() -> str:
    """Return the HTML that sets styles, title and icon; shows nothing itself."""
    icon = f"for (const link of document.querySelectorAll('link[rel=icon]')) link.href = '{icon_url()}';"
    return f"<style>{STYLE}</style>" + run_once(f"document.title = '{TITLE}'; {icon}")


def run_once(script: str, data: str = "") -> str:
    """Return HTML that shows nothing and runs ``script`` when it comes onto the page, with ``this.dataset.with``."""
    attributes = f'data-with="{html.escape(data)}" onerror="{html.escape(script)}"'
    return f'<img src="data:," alt="" style="display:none" {attributes}>'


def brand(server: viser.ViserServer) -> None:
    """Give ``server`` the page's title, colours and layout: cameras left, controls right, the scene between."""
    server.gui.set_panel_label(TITLE)
    picture = TitlebarImage(image_url_light=logo_url(), image_url_dark=None, image_alt=TITLE, href=None)
    server.gui.configure_theme(
        titlebar_content=TitlebarConfig(buttons=None, image=picture),
        control_width="large",
        show_logo=False,
        show_share_button=False,
        brand_color=ACCENT,
    )
    server.gui.add_html(head())
    server.gui.main_panel.dock_right()
    server.gui.main_panel.set_width(420)
