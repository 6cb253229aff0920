"""No file gets more of the words that our prose avoids."""

from __future__ import annotations

from tests.repository.wording import allowed, counts, files, found_in


def test_avoided_words_become_fewer() -> None:
    limits, texts = allowed(), files()
    more = {
        name: f"{count} of at most {limits.get(name, 0)}: {', '.join(sorted(set(found_in(texts[name]))))}"
        for name, count in counts().items()
        if count > limits.get(name, 0)
    }
    assert more == {}, "say it in the field's words; tests/repository/wording.py lists the words to avoid"
