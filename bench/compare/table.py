# SPDX-License-Identifier: Apache-2.0
"""The document of a run as Markdown. Pure."""


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def with_range(figure, digits=1):
    """"143.2 (140.1-145.0)"; without the range where there is none."""
    if figure is None:
        return "-"
    middle = number(figure["median"], digits)
    low, high = (number(figure[key], digits) for key in ("min", "max"))
    return middle if low == high == middle else f"{middle} ({low}-{high})"


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |"
                     for line in lines)


def main_table(entries):
    rows = []
    for entry in entries:
        over = entry["specwire_over_it"]
        ours = entry["engine"] == "specwire"
        rows.append([
            entry["engine"], entry["threads"],
            with_range(entry["plain"]["tokens_per_second"]),
            with_range(entry["speculative"]["tokens_per_second"]),
            with_range(entry["speedup"], 2),
            "" if ours else with_range(over["plain"], 2),
            "" if ours else with_range(over["speculative"], 2),
            f"{entry['prompts_equal']} of {entry['prompts']}",
        ])
    return markdown(
        ["engine", "threads", "plain, token/s", "with speculation, token/s",
         "speed-up", "Specwire / it, plain", "Specwire / it, speculation",
         "same text"], rows)


def detail_table(entries):
    rows = []
    for entry in entries:
        for mode in ("plain", "speculative"):
            figures = entry[mode]
            rows.append([
                entry["engine"], entry["threads"], mode,
                with_range(figures["end_to_end_tokens_per_second"]),
                number(figures["time_to_first_token_ms"]["median"], 0),
                number(figures["tokens_per_pass"], 2),
                number(1000 * figures["cpu_seconds_per_token"]),
                f"{100 * figures['repeat_rate']:.0f} %",
                f"{figures['prompts_repeatable']} of {entry['prompts']}",
            ])
    return markdown(
        ["engine", "threads", "mode", "end to end, token/s",
         "first token, ms", "tokens a pass", "CPU ms a token",
         "4-grams repeated", "same text in all repeats"], rows)


def group_table(entries):
    """Speed-up by group of prompts, all engines in one row each."""
    groups = list(dict.fromkeys(g for e in entries for g in e["groups"]))
    rows = [[entry["engine"], entry["threads"],
             *(with_range(entry["groups"][g]["speedup"], 2)
               if g in entry["groups"] else "" for g in groups)]
            for entry in entries]
    return markdown(["engine", "threads", *groups], rows)


def batch_table(entries):
    """Many sequences at once."""
    rows = []
    for entry in entries:
        over = entry["specwire_over_it"]
        ours = entry["engine"] == "specwire"
        rows.append([
            entry["engine"], entry["threads"], entry["sequences"],
            with_range(entry["tokens_per_second"]),
            with_range(entry["end_to_end_tokens_per_second"]),
            "" if ours else with_range(over["decode"], 2),
            "" if ours else with_range(over["end_to_end"], 2),
            f"{entry['prompts_equal']} of {entry['prompts_compared']}"])
    return markdown(
        ["engine", "threads", "sequences", "while all decode, token/s",
         "end to end, token/s", "Specwire / it, decoding",
         "Specwire / it, end to end", "same text as alone"], rows)


def setup_lines(document):
    machine, settings = document["machine"], document["settings"]
    versions = document["versions"]
    yield (f"machine: {machine['model']}, {machine['usable_processors']} of "
           f"{machine['processors']} processors, L3 {machine['l3']}, "
           f"{machine['memory_gib']:.0f} GiB, Linux {machine['kernel']}")
    yield f"instruction sets: {' '.join(machine['isa']) or 'none of note'}"
    bandwidth = machine["read_bandwidth_gb_per_second"]
    if bandwidth:
        yield "memory read: " + ", ".join(
            f"{number(value)} GB/s with {threads} thread(s)"
            for threads, value in bandwidth.items())
    yield "versions: " + ", ".join(f"{k} {v}" for k, v in versions.items())
    yield (f"model: {settings['model']}; {settings['prompts']} prompts, "
           f"{settings['max_tokens']} tokens each, greedy, EOS ignored, "
           f"{settings['repeats']} repeat(s), interleaved; nothing pinned by "
           f"this script")
    for entry in document["engines"]:
        yield (f"{entry['engine']}, {entry['threads']} thread(s): "
               + "; ".join(f"{k} {v}" for k, v in entry["details"].items()))


def notes(document):
    """What a reader must know before believing the table."""
    for entry in document["engines"]:
        name = f"{entry['engine']} with {entry['threads']} thread(s)"
        if entry["requests_cut_short"]:
            yield (f"{name}: {entry['requests_cut_short']} of "
                   f"{entry['requests']} requests ended before "
                   f"{document['settings']['max_tokens']} tokens")
        if entry["idle_cpu_share"] > 0.02:
            yield (f"{name} used {100 * entry['idle_cpu_share']:.0f} % of a "
                   f"processor while others were measured")
    load = document["machine"]["foreign_load"]
    if load > 0.05:
        yield (f"other programs used {100 * load:.0f} % of a processor: "
               f"measure again on an idle machine")
    if document["settings"]["repeats"] < 3:
        yield "fewer than 3 repeats: the figures are for a first look only"


def report(document):
    entries = document["engines"]
    parts = ["\n".join("- " + line for line in setup_lines(document)),
             main_table(entries),
             "In detail:", detail_table(entries),
             "Speed-up by speculation, by group of prompts:",
             group_table(entries)]
    batch = document.get("batch")
    if batch:
        parts += [f"Batch {batch[0]['sequences']}: so many sequences at once, "
                  f"plain, all tokens of all sequences:", batch_table(batch)]
    remarks = [f"- note: {line}" for line in notes(document)]
    if remarks:
        parts.append("\n".join(remarks))
    return "\n\n".join(parts)
