# SPDX-License-Identifier: Apache-2.0
"""Prompts in Spec-Bench's question format."""

import dataclasses
import json

# Spec-Bench's chat questions carry their topic as category.
CHAT_TOPICS = frozenset({
    "writing", "roleplay", "reasoning", "math", "coding", "extraction",
    "stem", "humanities"})


@dataclasses.dataclass(frozen=True)
class Prompt:
    question_id: int
    group: str
    text: str


def group_of(category):
    return "chat" if category in CHAT_TOPICS else category


def parse(lines):
    """The first turns of the questions in an iterable of lines. Raises
    ValueError that names the line."""
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = json.loads(line)
            text = question["turns"][0]
            if not isinstance(text, str) or not text:
                raise ValueError("turns[0] is no text")
            prompts.append(Prompt(question["question_id"],
                                  group_of(question["category"]), text))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"line {number} is no question with question_id, category "
                f"and turns: {error!r}") from error
    return prompts


def pick(prompts, count):
    """`count` prompts, taken in turns from the groups, so that each group has
    its share. Raises ValueError if there are too few."""
    if count > len(prompts):
        raise ValueError(f"{count} prompts are asked for, there are "
                         f"{len(prompts)}")
    by_group = {}
    for prompt in prompts:
        by_group.setdefault(prompt.group, []).append(prompt)
    picked = []
    while len(picked) < count:
        for waiting in by_group.values():
            if waiting and len(picked) < count:
                picked.append(waiting.pop(0))
    return picked
