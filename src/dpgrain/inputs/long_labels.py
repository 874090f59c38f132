"""Labels of long texts: the beginning and a hash, row by row and equal on every engine.

Engines store each distinct user, item, cell or value once, and one person can contribute any number
of long texts. A text with more than :data:`WHOLE_BYTES` bytes in UTF-8 is therefore replaced by its
first :data:`SHOWN` characters, ``…``, and the SHA-256 of the whole text in hexadecimal digits. Such
a label has more than :data:`WHOLE_BYTES` and at most :data:`MOST_BYTES` bytes.

The label is a function of the text only, and two texts have equal labels only if SHA-256 collides:
a text that looks like a label is itself long, so it has another label. Texts are renamed and never
merged, so all guarantees are unchanged. A *stated* text, which is public, can be either the text or
its published label.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

#: Maximum bytes, in UTF-8, of a text that is not replaced. E-mail addresses, host names, file names
#: and Wikipedia titles have fewer bytes, and so do nearly all URLs.
WHOLE_BYTES = 256
#: Characters of a longer text in its label: the fewest that make every label, with a mark of 3 bytes
#: and 64 digits, longer than WHOLE_BYTES.
SHOWN = 190
#: Mark between the beginning of a text and its hash.
MARK = "…"
#: Maximum bytes of a label: characters have at most 4.
MOST_BYTES = 4 * SHOWN + 67
_REPLACEMENT = re.compile(rf".{{{SHOWN}}}{MARK}[0-9a-f]{{64}}", re.DOTALL)


def text_label(text: str) -> str:
    """Return the label of a text in a row."""
    if not is_long(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:SHOWN]}{MARK}{digest}"


def stated_label(text: str) -> str:
    """Return the label of a public text; a published label is its own label."""
    return text if is_replacement(text) else text_label(text)


def is_replacement(text: str) -> bool:
    """Return True if a text has the form of the label of a long text."""
    return _REPLACEMENT.fullmatch(text) is not None


def is_long(text: str) -> bool:
    """Return True if a text is replaced."""
    return len(text) > WHOLE_BYTES // 4 and len(text.encode("utf-8", "surrogatepass")) > WHOLE_BYTES


def any_long(texts: Iterable[str]) -> bool:
    """Return True if any of some texts is replaced."""
    return any(map(is_long, texts))
