#!/usr/bin/env python3
"""Writes tests/golden/chat_templates.json: templates with the text that Python's Jinja renders for them.

The environment is the one that transformers gives to chat templates: the immutable sandbox, trim_blocks and
lstrip_blocks on, loop controls, the generation tag, tojson without escapes, raise_exception, strftime_now. The real
templates stand in tests/golden/templates/. Needs Jinja2 >= 3.1.

Usage: tools/template_golden.py  (from the repository's root)
"""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_golden_cases import CONTEXT, PIECES, REQUESTS

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLOCK = datetime.datetime(2026, 3, 4, 5, 6, 7)  # a fixed moment, the same in template_golden_test.cc


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Refusal(Exception):
    pass


def raise_exception(message):
    raise Refusal(message)


def to_json(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = CLOCK.strftime
    return env


def render(env, source, variables):
    """The case's outcome: its text, the template's own refusal, or that Jinja fails too."""
    try:
        return {"text": env.from_string(source).render(**variables)}
    except Refusal as e:
        return {"refusal": str(e)}
    except Exception as e:  # any failure of Jinja: ours has to fail as well, in its own words
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    env = make_environment()
    pieces = [{"source": s, **render(env, s, CONTEXT)} for s in PIECES]
    templates = {p.stem: p.read_text() for p in sorted((ROOT / "tests/golden/templates").glob("*.jinja"))}
    chats = []
    for name, source in templates.items():
        for request in REQUESTS:
            variables = {"messages": request["messages"], "tools": request.get("tools"), "documents": None,
                         "add_generation_prompt": request.get("add_generation_prompt", True),
                         "bos_token": "<s>", "eos_token": "</s>", **request.get("kwargs", {})}
            chats.append({"template": name, "request": request, **render(env, source, variables)})
    golden = {"context": CONTEXT, "pieces": pieces, "chats": chats}
    path = ROOT / "tests/golden/chat_templates.json"
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(pieces)} pieces, {len(chats)} chats, "
          f"{sum('error' in c for c in pieces + chats)} of them errors")


if __name__ == "__main__":
    main()
