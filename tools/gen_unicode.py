#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: the character classes that the pre-tokenizers ask for.

The patterns of the models are matched by Hugging Face's tokenizers with Unicode 16 classes, so ours are those of
Unicode 16. Python's own unicodedata is older; the data comes from the PyPI package unicodedata2, whose version is the
Unicode version:

    python3 -m venv v && v/bin/pip install 'unicodedata2==16.*'
    v/bin/python tools/gen_unicode.py > src/tokenizer/unicode_tables.inc

One difference: the Digits pre-tokenizer (smollm) asks Rust's char::is_numeric, which in tokenizers 0.23 already knows
the numbers of Unicode 17. They get a class of their own.
"""

import sys

import unicodedata2

VERSION = "16.0.0"
CLASSES = ["kOther", "kLetter", "kNumber", "kSpace", "kNewNumber"]
OTHER, LETTER, NUMBER, SPACE, NEW_NUMBER = range(5)
# The White_Space property (PropList.txt); unicodedata has no function for it. It has not changed since Unicode 6.3.
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
NUMBERS_OF_17 = {*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)}


def char_class(c):
    if c in WHITE_SPACE:
        return SPACE
    if c in NUMBERS_OF_17:
        return NEW_NUMBER
    general = unicodedata2.category(chr(c))
    return LETTER if general[0] == "L" else NUMBER if general[0] == "N" else OTHER


def ranges():
    first, current = 0, char_class(0)
    for c in range(1, 0x110001):
        following = char_class(c) if c < 0x110000 else None
        if following != current:
            if current != OTHER:
                yield first, c - 1, CLASSES[current]
            first, current = c, following


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, not {VERSION}")
    print(f"// Made by tools/gen_unicode.py from unicodedata2 {VERSION} (Unicode {VERSION}). Do not edit.")
    print("// {first, last, class}, ascending; what no range holds is kOther.")
    line = ""
    for first, last, name in ranges():
        text = f"{{0x{first:X}, 0x{last:X}, CharClass::{name}}},"
        if len(line) + 1 + len(text) > 118:
            print(line)
            line = ""
        line += (" " if line else "") + text
    print(line)


main()
