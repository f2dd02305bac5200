# SPDX-License-Identifier: Apache-2.0
"""From single requests to the figures of the table. Pure."""

import dataclasses
import statistics

PLAIN = "plain"
SPECULATIVE = "speculative"
MODES = (PLAIN, SPECULATIVE)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One request."""
    engine: str
    threads: int
    mode: str
    question_id: int
    group: str
    # From 0.
    repeat: int
    token_ids: tuple
    # From the request to its first token, and from there to the last one.
    time_to_first_token_s: float
    generation_s: float
    # Passes of the target model, the prompt's included.
    passes: int
    # Of the engine's own processes, the client not included.
    cpu_s: float


def decode_rate(samples):
    """Tokens a second behind the first token: total tokens by total time."""
    return _rate(sum(len(s.token_ids) - 1 for s in samples),
                 sum(s.generation_s for s in samples))


def end_to_end_rate(samples):
    """Tokens a second of whole requests, the prompt's pass included."""
    return _rate(sum(len(s.token_ids) for s in samples),
                 sum(s.time_to_first_token_s + s.generation_s
                     for s in samples))


def _rate(tokens, seconds):
    return tokens / seconds if seconds > 0 else 0.0


def spread(values):
    """Median, least and greatest; None of no values."""
    values = list(values)
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values),
            "max": max(values)}


def by_repeat(samples, figure):
    """[figure of all requests of repeat 0, of repeat 1, ...]"""
    repeats = {}
    for sample in samples:
        repeats.setdefault(sample.repeat, []).append(sample)
    return [figure(repeats[number]) for number in sorted(repeats)]


def ratios(numerators, denominators):
    """Of figures by repeat, in pairs: what slowed a repeat slowed both."""
    return [a / b for a, b in zip(numerators, denominators) if b > 0]


def texts(samples):
    """{question_id: set of the texts of all repeats}"""
    found = {}
    for sample in samples:
        found.setdefault(sample.question_id, set()).add(sample.token_ids)
    return found


def questions_equal(plain, speculative):
    """Ids of the questions whose tokens are the same with and without
    speculation in every repeat."""
    without, with_it = texts(plain), texts(speculative)
    return [question for question, found in without.items()
            if len(found | with_it.get(question, set())) == 1
            and question in with_it]


def num_repeatable(samples):
    """Questions whose tokens are the same in every repeat."""
    return sum(len(found) == 1 for found in texts(samples).values())


def repeat_rate(token_ids, length=4):
    """Share of a text's runs of `length` tokens that have occurred before in
    it. A greedy text that goes in circles is easy to look up."""
    grams = [tuple(token_ids[i:i + length])
             for i in range(len(token_ids) - length + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def mode_figures(samples):
    """The figures of one engine, thread count and mode."""
    tokens = sum(len(s.token_ids) for s in samples)
    passes = sum(s.passes for s in samples)
    return {
        "tokens_per_second": spread(by_repeat(samples, decode_rate)),
        "end_to_end_tokens_per_second":
            spread(by_repeat(samples, end_to_end_rate)),
        "time_to_first_token_ms":
            spread(1000 * s.time_to_first_token_s for s in samples),
        "tokens_per_pass": tokens / passes if passes else None,
        "cpu_seconds_per_token": sum(s.cpu_s for s in samples) / tokens,
        "repeat_rate": statistics.mean(repeat_rate(s.token_ids)
                                       for s in samples),
        "prompts_repeatable": num_repeatable(samples),
    }


def group_figures(plain, speculative):
    """The same comparison for each group of prompts."""
    equal = set(questions_equal(plain, speculative))
    groups = {}
    for group in dict.fromkeys(s.group for s in plain):
        without = [s for s in plain if s.group == group]
        with_it = [s for s in speculative if s.group == group]
        questions = {s.question_id for s in without}
        groups[group] = {
            "prompts": len(questions),
            "prompts_equal": len(questions & equal),
            "plain_tokens_per_second":
                spread(by_repeat(without, decode_rate))["median"],
            "speculative_tokens_per_second":
                spread(by_repeat(with_it, decode_rate))["median"],
            "speedup": spread(ratios(by_repeat(with_it, decode_rate),
                                     by_repeat(without, decode_rate))),
        }
    return groups


def select(samples, engine, threads, mode):
    return [s for s in samples if (s.engine, s.threads, s.mode) ==
            (engine, threads, mode)]


def engine_entry(samples, engine, threads, max_tokens):
    """One entry of the document's "engines"; compares with Specwire's samples
    of the same thread count."""
    plain, speculative = (select(samples, engine, threads, mode)
                          for mode in MODES)
    plain_rates = by_repeat(plain, decode_rate)
    speculative_rates = by_repeat(speculative, decode_rate)
    ours = {mode: by_repeat(select(samples, "specwire", threads, mode),
                            decode_rate) for mode in MODES}
    best = [max(pair) for pair in zip(plain_rates, speculative_rates)]
    our_best = [max(pair) for pair in zip(ours[PLAIN], ours[SPECULATIVE])]
    return {
        "engine": engine,
        "threads": threads,
        "plain_tokens_per_second": spread(plain_rates)["median"],
        "speculative_tokens_per_second": spread(speculative_rates)["median"],
        "prompts": len({s.question_id for s in plain}),
        "prompts_equal": len(questions_equal(plain, speculative)),
        "speedup": spread(ratios(speculative_rates, plain_rates)),
        "specwire_over_it": {
            "plain": spread(ratios(ours[PLAIN], plain_rates)),
            "speculative": spread(ratios(ours[SPECULATIVE],
                                         speculative_rates)),
            "best": spread(ratios(our_best, best)),
        },
        "requests": len(plain) + len(speculative),
        "requests_cut_short": sum(len(s.token_ids) != max_tokens
                                  for s in plain + speculative),
        PLAIN: mode_figures(plain),
        SPECULATIVE: mode_figures(speculative),
        "groups": group_figures(plain, speculative),
    }
