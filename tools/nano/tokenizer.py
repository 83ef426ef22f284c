"""Byte-level BPE with K3's split pattern: training, encoding, and the two tokenizer files of the published layout."""

import base64
import collections
import json
import os

import regex

HAN = r"\p{Han}"
UP, LOW = (
    r"[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]",
    r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]",
)
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = regex.compile(
    "|".join(
        [
            r"[\p{Han}]+",
            rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+{TAIL}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*{TAIL}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    regex.V1,
)

# K3's names, directly after the ranks; the gaps of the real list are not kept.  (name, special)
SPECIAL = [
    ("[BOS]", True),
    ("[EOS]", True),
    ("<|end_of_msg|>", True),
    ("<|open|>", False),
    ("<|close|>", False),
    ("<|sep|>", False),
    ("[start_header_id]", True),
    ("[end_header_id]", True),
    ("[EOT]", True),
    ("<|media_begin|>", True),
    ("<|media_content|>", True),
    ("<|media_end|>", True),
    ("<|media_pad|>", True),
]


def special_names(first, room):
    """The special tokens for ids first..first+room-1: the named ones, reserved ones, [UNK] and [PAD] last."""
    names = [n for n, _ in SPECIAL]
    names += [f"<|reserved_token_{first + i}|>" for i in range(len(names), room - 2)]
    return names + ["[UNK]", "[PAD]"]


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def train(texts, size):
    """ranks {bytes: rank} of `size` tokens.  Words with digits are left out, so every digit stays one token."""
    words = collections.Counter()
    for t in texts:
        words.update(w for w in PATTERN.findall(t) if not regex.search(r"\p{N}", w))
    seqs = [[bytes([b]) for b in w.encode()] for w in words]
    freq = list(words.values())
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, s in enumerate(seqs):
        for p in zip(s, s[1:]):
            pairs[p] += freq[i]
            where[p].add(i)
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < size and pairs:
        best = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))[0]  # a fixed order on ties
        if pairs[best] <= 0:
            break
        new = best[0] + best[1]
        for i in list(where[best]):
            for p in zip(seqs[i], seqs[i][1:]):
                pairs[p] -= freq[i]
            seqs[i] = merge(seqs[i], best)
            for p in zip(seqs[i], seqs[i][1:]):
                pairs[p] += freq[i]
                where[p].add(i)
        del pairs[best]
        if new not in ranks:
            ranks[new] = len(ranks)
    return ranks


class Tokenizer:
    def __init__(self, ranks, specials):
        self.ranks, self.special = ranks, {n: len(ranks) + i for i, n in enumerate(specials)}
        self.bytes = {r: b for b, r in ranks.items()}
        self.names = {i: n for n, i in self.special.items()}
        self.size = len(ranks) + len(specials)
        self.cache = {}

    @classmethod
    def load(cls, folder):
        with open(os.path.join(folder, "tiktoken.model"), "rb") as f:
            ranks = {base64.b64decode(a): int(b) for a, b in (l.split() for l in f if l.strip())}
        with open(os.path.join(folder, "tokenizer_config.json")) as f:
            added = json.load(f)["added_tokens_decoder"]
        return cls(ranks, [added[k]["content"] for k in sorted(added, key=int)])

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tiktoken.model"), "wb") as f:
            for b, r in sorted(self.ranks.items(), key=lambda kv: kv[1]):
                f.write(base64.b64encode(b) + b" %d\n" % r)
        plain = {n for n, special in SPECIAL if not special}
        added = {
            str(i): dict(
                content=n,
                lstrip=False,
                normalized=False,
                rstrip=False,
                single_word=False,
                special=n not in plain,
            )
            for n, i in self.special.items()
        }
        cfg = dict(
            added_tokens_decoder=added,
            additional_special_tokens=[n for n in self.special if n not in plain],
            bos_token="[BOS]",
            eos_token="[EOS]",
            pad_token="[PAD]",
            unk_token="[UNK]",
            clean_up_tokenization_spaces=False,
            model_max_length=131072,
            tokenizer_class="TikTokenTokenizer",
        )
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump(cfg, f, indent=1, ensure_ascii=False)
            f.write("\n")

    def word(self, w):
        ids = self.cache.get(w)
        if ids is None:
            b = w.encode()
            parts = [b] if b in self.ranks else [bytes([x]) for x in b]
            while len(parts) > 1:
                rank, i = min(
                    (self.ranks.get(parts[i] + parts[i + 1], 1 << 30), i)
                    for i in range(len(parts) - 1)
                )
                if rank == 1 << 30:
                    break
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            ids = [self.ranks[p] for p in parts]
            if len(self.cache) < 1 << 18:
                self.cache[w] = ids
        return ids

    def encode(self, text):
        """Plain text; the spelling of a special token is ordinary text."""
        return [i for w in PATTERN.findall(text) for i in self.word(w)]

    def encode_segments(self, segments):
        return [
            i
            for text, marker in segments
            for i in ([self.special[text]] if marker else self.encode(text))
        ]

    def decode(self, ids):
        return b"".join(
            self.bytes[i] if i in self.bytes else self.names.get(i, "").encode() for i in ids
        ).decode("utf-8", "replace")
