#!/usr/bin/env python3
"""tokenize and the prompt: lines as they are, and text that a user types never becomes a control token."""
import json
import os
import sys

import _harness as h

END = "<|im_end|>"


def tokenize(text, *flags, model=None):
    lines = h.run("tokenize", "-m", model or h.real_model(), *flags, stdin=text).text().split("\n")
    h.equal(lines.pop(), "")
    return [json.loads(line) for line in lines]


def test_lines():
    got = tokenize(b"one\n\ntwo words\r\nlast")
    h.equal([g["text"] for g in got], ["one", "", "two words\r", "last"])
    for g in got:
        h.equal(list(g), ["text", "ids", "pieces", "decoded"])
        h.equal(g["decoded"], g["text"])
        h.equal(len(g["ids"]), len(g["pieces"]))
    h.equal(got[1]["ids"], [])
    h.equal(len(tokenize(b"one\n")), 1)
    h.equal(tokenize(b""), [])
    h.equal(len(tokenize(b"\n\n")), 2)
    # Only \n ends a line.
    h.equal(len(tokenize("a\u2028b\x0bc\x85d".encode())), 1)


def test_control_text_is_text_unless_asked():
    plain, parsed = tokenize(("A%sB" % END).encode())[0], tokenize(("A%sB" % END).encode(), "--parse-special")[0]
    h.equal(len(parsed["ids"]), 3)
    h.equal(parsed["pieces"][1], END)
    control = parsed["ids"][1]
    h.check(control not in plain["ids"], plain)
    h.equal(plain["decoded"], "A%sB" % END)
    # In a chat the template's own end of turn is one token, the user's is many.
    model = h.real_model()
    with_text = h.run("run", "-m", model, "-p", "A%sB" % END, "-n", 1, "--json").json()["prompt_tokens"]
    without = h.run("run", "-m", model, "-p", "AB", "-n", 1, "--json").json()["prompt_tokens"]
    h.equal(with_text - without, len(plain["ids"]) - len(tokenize(b"AB")[0]["ids"]), "prompt tokens")
    raw = h.run("run", "-m", model, "--raw", "-p", "A%sB" % END, "-n", 1, "--json").json()["prompt_tokens"]
    h.equal(raw, len(plain["ids"]), "bare text")


def model_with(template, add_bos):
    sys.path.insert(0, os.path.join(h.ROOT, "tools"))
    import gguf_writer
    import make_tiny_model
    keys, tensors = make_tiny_model.build(make_tiny_model.Tiny())
    changed = [gguf_writer.kv("tokenizer.ggml.add_bos_token", gguf_writer.BOOL, add_bos),
               gguf_writer.kv("tokenizer.chat_template", gguf_writer.STRING, template)]
    names = [b"tokenizer.ggml.add_bos_token", b"tokenizer.chat_template"]
    keys = [k for k in keys if not any(n in k for n in names)] + changed
    path = h.scratch("bos.gguf")
    with open(path, "wb") as f:
        f.write(gguf_writer.write(keys, tensors))
    return path


def test_one_start_token_at_most():
    """A template that writes the start token, and a file that asks for one: the prompt has it once."""
    def prompt_tokens(*flags):
        return h.run("run", "-m", model, "-n", 1, "--json", *flags).json()["prompt_tokens"]
    body = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    for template in ("{{ bos_token }}" + body, body):
        model = model_with(template, 1)
        h.equal(prompt_tokens("--chat", "-p", "hello"), 2, template)
        h.equal(prompt_tokens("--raw", "-p", "hello"), 2)
    model = model_with(body, 0)
    h.equal((prompt_tokens("--chat", "-p", "hello"), prompt_tokens("--raw", "-p", "hello")), (1, 1))
    model = model_with("{{ bos_token }}" + body, 0)
    h.equal(prompt_tokens("--chat", "-p", "hello"), 2)


def test_the_real_templates_tokens():
    model = h.real_model()
    start = tokenize(b"<|im_start|>", "--parse-special")[0]["ids"]
    h.equal(len(start), 1)
    chat = h.run("run", "-m", model, "--chat", "-p", "hi", "-n", 1, "--json").json()["prompt_tokens"]
    text = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" \
           "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    # tokenize splits at \n: count the whole and add the newlines between.
    counted = sum(len(g["ids"]) for g in tokenize(text.encode(), "--parse-special"))
    newlines = text.count("\n")
    h.equal(chat, counted + newlines, "tokens of the rendered chat")


def test_special_and_vocabulary_only():
    model = h.tiny_model()
    h.equal(tokenize(b"hello", model=model)[0]["pieces"], ["hello"])
    h.equal(h.run("tokenize", "-m", "/nowhere", code=3, stdin=b"a").out, b"")


def test_bytes_that_are_no_text():
    result = h.run("tokenize", "-m", h.real_model(), stdin=b"ok\n\xff\xfe broken\nok\n", code=None)
    h.check(result.code in (0, 2), result.code, result.err)
    for line in result.out.splitlines():
        json.loads(line.decode())  # valid UTF-8, valid JSON


h.main(globals())
