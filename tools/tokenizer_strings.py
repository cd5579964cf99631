"""Texts on which tokenizers tend to differ, made from a seed; shared by tokenizer_compare.py and tokenizer_golden.py."""

import random

WORDS = "the of Hello World brutalist naïve Việt façade Straße ΑΒΓ привет 你好世界 こんにちは 한국어 مرحبا हिन्दी ไทย x i I'm".split()
CODE = [
    "def f(x):\n    return x**2  # ok\n", "for(int i=0;i<10;++i){\r\n\tx[i]=y->z;\r\n}", "a!=b&&c||!d", "\t\tif x:\n\n\n\t\t\tpass",
    '{"k": [1, 2.5e-3, null]}', "</div>\n<p class='a'>", "$HOME/.x && ls -la | grep foo\n", "->", "(x):\n", "){\r\n}", "x;\n\n",
    "0xDEADBEEF", "#include <a.h>", "std::vector<int>&&", "λ x → y", "SELECT * FROM t WHERE a='b''s';",
]
CONTRACTIONS = [a + b for a in "'’`" for b in "s S ſ t T re Re RE rE ve VE m M ll LL lL d D x sell true rest verb mellow Dad".split()]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", " \n", "\n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c",
          "\x85", "\u1680", "\u200b", "\ufeff", "\x1c", "\x1f", "\r"]
NUMBERS = ["1", "12", "123", "1234", "1234567", "3333+777", "½", "Ⅷ", "²", "१२३४", "٣٤٥", "①②③④", "𝟘𝟙𝟚", "𑷠𑷡", "𖿴", "1,000.50", "๑๒"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪🇫🇷", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️", "1️⃣", "🦙"]
MARKS = ["e\u0301", "a\u0300\u0301\u0302", "\u0301", "क्ष", "ก็", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞", "\u0345", "ﬀ", "ß", "İ", "ſ", "K", "Ġ", "Ċ", "Ġthe"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "<|im_", "|>", "<repo_name>", "[PAD151646]",
            "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>"]
PUNCTUATION = [chr(c) for c in range(0x21, 0x7F) if not chr(c).isalnum()] + ["…", "—", "“", "”", "。", "、", "€", "¡¿", "!!!", "...", "===", "\x00"]
POOLS = [WORDS, WORDS, CODE, CONTRACTIONS, SPACES, SPACES, SPACES, NUMBERS, EMOJI, MARKS, SPECIALS, PUNCTUATION, PUNCTUATION]


def valid(c):
    return c < 0x110000 and not 0xD800 <= c < 0xE000


def by_class():
    """Texts that hold every code point of the planes with characters, with letters, digits, spaces and quotes between."""
    for start in range(0, 0x110000, 64):
        block = [chr(c) for c in range(start, start + 64) if valid(c)]
        if not block or (0x32400 <= start < 0x110000 and not 0xE0000 <= start < 0xE0400 and start % 0x1000):
            continue  # no characters there in Unicode 17, so a sample is enough
        yield "".join(block)
        yield "".join("a" + c for c in block)
        yield "".join(" " + c for c in block)
        yield "".join("'" + c + "e1" for c in block)
        yield "".join("\n" + c + " " for c in block)


def random_text(rng):
    kind = rng.randrange(10)
    n = rng.randrange(1, 12)
    if kind == 0:
        codes = (rng.randrange(0x110000) for _ in range(n))
        return "".join(chr(c) for c in codes if valid(c))
    if kind == 1:
        codes = (rng.randrange(0x3000) for _ in range(n))
        return "".join(map(chr, codes))
    if kind == 2:
        return "".join(rng.choice(SPACES + ["a", "1", "!", "'s"]) for _ in range(n))
    if kind == 3:
        return "".join(chr(rng.randrange(0x80)) for _ in range(n * 2))
    if kind == 4:
        return "".join(rng.choice("abcdehilmnorstuvy' ") for _ in range(n * 4))
    return "".join(rng.choice(rng.choice(POOLS)) for _ in range(n))


def texts(count, seed=1):
    rng = random.Random(seed)
    fixed = [""] + [t for pool in POOLS for t in pool] + list(by_class())
    return fixed + [random_text(rng) for _ in range(max(0, count - len(fixed)))]
