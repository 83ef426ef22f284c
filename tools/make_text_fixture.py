#!/usr/bin/env python3
"""Makes the small vocabulary that the text tests use: tests/data/text/small/{tiktoken.model,
tokenizer_config.json}. Byte-pair training on the text below; nothing of it comes from a released
model. Run it again and `git diff` must stay empty."""
import base64
import collections
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import text_oracle  # noqa: E402

RANKS = 700
TEXT = """
message role="system" message role="user" message role="assistant" think response tools call
tool="get_weather" index="1" argument key="city" type="string" type="number" type="object" json
The ship has three banks of oars. The rowers who sit highest pull the longest oars; they don't
tire as quickly as those below, and they're the ones who can see the sea. We've counted 170 of
them. It's 12 o'clock, and the wind is 3.5 knots from the north-west. I'll say what we'd do:
    for (int i = 0; i < 100; i++) { sum += value[i] * 0.25; }   /* and so on */
    if (x != NULL && y >= -1) return "a, b and c";
THE CAPTAIN SAID: ROW! Row, row, row. "Why?" -- asked the boy. Because the harbour is near.
{"city": "Paris", "units": "c", "days": [1, 2, 3], "ok": true, "none": null}
Das Schiff fährt über das Meer; die Ruderer zählen laut: eins, zwei, drei. Straße, Größe, Öl.
Le bateau s'éloigne déjà. L'été, la mer est calme. Où est le capitaine? À côté du mât.
Корабль идёт по морю, а ветер дует с севера. Капитан говорит: пора домой.
船有三排桨。水手们坐在船上，看着大海。今天天气很好，风从北方来。一二三四五六七八九十〇
海は広い。船はゆっくり進む。カモメが飛んでいる。 السفينة في البحر والريح شمالية 바다 위의 배
नमस्ते दुनिया। เรืออยู่ในทะเล 👋🏽 🚣 ⛵ 👨‍👩‍👧 ½ ٣٤٥ e\u0301te\u0301
"""
NAMES = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", None, "[EOT]", "<|media_begin|>",
         "<|media_content|>", "<|media_end|>", "<|media_pad|>", None, "[PAD]"]


def train(text, ranks):
    """The most frequent adjacent pair becomes the next token; ties go to the smaller bytes."""
    vocabulary = [bytes([b]) for b in range(256)]
    words, at = collections.Counter(), 0
    while at < len(text):
        end = text_oracle.pre_token(text, at)
        words[tuple(bytes([b]) for b in text[at:end].encode())] += 1
        at = end
    while len(vocabulary) < ranks:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if best[0] + best[1] not in vocabulary:
            vocabulary.append(best[0] + best[1])
        merged = collections.Counter()
        for word, count in words.items():
            out = []
            for part in word:
                if out and (out[-1], part) == best:
                    out[-1] = best[0] + best[1]
                else:
                    out.append(part)
            merged[tuple(out)] += count
        words = merged
    return vocabulary


def main():
    folder = ROOT / "tests" / "data" / "text" / "small"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(train(TEXT, RANKS))]
    (folder / "tiktoken.model").write_text("".join(lines))
    table = {str(RANKS + i): {"content": name, "special": name not in ("<|open|>", "<|close|>", "<|sep|>")}
             for i, name in enumerate(NAMES) if name}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
