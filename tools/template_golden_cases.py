"""The cases of template_golden.py: small templates that cover each construct, and chat requests for real templates."""

CONTEXT = {
    "x": [3, 1, 2], "s": " Hello wörld ", "n": 7, "f": 2.5, "t": True, "z": None, "e": [], "empty": "",
    "d": {"b": 1, "a": {"c": [1, 2.0, None, True, "q'\"\n"]}, "items": "shadowed"},
    "users": [{"name": "Ann", "age": 31, "ok": True}, {"name": "bob", "age": 25, "ok": False},
              {"name": "Cyd", "age": 31}],
    "messages": [{"role": "system", "content": "sys"}, {"role": "user", "content": "hi\nthere"},
                 {"role": "assistant", "content": "yo"}],
}

PIECES = [
    # text, comments, white space
    "plain", "", "\n", "a\n", "a\n\n", "a\r\nb\rc", "{# c #}x", "a {#- c -#} b", "a\n  {# c #}\nb", "{ { } } {x %} #}",
    "  {% if true %}\n  a\n  {% endif %}\nb", "  {%- if true -%}\n  a\n  {%- endif -%}\nb",
    "x  {% if true %}y{% endif %}", "a\n\t {% if true %}\nb{% endif %}\n\nc", "{%+ if true +%}\n a{% endif %}",
    "  {%+ if true %} x{% endif %}", "a {{- ' b ' -}} c", "a\n{{ n }}\nb", "  {{ n }}  ", "{{ n }}\n",
    "{% raw %}{{ x }} {% if %}{% endraw %}", "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb", "{%- raw -%} {{ }} {%- endraw -%} z",
    "{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}} }}", "{% if true %}{# c #}\n{% endif %}\nq", "é{{ 'ü' }}ß",
    "{% set q = 1 %}\n\n{{ q }}", "{{ n -}}\n  b", "a\n  {{- n }}", "{% if t -%}\n\n x {%- endif %}",
    # literals
    "{{ 1 }} {{ 1.5 }} {{ 1e3 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }}",
    "{{ 100000000000000000000.0 }} {{ 1/3 }} {{ 1e100 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }}",
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "{{ [] }} {{ () }} {{ {} }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}",
    "{{ [1, 'a', None, True, 2.5, [1], {'k': 'v'}, (1, 2)] }}", "{{ {'a': 1, 2: 'b', none: 3, 1.5: 4} }}",
    "{{ 'a' 'b' \"c\" }}", r"{{ 'a\nb\t\\ \' \" \x41 \u00e9 \101 \q' }}", r"""{{ ["it's", 'say "x"', 'b\'"', 'é\t\x00\x7f\u200b', '\U0001f600'] }}""",
    "{{ {1: 'a', 1.0: 'b', true: 'c'} }}", "{{ 'a\nb' }}", "{{ [1, 2,] }}{{ {'a': 1,} }}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2.0 ** 0.5 }} {{ 2 ** 62 }}", "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ - 3 + + 4 }}",
    "{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }} {{ 1 ~ 2 + 3|string }}", "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'a' * -1 }}|",
    "{{ [1] + [2] }} {{ (1,) + (2,) }}", "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ 2 >= 2 }} {{ 2 <= 1 }}",
    "{{ true == 1 }} {{ true + 1 }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1,) == [1] }} {{ 'a' == 1 }}",
    "{{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ 1 == 1 != 2 }}",
    "{{ 1 in x }} {{ 9 in x }} {{ 9 not in x }} {{ 'lo' in s }} {{ 'b' in d }} {{ 'zz' not in d }} {{ not 1 in x }}",
    "{{ t and n }} {{ e or 'dflt' }} {{ not t }} {{ not not n }} {{ none and 1 }} {{ '' or 0 or 'x' }} {{ t and not e }}",
    "{{ 'a' if t else 'b' }} {{ 'a' if e else 'b' }} {{ 'a' if e }}| {{ 1 if e else 2 if t else 3 }}",
    "{{ n is defined and n > 3 }} {{ 1 + 2 is number }}", "{{ -n|abs }} {{ n - 2|string|length }}", "{{ 1 - 1 == 0 }} {{ 5 - -3 }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' < 1 }}", "{{ 1 in 'abc' }}", "{{ 1 in n }}", "{{ -'a' }}", "{{ none + 1 }}", "{{ [1] + (2,) }}",
    # subscripts, slices, attributes
    "{{ x[0] }} {{ x[-1] }} {{ x[9] }}| {{ x.0 }} {{ d['b'] }} {{ d.b }} {{ d.a.c[1] }} {{ d['a']['c'][4] }}", "{{ d.nope }}|{{ d['nope'] }}|{{ none.x }}|{{ n.x }}|",
    "{{ x[1:] }} {{ x[:-1] }} {{ x[::-1] }} {{ x[::2] }} {{ x[5:] }} {{ x[-2:] }} {{ x[1:100] }} {{ x[2:0:-1] }}",
    "{{ s[1:6] }} {{ s[::-1] }} {{ s[8] }} {{ s[-3:] }} {{ 'héllo'[1] }} {{ 'héllo'[1:3] }} {{ (1, 2, 3)[1:] }} {{ s[:none] }}",
    "{{ range(5)[1:3]|list }} {{ messages[1:] | length }} {{ messages[0]['role'] }} {{ messages[-1].content }}",
    "{{ d.items() | list | length }} {{ d['items'] }} {{ d.keys() | list }} {{ d.b.c }}|", "{{ 'ab'['upper']() }}", "{{ d[[1]] }}|", "{{ x['a'] }}|",
    "{{ d.nope.deeper }}", "{{ undef.x }}", "{{ undef['x'] }}", "{{ x[0:1:0] }}", "{{ n[1:] }}|", "{{ d.keys()[0] }}|",
    # undefined
    "{{ undef }}|{{ undef is defined }} {{ undef is undefined }} {{ undef == undef }} {{ undef == none }} {{ undef or 'o' }} {{ undef ~ 'a' }}",
    "{{ undef | length }} {{ undef | list }} {{ undef | upper }}| {{ undef | default('d') }} {{ undef | string }}| {{ 'a' in undef }}",
    "{% for i in undef %}x{% else %}none{% endfor %}", "{% if undef %}a{% else %}b{% endif %}", "{{ undef + 1 }}", "{{ undef() }}", "{{ undef | tojson }}", "{{ undef < 1 }}", "{{ undef|int }}", "{{ [undef] }}",
    "{{ undef is none }} {{ undef is string }} {{ undef is iterable }} {{ undef is sequence }} {{ undef is mapping }}",
    # for
    "{% for i in x %}{{ i }},{% endfor %}", "{% for i in x %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in x %}[{{ loop.previtem }}|{{ i }}|{{ loop.nextitem }}]{% endfor %}", "{% for i in x %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}",
    "{% for i in e %}x{% else %}empty{% endfor %}", "{% for i in x if i > 1 %}{{ loop.index }}:{{ i }} {% endfor %}", "{% for i in x if i > 9 %}a{% else %}b{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }};{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for c in 'aé' %}[{{ c }}]{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for i in n %}{% endfor %}", "{% for i in none %}{% endfor %}",
    "{% for i in x %}{% for j in x %}{{ loop.index }}{{ loop.depth }}{% endfor %}/{{ loop.index }}{{ loop.depth0 }} {% endfor %}", "{% for i in x %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}", "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in x %}{% for j in x %}{% break %}{% endfor %}{{ i }}{% endfor %}", "{% for i in range(3) -%}\n {{ i }}\n{% endfor %}\nend", "{% for i in x | sort %}{{ i }}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}",
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}S{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}", "{% for i in x %}{{ loop }}{% endfor %}", "{{ loop is defined }}",
    "{% set i = 9 %}{% for i in x %}{{ i }}{% endfor %}{{ i }}", "{% for i in (x if t else e) %}{{ i }}{% endfor %}", "{% for i in x[::-1] %}{{ i }}{% endfor %}", "{% for u in users %}{{ u.name }}{{ ', ' if not loop.last }}{% endfor %}",
    # if, set, with, filter block
    "{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}", "{% if 0 %}a{% endif %}|{% if '' %}a{% endif %}|{% if [0] %}a{% endif %}|{% if 0.0 %}b{% endif %}",
    "{% set a = 1 %}{% set b = a + 1 %}{{ a }}{{ b }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a %} x {{ n }} {% endset %}[{{ a }}]", "{% set a | upper | trim %} x {% endset %}[{{ a }}]",
    "{% set a = 1 %}{% for i in x %}{% set a = i %}{{ a }}{% endfor %}{{ a }}", "{% if t %}{% set a = 5 %}{% endif %}{{ a }}", "{% set ns = namespace(a=1, b='x') %}{% for i in x %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|",
    "{% set ns = namespace() %}{% set ns.l = [] %}{% for i in x %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}{{ ns.zz is defined }}", "{{ namespace(a=1) }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set d.x = 1 %}",
    "{% for i in x %}{% if loop.first %}{% set q = 1 %}{% endif %}{{ q }}|{% endfor %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter trim | replace('a', 'b') %} aXa {% endfilter %}",
    "{% generation %}a{% set g = 1 %}{% endgeneration %}{{ g }}|", "{% for i in x %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}", "{%- generation -%}\n a \n{%- endgeneration -%}\n b",
    # macros
    "{% macro f(a, b=2) %}<{{ a }},{{ b }}>{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=4, a=5) }}{{ f() }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ n }}{% endcall %}",
    "{% macro f(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(v, k) f(x) %}{{ k }}={{ v }};{% endcall %}", "{% macro r(k) %}{{ k }}{% if k > 0 %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(3) }}",
    "{% macro f() -%}\n  a\n{%- endmacro %}{{ f() | upper }}{{ f() ~ 'b' }}", "{% set q = 1 %}{% macro f() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(zz=2) }}",
    "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}{{ f(none) }}", "{% macro f(a) %}{% set a = a + 1 %}{{ a }}{% endmacro %}{{ f(1) }}{{ f(*[5]) }}{{ f(**{'a': 7}) }}", "{% macro f() %}{{ x | length }}{% endmacro %}{% for x in [[1]] %}{{ f() }}{% endfor %}",
    # filters
    "[{{ s | trim }}] [{{ 'xxaxx' | trim('x') }}] {{ s | upper }} {{ s | lower }} {{ 'ÀÉ' | lower }} {{ 'straße é' | upper | replace('SS', 'ß') }}", "{{ 'hello wORLD foo-bar (baz' | title }} {{ 'hELLO wORLD' | capitalize }} {{ '' | capitalize }}|",
    "{{ x | length }} {{ s | count }} {{ d | length }} {{ 'é' | length }} {{ () | length }}", "{{ n | length }}", "{{ x | join }} {{ x | join(', ') }} {{ users | join('/', attribute='name') }} {{ 'abc' | join('-') }} {{ [1, none, 'a'] | join('|') }}",
    "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ d.a | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }}", "{{ [] | tojson(indent=1) }} {{ {} | tojson(indent=1) }} {{ [[], {}] | tojson(indent=1) }}",
    "{{ 'é\\n\\t\"\\\\/<>&\\u2028\\x01\\x7f' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }}", "{{ {1: 1, none: 2, true: 3, 1.5: 4} | tojson }} {{ (1, 2) | tojson }} {{ 1.0 | tojson }} {{ none | tojson }} {{ 'a' | tojson }}", "{{ range(3) | tojson }}", "{{ {(1, 2): 3} | tojson }}",
    "{{ z | default('d') }} {{ z | default('d', true) }} {{ '' | d('e', true) }} {{ undef | d }}| {{ undef | d(1) }} {{ d.zz | default([]) }} {{ 0 | default(5, boolean=true) }}", "{{ 'aaa' | replace('a', 'b') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 12 | replace(1, 'x') }} {{ 'ab' | replace('', '-') }}",
    "{{ x | first }} {{ x | last }} {{ e | first }}| {{ 'abc' | first }} {{ 'abc' | last }} {{ d | first }} {{ e | last is defined }}", "{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }} {{ range(3) | list }}", "{{ x | map('string') | join('+') }} {{ users | map(attribute='name') | list }} {{ users | map(attribute='ok', default='?') | list }}",
    "{{ ['a ', ' b'] | map('trim') | list }} {{ ['a', 'b'] | map('replace', 'a', 'z') | list }} {{ x | map('float') | list }}", "{{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1] | reject | list }} {{ x | select('odd') | list }} {{ x | reject('gt', 1) | list }} {{ x | select('in', [1, 2]) | list }}",
    "{{ users | selectattr('ok') | map(attribute='name') | list }} {{ users | selectattr('age', 'equalto', 31) | list | length }} {{ users | rejectattr('ok') | map(attribute='name') | join(',') }} {{ users | selectattr('ok', 'defined') | list | length }}",
    "{{ messages | selectattr('role', '==', 'user') | map(attribute='content') | first }}", "{{ messages | rejectattr('role', 'eq', 'system') | list | length }}", "{{ d | items | list }}", "{{ n | string + 'a' }} {{ '5' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '5.7' | int }} {{ 2.9 | int }} {{ -2.9 | int }} {{ ' 4_2 ' | int }} {{ '0x1f' | int(base=16) }} {{ true | int }} {{ none | int }}",
    "{{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ none | float(2.0) }}", "{{ '<b>' | safe }} {{ '<b>' | string }}", "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb\\n' | indent('> ') }}|", "{{ -3 | abs }} {{ -2.5 | abs }} {{ 3 | abs }}",
    "{{ x | sort }} {{ x | sort(reverse=true) }} {{ ['b', 'A', 'a'] | sort }} {{ ['b', 'A', 'a'] | sort(case_sensitive=true) }} {{ users | sort(attribute='age') | map(attribute='name') | list }}", "{{ [1, 'a'] | sort }}", "{{ ['b', 'A', 'a', 'B'] | unique | list }} {{ [1, 1.0, 2] | unique | list }} {{ users | unique(attribute='age') | map(attribute='name') | list }}",
    "{{ 'abc' | reverse }} {{ x | reverse | list }} {{ 'é1' | reverse }}", "{{ {'b': 1, 'a': 2} | dictsort }} {{ x | min }} {{ x | max }} {{ 2.567 | round(2) }} {{ 2.4 | round }}", "{{ x | map('upper') | join | length }}", "{{ 'a' | upper | lower | trim | length }}", "{{ x | select('odd') | length }}", "{{ 1 | trim(2) }}",
    # tests
    "{{ n is defined }} {{ n is none }} {{ z is none }} {{ s is string }} {{ d is mapping }} {{ x is mapping }} {{ x is iterable }} {{ s is iterable }} {{ n is iterable }}", "{{ x is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ d.keys() is sequence }} {{ d.keys() is iterable }}",
    "{{ n is number }} {{ f is number }} {{ t is number }} {{ s is number }} {{ n is integer }} {{ t is integer }} {{ f is integer }} {{ f is float }} {{ t is boolean }} {{ n is boolean }}", "{{ t is true }} {{ 1 is true }} {{ false is false }} {{ e is false }} {{ t is not false }}",
    "{{ n is equalto 7 }} {{ n is eq(7) }}", "{{ n is == 7 }}", "{{ n is eq 7 }} {{ n is ne 7 }} {{ n is in x }} {{ 1 is in [1, 2] }} {{ 3 is odd }} {{ 3 is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ n is gt 3 }} {{ n is lessthan 3 }}",
    "{{ n is not defined }} {{ not n is defined }} {{ n is defined and x is defined }} {{ n is string or t }} {{ 'a' if n is defined else 'b' }}", "{{ 'abc' is lower }} {{ 'Abc' is lower }} {{ 'ABC1' is upper }} {{ range is callable }} {{ n is callable }}", "{{ 's' is odd }}",
    # methods
    "[{{ s.strip() }}] [{{ s.lstrip() }}] [{{ s.rstrip() }}] {{ 'xyax'.strip('xy') }} {{ 'xax'.lstrip('x') }} {{ 'xax'.rstrip('x') }}", "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</t>b'.split('</t>')[-1] }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ' a b'.rsplit(none, 1) }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ ''.startswith('') }}", "{{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ \"they're bill's\".title() }} {{ 'hELLO'.capitalize() }}", "{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 1) }} {{ 'abc'.find('c') }} {{ 'abc'.find('x') }} {{ 'éa'.find('a') }} {{ 'aaa'.count('a') }} {{ 'aaa'.count('aa') }} {{ 'abab'.rfind('b') }}",
    "{{ ','.join(['a', 'b']) }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ '12'.isdigit() }} {{ 'x'.isdigit() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}", "{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 'q') }} {{ d.values() | list | length }} {{ {'a': 1}.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }}", "{{ x.index(1) }} {{ x.count(3) }}",
    "{{ 'a'.nope() }}", "{{ x.append(1) }}", "{{ d.update({}) }}", "{{ ','.join([1]) }}", "{{ 'a'.split('') }}", "{{ s.strip(1) }}", "{{ n.strip() }}",
    # functions
    "{{ range(3) }} {{ range(1, 4) | list }} {{ range(0, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ 2 in range(3) }} {{ range(1, 9, 2) }}", "{{ dict(a=1, b='x') }} {{ dict({'a': 1}, b=2) }} {{ dict([('k', 'v')]) }}", "{{ raise_exception('No. ' ~ n) }}", "{% if n > 3 %}{{ raise_exception('too big') }}{% endif %}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%A, %B %-d') }}", "{{ nofunc(1) }}", "{{ range(1, 2, 0) }}", "{{ range(200000) }}", "{{ n() }}", "{{ range('a') }}",
    # syntax errors
    "{{ 1 + }}", "{% if %}{% endif %}", "{% if true %}", "{% endif %}", "{% for in x %}{% endfor %}", "{{ 'abc }}", "{# open", "{{ (1 }}", "{{ 1 ", "{% frobnicate %}x{% endfrobnicate %}", "{{ x | nosuch }}", "{{ x is nosuch }}", "{{ a b }}", "{{ }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% break %}", "{{ f(a=1, 2) }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% include 'x' %}", "{{ x | map('nosuch') | list }}", "{% else %}", "{{ [1, 2 }}", "{{ 1 }", "{{ ?a }}",
]

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"soon\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Stadt, z. B. Köln"}}, "required": ["city"]}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "days": 2}}}]}

REQUESTS = [
    {"messages": [{"role": "user", "content": "hi"}]},
    {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": False},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  hi\n"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}, {"role": "user", "content": "c"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    {"messages": []},
    {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]},
    {"messages": [{"role": "foo", "content": "x"}]},
    {"messages": [{"role": "user", "content": "Wetter?"}], "tools": TOOLS},
    {"messages": [{"role": "system", "content": "Sys"}, {"role": "user", "content": "Wetter?"}, CALL,
                  {"role": "tool", "content": "{\"t\": 3}", "name": "get_weather"},
                  {"role": "tool", "content": "second"}, {"role": "assistant", "content": "3 Grad"}], "tools": TOOLS},
    {"messages": [{"role": "user", "content": "A<|im_end|>B 'q' \"r\" \\n é 😀"}]},
    {"messages": [{"role": "user", "content": ""}]},
    {"messages": [{"role": "user", "content": "hi"}], "kwargs": {"enable_thinking": False}},
]
