"""A preview's views as one HTML page: no scripts, no links, frames as PNG data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from rlmesh.adapters.advisory import Advisory
from rlmesh.adapters.preview_views import ActionView, CameraView, Element, TextView, VectorView
from rlmesh.adapters.resampling import pillow

__all__ = ["page"]

Array = np.ndarray[Any, Any]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --mark: #f5a52433; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; }
body { padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p.sub { margin: 0; opacity: .75; } code, pre, td.n { font-family: ui-monospace, monospace; }
.card { border: 1px solid var(--line); border-radius: 8px; margin: 0 0 1rem; padding: .8rem 1rem; }
.card h3 { font-size: 1rem; margin: 0 0 .5rem; } .path { font-size: .87rem; opacity: .8; }
.pair { align-items: start; display: flex; flex-wrap: wrap; gap: 1.2rem; margin-top: .6rem; }
figure { margin: 0; } .frames { display: flex; flex-wrap: wrap; gap: .4rem; }
figcaption { font-size: .82rem; opacity: .75; }
img { background: #8883; display: block; image-rendering: pixelated; max-width: 480px; }
img { border: 1px solid var(--line); width: auto; }
.arrow { align-self: center; font-size: 1.6rem; opacity: .5; }
table { border-collapse: collapse; font-size: .87rem; }
td, th { border-bottom: 1px solid var(--line); padding: .15rem .7rem .15rem 0; text-align: left; }
td { white-space: nowrap; } td.n { text-align: right; }
td.path { min-width: 16rem; white-space: normal; }
td.hit { background: var(--mark); font-weight: 600; }
pre { background: var(--soft); border-radius: 8px; overflow-x: auto; padding: .8rem 1rem; }
.scroll { overflow-x: auto; } .note { border-left: 4px solid var(--line); margin: .4rem 0; }
.note { padding: .2rem .8rem; } .caution { background: var(--mark); border-color: #f5a524; }
.tag { font-size: .75rem; font-weight: 600; letter-spacing: .04em; text-transform: uppercase; }
"""


def page(
    *,
    title: str,
    subtitle: str,
    cameras: Sequence[CameraView],
    vectors: Sequence[VectorView],
    texts: Sequence[TextView],
    actions: Sequence[ActionView],
    explain: str,
    advisories: Sequence[Advisory],
) -> str:
    """Return the page."""
    sections = [
        _section("Advisories", [_advisory(item) for item in advisories] or [_nothing()]),
        _section("Cameras", map(_camera, cameras)),
        _section("State", map(_vector, vectors)),
        _section("Text", map(_text, texts)),
        _section("Action", [_actions(actions)] if actions else []),
        _section("The plan", [f"<pre>{escape(explain)}</pre>"]),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p class='sub'>{escape(subtitle)}</p>"
        f"{''.join(sections)}</body></html>\n"
    )


def _section(heading: str, cards: Iterable[str]) -> str:
    body = "".join(cards)
    return f"<section><h2>{heading}</h2>{body}</section>" if body else ""


def _nothing() -> str:
    return "<p class='sub'>None.</p>"


def _advisory(item: Advisory) -> str:
    code = f" <code>{escape(item.code)}</code>" if item.code else ""
    severity = escape(item.severity)
    return (
        f"<div class='note {severity}'><span class='tag'>{severity}</span>{code}<br>"
        f"{escape(item.message)}</div>"
    )


def _camera(view: CameraView) -> str:
    before = (
        "<p class='sub'>made up: the env has no such camera</p>"
        if view.before is None
        else _figure([view.before], f"env: {view.source}, {_size(view.before)}")
    )
    after = _figure(view.after, f"policy: {view.facts}")
    steps = " &rarr; ".join(f"<code>{escape(step)}</code>" for step in view.steps)
    return _card(
        view.placement,
        f"<div class='path'>{steps}</div>"
        f"<div class='pair'>{before}<div class='arrow'>&rarr;</div>{after}</div>",
    )


def _figure(frames: Sequence[Array], caption: str) -> str:
    pictures = "".join(f"<img alt='' src='{_data_uri(frame)}'>" for frame in frames)
    return (
        f"<figure><div class='frames'>{pictures}</div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _size(frame: Array) -> str:
    return f"{frame.shape[0]}x{frame.shape[1]}x{frame.shape[2]}"


def _data_uri(frame: Array) -> str:
    """A frame of 1 to 4 channels as PNG; of more, the first three."""
    if frame.shape[2] > 4:
        frame = frame[:, :, :3]
    pixels = np.ascontiguousarray(frame[:, :, 0] if frame.shape[2] == 1 else frame)
    buffer = io.BytesIO()
    pillow("a preview's pictures are written by Pillow").fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _vector(view: VectorView) -> str:
    return _card(
        view.placement,
        f"<div class='path'><code>{escape(view.path)}</code></div><div class='pair'>"
        f"{_table('env', view.before)}<div class='arrow'>&rarr;</div>"
        f"{_table(f'policy: {view.facts}', view.after)}</div>",
    )


def _table(heading: str, elements: Sequence[Element]) -> str:
    rows = "".join(
        f"<tr><td>{escape(item.name)}</td><td class='n'>{_value(item.value)}</td></tr>"
        for item in elements
    )
    return f"<table><tr><th colspan='2'>{escape(heading)}</th></tr>{rows}</table>"


def _value(value: float) -> str:
    return f"{value + 0.0:.4g}"  # no -0


def _text(view: TextView) -> str:
    return _card(
        view.placement,
        f"<div class='path'><code>{escape(view.source)}</code></div>"
        f"<p><code>{escape(view.value)}</code></p>",
    )


def _actions(views: Sequence[ActionView]) -> str:
    names = "".join(f"<th>{escape(item.name)}</th>" for item in views[0].rest)
    rows = [_action_row("at rest", "", views[0].rest, views[0].rest)]
    for view in views:
        rows.append(_action_row(f"{view.name} = 1", view.path, view.plus, view.rest))
        rows.append(_action_row(f"{view.name} = -1", "", view.minus, view.rest))
    return _card(
        "What the env gets when one number of the model's action is 1 or -1 and the others rest",
        "<p class='path'>Marked: what differs from the first row.</p><div class='scroll'><table>"
        f"<tr><th>model</th>{names}<th>path</th></tr>{''.join(rows)}</table></div>",
    )


def _action_row(name: str, path: str, sent: Sequence[Element], rest: Sequence[Element]) -> str:
    cells = "".join(
        f"<td class='n{' hit' if a.value != b.value else ''}'>{_value(a.value)}</td>"
        for a, b in zip(sent, rest, strict=True)
    )
    return f"<tr><td>{escape(name)}</td>{cells}<td class='path'>{escape(path)}</td></tr>"


def _card(heading: str, body: str) -> str:
    return f"<div class='card'><h3>{escape(heading)}</h3>{body}</div>"
