#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/hf_tokenizers: small tokenizers and what libraries make of texts with them.

Trains a tokenizer in the form of each model family on the text below, writes it as the family's folders have it
(tokenizer.json, tokenizer_config.json, special_tokens_map.json, chat_template.jinja), and writes next to it

  golden.json    for each text of ../strings.json its ids (special tokens recognised, and not where that differs), what
                 decoding gives where that is not the text, and whether a prompt begins with BOS;
  chats.json     what the folder's chat template makes of each conversation of ../chats.json, and the ids of that.

Run by hand, from the repository's root; the output is committed. Needs, from PyPI:
  pip install tokenizers==0.23.3 transformers==5.24.0 jinja2
"""

import datetime
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "hf_tokenizers"
SPACE = "\u2581"

CORPUS = """
The river runs past the old mill, and the miller's daughter counts the boats: one, two, three hundred and forty-two.
She isn't sure that they'll arrive before 12:45 on 2024-05-17; we've seen it happen in 1999 and 2008 as well.
If you're asking me, I'd say it's better to wait. THE END OF THE STORY. Don't Panic!
def count(boats):\n    total = 0\n    for boat in boats:\n        total += boat.size  # in metres\n    return total\n
for (int i = 0; i < 100; ++i) { printf("%d\\n", i); }\n\n\n\tif (x == y) { return x + 1; }
{"name": "miller", "age": 42, "boats": [1, 2, 3], "open": true, "note": null}
Der Fluß fließt an der alten Mühle vorbei; die Müllerin zählt die Boote. Größe, Straße, schön, über.
Le fleuve coule près du vieux moulin, et la fille du meunier compte les bateaux : déjà quarante-deux, à l'été.
El río corre junto al viejo molino y la niña cuenta los barcos. ¿Cuántos son? ¡Mañana serán más!
Река течёт мимо старой мельницы, и дочь мельника считает лодки. Сколько их? Сорок две.
川は古い水車小屋のそばを流れ、粉屋の娘は船を数える。四十二そうです。
河水流过老磨坊,磨坊主的女儿数着船:一、二、三。今天有四十二条船。
강은 오래된 방앗간을 지나 흐르고, 방앗간 딸은 배를 센다.
يجري النهر بجانب الطاحونة القديمة، وتعد ابنة الطحان القوارب.
नदी पुरानी चक्की के पास से बहती है।
\U0001F600 \U0001F680 \u2764\uFE0F fine \u2014 caf\u00e9 na\u00efve \u201cquoted\u201d \u2026
""".strip()

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

NUM_MERGES = 340


def trained(pre_tokenizer, normalizer=None, alphabet=()):
    """(merges, single characters) of byte-pair encoding trained on CORPUS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=len(set(CORPUS)) + len(alphabet) + NUM_MERGES, initial_alphabet=list(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]][:NUM_MERGES]
    characters = sorted(token for token in model["vocab"] if len(token) == 1)
    return merges, characters


def numbered(tokens):
    assert len(tokens) == len(set(tokens)), [token for token in tokens if tokens.count(token) > 1]
    return {token: i for i, token in enumerate(tokens)}


def special(text, **options):
    return AddedToken(text, special=True, normalized=options.pop("normalized", False), **options)


def byte_level(pattern, first=(), nfc=False, ignore_merges=False, digits=False):
    """Byte-level BPE: GPT-2 and what came after it. `first` are the specials in the vocabulary itself."""
    if digits:
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        steps = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    pre = pre_tokenizers.Sequence(steps)
    normalizer = normalizers.NFC() if nfc else None
    merges, characters = trained(pre, normalizer, pre_tokenizers.ByteLevel.alphabet())
    vocab = numbered(list(first) + characters + [left + right for left, right in merges])
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def spelled_spaces(form, first, extra=()):
    """SentencePiece's BPE as converted; `form` is prepend, gemma or a scheme of Metaspace."""
    merges, characters = trained(pre_tokenizers.Metaspace(prepend_scheme="always", split=True))
    # As in the original vocabularies, some characters have no token: there the bytes do their work.
    rare = set("\u0439\u00e9\u00fc\u6cb3\U0001F680")
    characters = [c for c in characters if c not in rare and c not in extra]
    first_merges = [(SPACE, SPACE), (SPACE * 2, SPACE * 2)]
    if "\n" in extra:
        first_merges += [("\n", "\n"), ("\n\n", "\n")]
    merges = first_merges + [(left, right) for left, right in merges if not set(left + right) & rare]
    words = [left + right for left, right in merges if left + right not in extra]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = numbered(list(first) + list(extra) + bytes_ + words + characters)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if form == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif form == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=form, split=False)
    if form not in ("gemma", "never"):
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def begins_with(tokenizer, text):
    return processors.TemplateProcessing(
        single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, tokenizer.token_to_id(text))]
    )


# The chat templates: written for this test from what is known of the prompts of these models, with the means that
# published templates use.

LLAMA2_CHAT = """\
{%- if messages[0]['role'] == 'system' -%}
    {%- set turns = messages[1:] -%}
    {%- set system_text = messages[0]['content'] -%}
{%- else -%}
    {%- set turns = messages -%}
    {%- set system_text = false -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('user and assistant must take turns') -}}
    {%- endif -%}
    {%- if loop.index0 == 0 and system_text != false -%}
        {%- set text = '<<SYS>>\\n' + system_text + '\\n<</SYS>>\\n\\n' + turn['content'] -%}
    {%- else -%}
        {%- set text = turn['content'] -%}
    {%- endif -%}
    {%- if turn['role'] == 'user' -%}
        {{- bos_token + '[INST] ' + text.strip() + ' [/INST]' -}}
    {%- elif turn['role'] == 'assistant' -%}
        {{- ' ' + text.strip() + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}
"""

LLAMA3_CHAT = """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{%- if messages[0]['role'] == 'system' %}
    {%- set system_text = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_text = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_text }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL_CHAT = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_text = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_turns = turns | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, user and assistant must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in turns %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_turns[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" ~ (tools | tojson) ~ "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_text is defined %}
            {{- "[INST] " + system_text + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

QWEN25_CHAT = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- endif %}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

QWEN3_CHAT = """\
{%- macro opening(role) %}<|im_start|>{{ role }}
{% endmacro %}
{%- if messages[0].role == 'system' %}
    {{- opening('system') + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(looking=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.looking and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.looking = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- opening(message.role) + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and thoughts)) %}
            {{- opening(message.role) + '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- opening(message.role) + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- opening('assistant') }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

GEMMA3_CHAT = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set before_user = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set before_user = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set before_user = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (before_user if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

SMOLLM2_CHAT = """\
{% set greeting %}You are SmolLM, a small assistant.{% endset %}
{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\n' ~ greeting ~ '<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def llama2_legacy():
    tokenizer = spelled_spaces("prepend", ["<unk>", "<s>", "</s>"])
    tokenizer.add_special_tokens([special(text, normalized=True) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": True},
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": True},
        "unk_token": "<unk>",
        "chat_template": LLAMA2_CHAT,
    }
    return tokenizer, config, None, None


def llama2():
    tokenizer = spelled_spaces("first", ["<unk>", "<s>", "</s>"])
    tokenizer.add_special_tokens([special(text) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": LLAMA2_CHAT}
    return tokenizer, config, None, None


def mistral():
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
    tokenizer = spelled_spaces("prepend", names)
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    config = {
        "add_bos_token": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": [{"name": "default", "template": MISTRAL_CHAT}, {"name": "tool_use", "template": "{{ 1 }}"}],
    }
    return tokenizer, config, None, None


def tekken():
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    tokenizer = byte_level(TEKKEN_PATTERN, first=names, ignore_merges=True)
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, None, MISTRAL_CHAT


def llama3():
    tokenizer = byte_level(LLAMA3_PATTERN, ignore_merges=True)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>"]
    tokenizer.add_special_tokens([special(name) for name in names + ["<|end_header_id|>", "<|eot_id|>"]])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), begins_with(tokenizer, "<|begin_of_text|>")]
    )
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": LLAMA3_CHAT}
    return tokenizer, config, None, None


def smollm2():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>"]
    tokenizer = byte_level(None, first=names, digits=True)
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.post_processor = None
    tokens_map = {
        "bos_token": {"content": "<|im_start|>", "lstrip": False},
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
    }
    return tokenizer, {"chat_template": SMOLLM2_CHAT}, tokens_map, None


QWEN_TOOLS = ["<tool_call>", "</tool_call>"]


def qwen25():
    tokenizer = byte_level(QWEN2_PATTERN, nfc=True)
    tokenizer.add_special_tokens([special(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in QWEN_TOOLS])
    config = {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>", "chat_template": QWEN25_CHAT}
    return tokenizer, config, None, None


def qwen3():
    tokenizer = byte_level(QWEN2_PATTERN, nfc=True)
    tokenizer.add_special_tokens([special(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    names = QWEN_TOOLS + ["<tool_response>", "</tool_response>", "<think>", "</think>"]
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in names])
    config = {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>"}
    return tokenizer, config, None, QWEN3_CHAT


def gemma3():
    extra = ["\n" * n for n in range(1, 4)] + [SPACE * 2, SPACE * 4] + ["<table>", "</table>", "<b>", "</b>"]
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<unused0>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = spelled_spaces("gemma", names, extra)
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in extra])
    tokenizer.post_processor = begins_with(tokenizer, "<bos>")
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "chat_template": GEMMA3_CHAT}
    return tokenizer, config, None, None


FAMILIES = [llama2_legacy, llama2, mistral, tekken, llama3, smollm2, qwen25, qwen3, gemma3]

HAND_WRITTEN = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n\n\n", "\t", "\r\n", " \n ", "\u00a0", "\u3000", "\u200b", "\u180e", "\x85",
    "a", " a", "  a", "a ", "a  ", " a b ", "The river runs.", " The river runs.", "the  old   mill",
    "isn't they'll I'D WE'VE you're 'S 's", "It\u2019s", "1", "12", "123", "1234", "12345678901234567890", "3.14159",
    "1,234,567", "2024-05-17T12:45:00Z", "x1y22z333", "\u0661\u0662\u0663", "\u00bd\u00b2\u2163", "\uff11\uff12",
    "def f(x):\n    return x + 1\n", "if (a==b){\n\t\treturn;\n}\n\n", "for(int i=0;i<10;++i)", "a\tb\tc", "    indented",
    "caf\u00e9", "cafe\u0301", "\u00e9\u00e9", "e\u0301\u0301", "\u0301", " \u0301", "\u1e9b\u0323", "\u212b", "\ud55c\uae00",
    "\u1112\u1161\u11ab", "\u0958", "Gr\u00f6\u00dfe Stra\u00dfe M\u00fchle", "\u0130\u0131\u017f'\u017f",
    "\u0420\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442 \u0438 \u0439\u043e\u0434",
    "\u5ddd\u306f\u53e4\u3044\u6c34\u8eca", "\u6cb3\u6c34\u6d41\u8fc7\u8001\u78e8\u574a", "\u6cb3\u6cb3\u6cb3",
    "\uac15\uc740 \uc624\ub798\ub41c", "\u064a\u062c\u0631\u064a \u0627\u0644\u0646\u0647\u0631",
    "\u0928\u0926\u0940 \u092a\u0941\u0930\u093e\u0928\u0940", "\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33",
    "\U0001F600", "\U0001F600\U0001F680", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA",
    "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "\u2764", "\u00001", "\u0001\u0002\u001f\u007f", "a\u0000b", "\ufeffBOM",
    "\ufffd", "\U0010ffff", "\ue000", "\u2581", "\u2581\u2581a", "a\u2581b", " \u2581", "<0x41>", "<0x0A>", "<0xZZ>",
    "<s>", "</s>", "<s>a", "a<s>", " <s> a", "<s><s>", "<s></s>", "<s> <s>", "<s>  a", "a <s> b </s> c", "<s", "s>",
    "<<s>>", "<unk>", "a<unk>b", "<pad><bos><eos>", "<|im_start|>user\nHi<|im_end|>\n", "<|im_end|>\u0338", "<|im_",
    "<|begin_of_text|>x<|eot_id|>", "<|end_header_id|>\n\n", "[INST] x [/INST]", "[INST][INST]", "[INST", "<|endoftext|>",
    "<think>\nhm\n</think>\n\n", "<tool_call>{}</tool_call>", "<b>x</b>", "<table>  <b>", "<start_of_turn>user\n\nx",
    "<end_of_turn>\n\n\n\n", "<unused0>", "<|im_start|><think>", "a" * 60, " " * 33, "\n" * 9, "ab" * 30, "=" * 40,
    "-" * 17 + "\n", "!?!?!?", "...", "\u2026\u201cx\u201d\u2014", "a/b/c\\d", "http://example.org/a?b=c&d=e#f", "me@example.org",
    "THE END OF THE STORY", "camelCaseAndSnake_case", "\u01c5\u01c4\u01c6", "\u02b0\u02b1", "\u0915\u094d\u0937\u093f",
    "{\"name\": \"miller\", \"age\": 42}", "%d\\n", "a\u0308\u0323", "\u0323\u0308", "x\u0338", ">\u0338", "<s>\u0338",
]

UNITS = [
    " ", " ", " ", "  ", "\n", "\n\n", "\t", "a", "the", "The", "river", " mill", "'s", "'LL", "1", "42", "2024", ".", ", ",
    "!", "()", "{", "\u00e9", "e\u0301", "\u00df", "\u0439", "\u0440\u0435\u043a\u0430", "\u6cb3", "\u6c34", "\u5ddd", "\uac15",
    "\u0646", "\u0940", "\U0001F600", "\U0001F680", "\u200d", "\ufe0f", "\u0301", "\u2581", "\u00a0", "\x00", "\x7f", "<s>",
    "</s>", "<unk>", "<bos>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "[INST]", "<think>", "<b>",
    "<0x41>", "<", ">",
]


def strings():
    rng = random.Random(20)
    texts = list(HAND_WRITTEN)
    while len(texts) < 400:
        texts.append("".join(rng.choice(UNITS) for _ in range(rng.randint(1, 9))))
    return list(dict.fromkeys(texts))


def chats():
    turns = [
        ("user", "How many boats?"), ("assistant", " Forty-two. "), ("user", "\nAnd now?\n"), ("assistant", "None."),
        ("user", "  Why <s> not </s>\u2014caf\u00e9?"),
    ]
    thinking = [
        ("user", "Count."), ("assistant", "<think>\nIt is easy.\n</think>\n\nOne."), ("user", "More."),
        ("assistant", "<think>\n\n</think>\n\nTwo."),
    ]
    talks = [turns[:1], turns[:2], turns[:3], turns, thinking[:3], thinking, [("user", "")], [("user", "\U0001F600\n\n")]]
    result = []
    for talk in talks:
        for system in (None, "Be brief.", "  Speak of boats.\n"):
            messages = [] if system is None else [{"role": "system", "content": system}]
            messages += [{"role": role, "content": content} for role, content in talk]
            for opening in (True, False):
                result.append({"messages": messages, "add_generation_prompt": opening})
    # Roles that some templates refuse.
    for roles in (("user", "user"), ("assistant",), ("user", "tool"), ("user", "assistant", "tool", "tool")):
        messages = [{"role": role, "content": f"text {i}"} for i, role in enumerate(roles)]
        result.append({"messages": messages, "add_generation_prompt": True})
    return result


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, tzinfo=tz)


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def write_folder(folder, tokenizer, config, tokens_map, jinja):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    write(folder / "tokenizer.json", json.loads(tokenizer.to_str()))
    write(folder / "tokenizer_config.json", config | {"tokenizer_class": "PreTrainedTokenizerFast"})
    if tokens_map is not None:
        write(folder / "special_tokens_map.json", tokens_map)
    if jinja is not None:
        (folder / "chat_template.jinja").write_text(jinja, encoding="utf-8")


def golden(tokenizer, texts):
    rows = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"ids": ids}
        if as_text != ids:
            row["as_text"] = as_text
        for name, skip in (("decoded", False), ("shown", True)):
            decoded = tokenizer.decode(ids, skip_special_tokens=skip)
            if decoded != text:
                row[name] = decoded
        rows.append(row)
    tokenizer.encode_special_tokens = False
    return rows


def render(folder, conversations):
    import transformers
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = FixedDate
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = []
    for chat in conversations:
        try:
            text = tokenizer.apply_chat_template(
                chat["messages"], tokenize=False, add_generation_prompt=chat["add_generation_prompt"]
            )
        except Exception as error:  # What the template raised.
            rows.append({"error": str(error)})
            continue
        rows.append({"text": text, "ids": plain.encode(text, add_special_tokens=False).ids})
    ids = tokenizer.encode("a")
    without = tokenizer.encode("a", add_special_tokens=False)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert ids == without or ids == [bos] + without
    return rows, {"bos_id": bos, "eos_id": eos, "add_bos": ids != without}


def main():
    texts = strings()
    conversations = chats()
    write(ROOT / "strings.json", texts)
    write(ROOT / "chats.json", conversations)
    for family in FAMILIES:
        folder = ROOT / family.__name__
        tokenizer, config, tokens_map, jinja = family()
        write_folder(folder, tokenizer, config, tokens_map, jinja)
        rows = golden(Tokenizer.from_file(str(folder / "tokenizer.json")), texts)
        chat_rows, ends = render(folder, conversations)
        write(folder / "golden.json", ends | {"texts": rows})
        write(folder / "chats.json", chat_rows)
        print(family.__name__, tokenizer.get_vocab_size(), "tokens,", len(rows), "texts")


if __name__ == "__main__":
    main()
