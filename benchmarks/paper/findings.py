"""What the stored lines say, in sentences: each is computed, so that none can contradict a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from benchmarks.paper.lines import Group, Results, Setting, complete, leaders, paired, running_seconds, shown
from benchmarks.paper.published import BESIDE, SACHS_COLUMNS, SACHS_TABLE, TIMED, theirs
from benchmarks.paper.tables import statistic
from benchmarks.records import Line

NEAR = 0.06
KEYS = {"ap": "AP", "auc": "AUC", "auc_full": "AUC", "ap_full": "AP"}


def all_findings(results: Results) -> str:
    """Every section that has something to say, under its heading."""
    return _written(
        {
            "What was run": _what_was_run(results),
            "Who is best where": _best(results),
            "Where the engines of vcuda lose": _losses(results),
            "`vcuda.fit` by default, beside the engines that know the kind of functions": _auto(results),
            "The paper's claim": _claim(results),
            "Our references beside the published numbers": _references(results),
            "Who does not beat a floor": _floors(results),
            "Raw and standardised columns": _columns(results),
            "Are the probabilities true?": _calibration(results),
            "Time and memory": _costs(results),
            "Sachs": _sachs(results),
            "The temperature": _temperature(results),
            "Sampling": _sampling(results),
        }
    )


def main_findings(results: Results) -> str:
    """What a reader of the page needs; tables beside it say the rest."""
    return _written(
        {
            "What was run": _what_was_run(results),
            "Who is best": islice(_best(results), 1),
            "Where the engines of vcuda lose": _losses(results),
            "`vcuda.fit` by default, beside the engines that know the kind of functions": _auto(results),
            "The paper's claim": _claim(results),
            "Our references beside the published numbers": _references(results, far_ones=False),
            "Time and memory": _costs(results),
            "The temperature": _temperature(results),
            "Sampling": _sampling(results),
        }
    )


def _written(sections: dict[str, Iterable[str]]) -> str:
    seen = {title: "\n".join(sentences).strip() for title, sentences in sections.items()}
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in seen.items() if text)


def _what_was_run(results: Results) -> Iterator[str]:
    failed = sum("error" in line for line in results.lines)
    over = sum(bool(line.get("over_limit")) for line in results.lines)
    yield (
        f"{len(results.lines):,} of {results.planned:,} planned runs are stored. {_count(failed, 'run')} failed and "
        f"{_count(over, 'run')} did not end within {results.limit_minutes:g} minutes of the processor; they are "
        "listed under *What is not there* and count for nothing else."
    )
    troubled = Counter(line["status"] for line in _ended(results) if line["status"] != "ok")
    if troubled:
        seen = ", ".join(f"{code} {count}" for code, count in sorted(troubled.items()))
        yield f"Of those that ended, so many say themselves that they should not be trusted yet: {seen}."
    if results.outside:
        yield f"{_count(results.outside, 'stored line')} of runs that the grid no longer has are left out."
    commits = sorted({line["commit"] for line in results.lines})
    if commits:
        yield f"Commits: {', '.join(commits)}."
    versions = sorted(
        {", ".join(f"{k} {v}" for k, v in line.get("versions", {}).items()) for line in results.lines} - {""}
    )
    if versions:
        yield f"Versions: {'; or '.join(versions)}."


def _ended(results: Results) -> list[Line]:
    return [line for line in results.lines if "error" not in line and not line.get("over_limit")]


def _best(results: Results) -> Iterator[str]:
    """The highest mean in every setting; methods with fewer sets are compared on those that they have."""
    settings = results.compared()
    counts: Counter[str] = Counter()
    bullets = []
    for setting, groups in settings.items():
        best = leaders(groups, "ap")
        if len(complete(groups, "ap")) < 2:
            continue
        counts.update(group.title for group in best)
        seen = f"- {setting.words} ({_sets(setting, len(best[0].values('ap')))}): highest mean AP {_named(best, 'ap')}"
        others = [group for group in complete(groups, "ap") if group not in best]
        if others:
            seen += f", then {_ahead(best[0], leaders(others, 'ap')[0])}"
        seen += f"; highest mean AUC {_named(leaders(groups, 'auc'), 'auc')}."
        seen += "".join(_of_fewer_sets(best[0], group) for group in groups if group not in complete(groups, "ap"))
        bullets.append(seen)
    if bullets:
        ranking = ", ".join(f"{title} in {count}" for title, count in counts.most_common())
        yield (
            f"Of {_count(len(bullets), 'setting')} in which at least two methods have all sets, the highest mean AP "
            f"belongs to: {ranking} (where several tie to three digits, each counts)."
        )
        yield (
            "± is the standard error of a paired difference over data sets; *clear* is one whose 95 % interval (t "
            "distribution) leaves out zero, without correction for the number of comparisons. Restarts on the Sachs "
            "cells have no such error.\n"
        )
        yield from bullets


def _ahead(best: Group, second: Group) -> str:
    """The runner-up, how far behind it is, and whether that is more than chance."""
    text = f"{second.title} {second.mean('ap'):.3f}"
    pair = paired(best, second, "ap")
    if pair is None or pair.error is None:
        return text
    verdict = "clear" if pair.clear else "not clear"
    return f"{text} (difference {pair.difference:.3f} ± {pair.error:.3f}, {verdict})"


def _of_fewer_sets(best: Group, group: Group) -> str:
    """A sentence for a method with fewer sets that is ahead on them; nothing for one that is not."""
    pair = paired(group, best, "ap")
    if pair is None or shown(pair.one) <= shown(pair.other):
        return ""
    sets = _sets(group.setting, pair.sets)
    return f" On the {sets} of {group.title}, it has {pair.one:.3f} where {best.title} has {pair.other:.3f}."


def _losses(results: Results) -> Iterator[str]:
    """Each engine of ours against everything that is not ours, on common sets."""
    bullets, lost = [], Counter[str]()
    compared, opponents = Counter[str](), Counter[str]()
    for setting, groups in results.compared().items():
        others = [group for group in groups if group.family != "ours"]
        against: set[str] = set()
        for ours in (group for group in groups if group.family == "ours"):
            pairs = [(other, paired(ours, other, "ap")) for other in others]
            known = [(other, pair) for other, pair in pairs if pair is not None]
            compared[ours.title] += bool(known)
            against |= {other.title for other, _ in known}
            behind = [(other, pair) for other, pair in known if shown(pair.one) < shown(pair.other)]
            lost[ours.title] += bool(behind)
            if behind:
                words = ", ".join(
                    f"{other.title} ({pair.one:.3f} against {pair.other:.3f} on {_sets(setting, pair.sets)}"
                    f"{', clear' if pair.clear else ''})"
                    for other, pair in sorted(behind, key=lambda each: each[1].difference)
                )
                bullets.append(f"- {setting.words}: {ours.title} has a lower mean AP than {words}.")
        opponents.update(other.title for other in others if other.title in against)
    if compared:
        seen = ", ".join(f"{title} in {lost[title]} of {count}" for title, count in compared.items())
        yield (
            f"Settings in which some competitor, floor or VCUDA as published has a higher mean AP: {seen}. "
            f"Compared, on the sets that both have, with {_in_settings(opponents)}.\n"
        )
        yield from bullets


def _auto(results: Results) -> Iterator[str]:
    bullets, known = [], 0
    for setting, groups in results.compared().items():
        auto = next((group for group in groups if group.method == "auto"), None)
        seen = [group for group in groups if group.family == "ours" and group.method != "auto"]
        pairs = [(group, paired(auto, group, "ap")) for group in seen] if auto else []
        found = [(group, pair) for group, pair in pairs if pair is not None]
        known += bool(found)
        if not found:
            continue
        best, pair = min(found, key=lambda each: each[1].difference)
        if shown(pair.one) < shown(pair.other):
            bullets.append(f"- {setting.words}: {pair.one:.3f} where {best.title} has {pair.other:.3f}.")
    if known:
        yield (
            f"The other engines are given the kind of functions and of noise (see the grid). In {len(bullets)} of "
            f"{_count(known, 'setting')} the best of them has a higher mean AP than `vcuda.fit` has by itself"
            + (":\n" if bullets else ".")
        )
        yield from bullets


def _claim(results: Results) -> Iterator[str]:
    """VCUDA as published against the competitors as its authors ran them, on raw columns."""
    for key in ("auc_full", "ap_full"):
        first, behind, known, met = 0, [], 0, Counter[str]()
        for setting, groups in results.compared().items():
            vcuda = next((group for group in groups if group.family == "paper"), None)
            rivals = [group for group in groups if group.method in BESIDE and group is not vcuda]
            if vcuda is None or setting.columns != "raw":
                continue
            pairs = [(rival, paired(vcuda, rival, key)) for rival in rivals]
            found = [(rival, pair) for rival, pair in pairs if pair is not None]
            if not found:
                continue
            known += 1
            met.update(rival.title for rival, _ in found)
            better = [(rival, pair) for rival, pair in found if shown(pair.one) < shown(pair.other)]
            first += not better
            behind += [
                f"{rival.title} in {setting.words} ({pair.one:.3f} against {pair.other:.3f} on "
                f"{_sets(setting, pair.sets)})"
                for rival, pair in better
            ]
        if known:
            seen = f" It is behind {'; '.join(behind)}." if behind else ""
            yield (
                f"- {KEYS[key]} of the full matrix, raw columns, against those of the paper's competitors that have "
                f"results ({_in_settings(met)}): VCUDA as published is not behind any of these in {first} of "
                f"{_count(known, 'setting')}.{seen}"
            )


def _references(results: Results, *, far_ones: bool = True) -> Iterator[str]:
    """How far our means and medians are from the published ones, with or without a list of those that are far."""
    for which, where in (("mean", "d = 10"), ("median", "d = 50 and 100")):
        for key in ("auc_full", "ap_full"):
            near, far, fewer = 0, [], 0
            for setting, groups in results.compared().items():
                for group in groups if setting.columns == "raw" else []:
                    found = theirs(group.method, setting.nodes, setting.edges, setting.graph, setting.mechanism)
                    ours = statistic(group, key, which)
                    if found is None or found.statistic != which or ours is None:
                        continue
                    difference = shown(ours) - found.numbers[key]
                    fewer += len(group.values(key)) < group.planned
                    near += abs(difference) <= NEAR + 1e-9
                    if abs(difference) > NEAR + 1e-9:
                        numbers = f"{ours:.3f}, published {found.numbers[key]:.3f}"
                        far.append(f"{group.title}, {setting.words}: {numbers} ({difference:+.3f})")
            if near + len(far):
                seen = f" Further away: {'; '.join(far)}." if far and far_ones else ""
                part = f" ({fewer} of them with sets missing)" if fewer else ""
                yield (
                    f"- {where}, {KEYS[key]} of the full matrix: {near} of {_count(near + len(far), which)}{part} are "
                    f"within {NEAR} of the published ones.{seen}"
                )


def _floors(results: Results) -> Iterator[str]:
    """Learning methods against whatever needs no learning and has results in the same setting."""
    behind: dict[str, list[str]] = {}
    known: Counter[str] = Counter()
    for setting, groups in results.compared().items():
        floors = [group for group in groups if group.family == "floor"]
        for group in groups:
            if group.family == "floor":
                continue
            pairs = [(floor, paired(group, floor, "ap")) for floor in floors]
            found = [(floor, pair) for floor, pair in pairs if pair is not None]
            if not found:
                continue
            known[group.title] += 1
            floor, pair = min(found, key=lambda each: each[1].difference)
            if shown(pair.one) < shown(pair.other):
                numbers = f"{pair.one:.3f}, {floor.title} {pair.other:.3f}"
                behind.setdefault(group.title, []).append(f"{setting.words} ({numbers})")
    if known:
        never = [title for title in known if title not in behind]
        if never:
            yield f"Never behind a floor in mean AP, on the sets that both have: {_in_settings(known, never)}.\n"
        for title, where in behind.items():
            yield f"- {title} is behind one in {len(where)} of {_count(known[title], 'setting')}: {'; '.join(where)}."


def _columns(results: Results) -> Iterator[str]:
    """What becomes of a method's AP when the columns are standardised, on the same sets."""
    changes: dict[str, list[str]] = {}
    settings = results.compared()
    for setting, groups in settings.items():
        other = setting._replace(columns="standardised")
        if setting.columns != "raw" or other not in settings or setting.source == "sachs":
            continue
        for group in groups:
            same = next((each for each in settings[other] if each.method == group.method), None)
            pair = paired(group, same, "ap") if same else None
            if pair is not None and group.family != "floor":
                kind = setting.words.replace(", raw", "")
                changes.setdefault(group.title, []).append(f"{kind} {pair.one:.3f} → {pair.other:.3f}")
    if changes:
        yield "Mean AP on raw → on standardised columns, over the sets that were run on both:\n"
        yield from (f"- {title}: {'; '.join(seen)}." for title, seen in changes.items())


def _calibration(results: Results) -> Iterator[str]:
    for setting, groups in results.compared().items():
        best = leaders(groups, "brier", least=True)
        probable = [group for group in groups if group.family in ("ours", "paper")]
        if len(complete(groups, "brier")) < 2 or not probable:
            continue
        stated = ", ".join(
            f"{group.title} {group.mean('calibration_error'):.3f}"
            for group in probable
            if group.mean("calibration_error") is not None
        )
        yield (
            f"- {setting.words}: lowest mean Brier score {_named(best, 'brier')}, where always stating the share of "
            f"true edges has {best[0].mean('base_rate_brier'):.3f}. Mean calibration error: {stated}."
        )


def _costs(results: Results) -> Iterator[str]:
    over: dict[str, list[str]] = {}
    for group in results.groups:
        if group.over:
            over.setdefault(group.title, []).append(f"{group.setting.words} ({len(group.over)} of {len(group.lines)})")
    for title, where in over.items():
        yield f"- {title} did not end within the limit: {'; '.join(where)}."
    for setting, groups in results.compared().items():
        if (setting.mechanism, setting.graph, setting.columns) != ("gp", "er", "raw") or setting.edges != setting.nodes:
            continue
        seconds = {group.method: float(np.median([running_seconds(line) for line in group.done])) for group in groups}
        vcuda = seconds.get("vcuda-paper")
        rivals = [group for group in groups if BESIDE.get(group.method) in TIMED]
        if vcuda is None or not rivals:
            continue
        slower = [f"{rival.title} ({seconds[rival.method]:.3g} s)" for rival in rivals if seconds[rival.method] > vcuda]
        faster = [
            f"{rival.title} ({seconds[rival.method]:.3g} s)" for rival in rivals if seconds[rival.method] <= vcuda
        ]
        ours = [f"{each.title} {seconds[each.method]:.3g} s" for each in groups if each.family == "ours"]
        yield (
            f"- {setting.words}: VCUDA as published takes {vcuda:.3g} s, compilation apart; slower: "
            f"{', '.join(slower) or 'none'}; not slower: {', '.join(faster) or 'none'}. "
            + (f"Our engines: {', '.join(ours)}." if ours else "")
        ).rstrip()
    memory = [(line["peak_mb"], group) for group in results.groups for line in group.lines if "peak_mb" in line]
    if memory:
        most, group = max(memory, key=lambda each: each[0])
        yield f"- The most memory was held by {group.title} on {group.setting.words}: {most:,.0f} MB."


def _sachs(results: Results) -> Iterator[str]:
    for setting, groups in results.sachs().items():
        for key in ("auc", "ap"):
            best = leaders(groups, key)
            if len(complete(groups, key)) > 1:
                sets = _sets(setting, len(best[0].values(key)))
                yield f"- {setting.words}: the highest mean {KEYS[key]} over {sets} is {_named(best, key)}."
        yield from _tied(setting, groups)
        for group in groups:
            name = BESIDE.get(group.method)
            auc, ap = group.mean("auc_full"), group.mean("ap_full")
            if name is None or SACHS_COLUMNS[name] != setting.columns or auc is None or ap is None:
                continue
            printed = SACHS_TABLE[name]
            yield (
                f"- {group.title} on the columns that the authors gave it ({setting.columns}), full matrix, over "
                f"{_sets(setting, len(group.values('auc_full')))}: AUC {auc:.3f} and AP {ap:.3f}, in the paper's "
                f"Table 1 {printed.auc.mean:.2f} and {printed.ap.mean:.2f}."
            )


def _tied(setting: Setting, groups: Sequence[Group]) -> Iterator[str]:
    """Why engines that state the same probabilities can differ in AP: edges that are certain stand in no order."""
    done = {group.method: group.done for group in groups if group.method in ("exact", "orders") and group.done}
    if len(done) < 2:
        return
    exact, orders = (done[method][0] for method in ("exact", "orders"))
    stated = [np.array(line["scores"]) for line in (exact, orders) if "scores" in line]
    if len(stated) < 2 or shown(exact["ap"]) == shown(orders["ap"]):
        return
    apart, certain = np.abs(stated[0] - stated[1]).max(), int(np.sum(np.min(stated, axis=0) >= 0.9999))
    yield (
        f"- {setting.words}: exact and orders state probabilities that differ by at most {apart:.3f}, and their AP are "
        f"{exact['ap']:.3f} and {orders['ap']:.3f}: {_count(certain, 'edge')} have more than 0.9999 in both, and AP "
        "hangs on the order among them, which digits beyond the fourth decide."
    )


def _temperature(results: Results) -> Iterator[str]:
    """The paper says that lower temperatures can improve all three measures, and takes 0.3."""
    for setting, groups in results.ablation().items():
        if len(groups) < 2:
            continue
        seen = []
        for key, name, least in (("auc_full", "AUC", False), ("ap_full", "AP", False), ("mse", "held-out MSE", True)):
            best = leaders(groups, key, least=least)
            chosen = next((group for group in groups if group.temperature == 0.3), None)
            if not best:
                continue
            where = " and ".join(f"{group.temperature:g}" for group in best)
            words = f"best mean {name} at t = {where} ({best[0].mean(key):.3f})"
            pair = paired(chosen, best[0], key) if chosen and chosen not in best else None
            if chosen and pair is not None and pair.error is not None:
                words += f", t = 0.3 has {pair.one:.3f} (difference {pair.difference:+.3f} ± {pair.error:.3f})"
            seen.append(words)
        values = ", ".join(f"{group.temperature:g}" for group in groups)
        yield f"- {setting.words}, of t = {values}: {'; '.join(seen)}."


def _sampling(results: Results) -> Iterator[str]:
    graphs = [each for each in results.timings() if each["method"] == "JAX, graph"]
    times = {(each["distribution"], each["nodes"]): each for each in graphs}
    for nodes in sorted({each["nodes"] for each in graphs}):
        ours = times.get(("priority", nodes))
        if ours is None:
            continue
        seen = []
        for name, title in (("topk", "Gumbel-Top-k"), ("sinkhorn", "Gumbel-Sinkhorn")):
            other = times.get((name, nodes))
            if other is None:
                continue
            ratio = other["milliseconds"]["clock"] / ours["milliseconds"]["clock"]
            text = f"{title} takes {ratio:.2f} times as long"
            published = other["published_gpu_milliseconds"], ours["published_gpu_milliseconds"]
            if None not in published:
                text += f" (published: {published[0] / published[1]:.2f} times)"
            seen.append(text)
        beside = f"; {' and '.join(seen)}" if seen else ""
        host = [each for each in results.timings() if each["nodes"] == nodes and each["method"] == "host, dense"]
        more = f". The sampler of the host takes {host[0]['milliseconds']['clock']:.2f} ms" if host else ""
        yield (
            f"- {nodes:,} nodes: the priorities of the paper take {ours['milliseconds']['clock']:.2f} ms a graph in "
            f"JAX{beside}{more}."
        )


def _named(groups: Sequence[Group], key: str) -> str:
    """Those that tie, and their common number."""
    return f"{_listed(group.title for group in groups)} {groups[0].mean(key):.3f}" if groups else "of none"


def _in_settings(counts: Counter[str], chosen: Iterable[str] | None = None) -> str:
    """Titles, each with the number of settings that it has."""
    titles = counts if chosen is None else chosen
    return ", ".join(f"{title} in {_count(counts[title], 'setting')}" for title in titles)


def _listed(words: Iterable[str]) -> str:
    several = list(words)
    return several[0] if len(several) == 1 else f"{', '.join(several[:-1])} and {several[-1]}"


def _sets(setting: Setting, count: int) -> str:
    return _count(count, "restart" if setting.source == "sachs" else "set")


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")
