"""Rendered frames as PNG: the one form the wire knows, written and read without an image library.

Frames are stored, not deflated: a rendered frame crosses a socket faster than zlib packs it
(480x640x3: 0.9 MB). Any PNG reader takes them.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

__all__ = ["decode_png", "encode_png"]

Array = np.ndarray[Any, Any]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_OF_CHANNELS = {1: 0, 2: 4, 3: 2, 4: 6}
_CHANNELS_OF_COLOUR = {colour: channels for channels, colour in _COLOUR_OF_CHANNELS.items()}


def encode_png(frame: Any) -> bytes:
    """Return an HWC (1 to 4 channels) or HW frame of uint8 as a PNG.

    Raises:
        ValueError: another shape or dtype.
    """
    array = np.asarray(frame)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.dtype != np.uint8 or array.shape[2] not in _COLOUR_OF_CHANNELS:
        raise ValueError(
            f"render() returned {array.dtype.name}{list(array.shape)}; expected uint8[height, "
            "width, channels] with 1 to 4 channels"
        )
    height, width, channels = array.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # filter byte 0, then the row
    rows[:, 1:] = array.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_OF_CHANNELS[channels], 0, 0, 0)
    body = zlib.compress(rows.tobytes(), level=0)
    return b"".join(
        (_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", body), _chunk(b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def decode_png(data: bytes) -> Array:
    """Return an 8-bit, non-interlaced PNG as a writable HWC uint8 array.

    Raises:
        ValueError: the bytes are no PNG, are damaged, or use another form of it.
    """
    if not data.startswith(_SIGNATURE):
        raise ValueError("rendered frame is not a PNG")
    header = b""
    body: list[bytes] = []
    at = len(_SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        part = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            header = part
        elif kind == b"IDAT":
            body.append(part)
        at += 12 + length
    if len(header) != 13:
        raise ValueError("rendered frame is a PNG without a header")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in _CHANNELS_OF_COLOUR or interlace:
        raise ValueError(
            f"rendered frame is a PNG of bit depth {depth}, colour type {colour}, interlace "
            f"{interlace}; expected 8-bit grey, RGB or RGBA without interlace"
        )
    channels = _CHANNELS_OF_COLOUR[colour]
    stride = width * channels
    expected = height * (stride + 1)
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(b"".join(body), expected + 1)
    except zlib.error as exc:
        raise ValueError(f"rendered frame is a damaged PNG: {exc}") from None
    if len(raw) != expected:
        raise ValueError(f"rendered frame is a damaged PNG: {len(raw)} bytes, expected {expected}")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride + 1)
    if not rows[:, 0].any():
        return rows[:, 1:].reshape(height, width, channels).copy()
    return _unfilter(rows, channels).reshape(height, width, channels)


def _unfilter(rows: Array, channels: int) -> Array:
    """Undo the row filters (PNG specification, section 9); used for PNGs of other encoders."""
    height, stride = rows.shape[0], rows.shape[1] - 1
    out = np.zeros((height + 1, stride), np.uint8)
    for y in range(height):
        kind, line, above = int(rows[y, 0]), rows[y, 1:], out[y]
        if kind == 0:
            out[y + 1] = line
        elif kind == 1:
            pixels = line.reshape(-1, channels)
            out[y + 1] = np.cumsum(pixels, axis=0, dtype=np.uint8).reshape(-1)
        elif kind == 2:
            out[y + 1] = line + above
        elif kind in (3, 4):
            out[y + 1] = _unfilter_row(kind, line, above, channels)
        else:
            raise ValueError(f"rendered frame is a damaged PNG: row filter {kind}")
    return out[1:].copy()


def _unfilter_row(kind: int, line: Array, above: Array, channels: int) -> Array:
    """Undo filter 3 (average) or 4 (Paeth), whose terms depend on the pixel just decoded."""
    up: list[int] = above.tolist()
    row: list[int] = line.tolist()
    for i, value in enumerate(row):
        left = row[i - channels] if i >= channels else 0
        if kind == 3:
            row[i] = (value + (left + up[i]) // 2) & 255
            continue
        corner = up[i - channels] if i >= channels else 0
        estimate = left + up[i] - corner
        by_left, by_up = abs(estimate - left), abs(estimate - up[i])
        by_corner = abs(estimate - corner)
        if by_left <= by_up and by_left <= by_corner:
            near = left
        elif by_up <= by_corner:
            near = up[i]
        else:
            near = corner
        row[i] = (value + near) & 255
    return np.array(row, np.uint8)
