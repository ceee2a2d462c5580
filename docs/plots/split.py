#!/usr/bin/env python3
"""Draws what shardwise-split measured: who wins at which shape, where the time goes, and scaling.

  shardwise-split --preset=grid,mlp,resnet50 --ranks=1,2,4 --benchmark_out=results.json
  split.py results.json... FOLDER [--ranks 2] [--dtype float] [--backend onednn]

Writes FOLDER/split_winner.png (the preset grid), split_time.png and split_scaling.png (all other
shapes), each if there are rows for it. Needs matplotlib.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import tables  # noqa: E402

COMPARISON = re.compile(r"(?:(\S+) )?(\d+)x(\d+)x(\d+), (layer|pair), (\d+) ranks, (\S+) by (\S+)$")
WAYS = {"layer": ["unsplit", "column", "row"],
        "pair": ["unsplit", "column-row", "column-gather-column"]}
COLOURS = {"unsplit": "#9a9a9a", "column": "tab:blue", "row": "tab:orange",
           "column-row": "tab:green", "column-gather-column": "tab:purple"}
EDGE = {"unsplit": "-", "column": "-", "row": "--", "column-row": "-", "column-gather-column": "--"}
CLOSE = 0.03  # speeds so near to each other count as equal


def matplotlib_or_leave():
    try:
        import matplotlib
    except ImportError:
        sys.exit("split.py: matplotlib is not installed, so nothing is drawn. Get it by `apt-get install "
                 "python3-matplotlib` or `pip install matplotlib`, and run again.")
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def rows_of(file):
    """A dictionary for each way of each comparison."""
    try:
        report, _ = tables.report_of(file.read_text())
        context = report["context"]
        for benchmark in report["benchmarks"]:
            if benchmark.get("error_occurred"):
                continue
            name, rows, ins, outs, of, ranks, dtype, backend = COMPARISON.match(
                tables.name_of(benchmark)).groups()
            shape = {"rows": int(rows), "in": int(ins), "out": int(outs)}
            for way, counted in tables.counters_of(benchmark).items():
                yield {"name": name or f"{rows}x{ins}x{outs}", **shape, "of": of, "ranks": int(ranks),
                       "dtype": dtype, "backend": backend, "communicator": context["ranks are"],
                       "split": way, "total_us": 1e6 * counted["seconds"],
                       "exposed_us": counted.get("exposed us", 0.0), "speedup": counted["speedup"],
                       "load": context["load_avg"][0], "cpu": context["processor"]}
    except (OSError, ValueError, KeyError, IndexError, AttributeError) as problem:
        sys.exit(f"split.py: {file} is not what shardwise-split writes: {problem}")


def shape_of(row):
    return row["rows"], row["in"], row["out"]


def caption(rows, ranks):
    """What was measured on what, for below a picture."""
    one = rows[0]
    loads = [row["load"] for row in rows]
    return (f"{one['dtype']} by {one['backend']}, ranks are {one['communicator']}"
            f"{f', {ranks} ranks' if ranks else ''}; {one['cpu']}, "
            f"load average {min(loads):.1f} to {max(loads):.1f}")


def finish(plt, figure, text, picture):
    figure.supxlabel(text, fontsize=8, color="#555555")
    figure.savefig(picture, dpi=110)
    plt.close(figure)
    print(picture)


def draw_winner(plt, rows, ranks, picture):
    """A map for each number of rows, of layers and of pairs: in against out, the winner's speed."""
    from matplotlib.patches import Patch, Rectangle

    rows_of_shape = {}
    for row in rows:
        if row["ranks"] == ranks:
            rows_of_shape.setdefault((row["of"], *shape_of(row)), {})[row["split"]] = row["speedup"]
    if not rows_of_shape:
        return
    counts = sorted({key[1] for key in rows_of_shape})
    ins = sorted({key[2] for key in rows_of_shape})
    outs = sorted({key[3] for key in rows_of_shape})
    figure, panels = plt.subplots(len(WAYS), len(counts), squeeze=False, layout="constrained",
                                  figsize=(1.2 + 3.7 * len(counts), 7.6))
    used = set()
    for line, of in enumerate(WAYS):
        for axes, count in zip(panels[line], counts):
            for (which, m, n_in, n_out), speed in rows_of_shape.items():
                if (which, m) != (of, count):
                    continue
                order = sorted(speed, key=speed.get, reverse=True)
                best = order[0]
                used.add(best)
                x, y = outs.index(n_out), ins.index(n_in)
                is_close = speed[order[1]] > (1 - CLOSE) * speed[best]
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=COLOURS[best],
                                         alpha=0.4 if is_close else 0.8, edgecolor="white", linewidth=2))
                split_best = max(value for way, value in speed.items() if way != "unsplit")
                axes.text(x, y, f"{split_best:.2f}", ha="center", va="center", fontsize=9)
            axes.set_xlim(-0.5, len(outs) - 0.5)
            axes.set_ylim(-0.5, len(ins) - 0.5)
            axes.set_xticks(range(len(outs)), outs)
            axes.set_yticks(range(len(ins)), ins)
            axes.set_aspect("equal")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            pair = of == "pair"
            axes.set(xlabel="hidden features" if pair else "output features",
                     ylabel="input = output features" if pair else "input features",
                     title=f"{'two products' if pair else 'one product'}, {count} rows")
            axes.title.set_fontsize(10)
    handles = [Patch(facecolor=COLOURS[way], alpha=0.8, label=way) for way in COLOURS if way in used]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False,
                  title="fastest way (pale: the next one is within 3 %); "
                        "numbers: best split, times as fast as one rank", title_fontsize=9)
    finish(plt, figure, caption(rows, ranks), picture)


def draw_time(plt, rows, ranks, picture):
    """Bars for each shape and way: products and exposed communication, over the time unsplit."""
    groups = {}
    for row in rows:
        if row["ranks"] == ranks:
            groups.setdefault((row["of"], row["name"], *shape_of(row)), {})[row["split"]] = row
    groups = {key: ways for key, ways in groups.items() if len(ways) == len(WAYS[key[0]])}
    if not groups:
        return
    most = max(sum(1 for key in groups if key[0] == of) for of in WAYS)
    figure, panels = plt.subplots(1, len(WAYS), layout="constrained", sharex=True,
                                  figsize=(11, 1.5 + 0.62 * most))
    for axes, of in zip(panels, WAYS):
        keys = [key for key in groups if key[0] == of]
        for place, key in enumerate(keys):
            one = groups[key]["unsplit"]["total_us"]
            for number, way in enumerate(WAYS[of]):
                row = groups[key][way]
                y = place + (number - 1) * 0.27
                total = row["total_us"] / one
                exposed = min(row["exposed_us"] / one, total)
                product = total - exposed
                axes.barh(y, product, height=0.24, color=COLOURS[way],
                          label=way if place == 0 else None)
                axes.barh(y, exposed, left=product, height=0.24, color="tab:red",
                          label="exposed communication" if place == 0 and number == 1 else None)
                axes.text(product + exposed + 0.02, y, in_words(row["total_us"]), va="center",
                          fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        axes.set_yticks(range(len(keys)),
                        [f"{name}\n{'x'.join(map(str, shape))}" if name != "x".join(map(str, shape))
                         else name for _, name, *shape in keys], fontsize=8)
        axes.set_ylim(len(keys) - 0.4, -0.6)
        axes.axvline(1, color="black", linewidth=0.8, zorder=0)
        axes.axvline(1 / ranks, color="black", linewidth=0.8, linestyle=":", zorder=0)
        axes.set(xlabel="time over that of one rank (dotted: ideal)",
                 title="one product" if of == "layer" else "two products, in -> out -> in")
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.65 / axes.figure.get_figheight()),
                    ncols=2, frameon=False)
    widest = max(row["total_us"] / ways["unsplit"]["total_us"]
                 for ways in groups.values() for row in ways.values())
    panels[0].set_xlim(0, 1.18 * max(1.0, widest))
    finish(plt, figure, caption(rows, ranks), picture)


def in_words(microseconds):
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.0f} us"


def draw_scaling(plt, rows, picture):
    """Speed over one rank against the number of ranks, a panel for each shape."""
    counts = sorted({row["ranks"] for row in rows})
    shapes = list(dict.fromkeys((row["name"], *shape_of(row)) for row in rows))
    if len(counts) < 2:
        return
    across = min(4, len(shapes))
    down = -(-len(shapes) // across)
    figure, panels = plt.subplots(down, across, squeeze=False, layout="constrained", sharey=True,
                                  figsize=(1 + 2.7 * across, 0.9 + 2.5 * down))
    for axes in panels.flat[len(shapes):]:
        axes.set_visible(False)
    lines = {}
    for axes, shape in zip(panels.flat, shapes):
        lines["ideal"] = axes.plot(counts, counts, color="black", linewidth=0.8, linestyle=":")[0]
        for of, ways in WAYS.items():
            for way in ways[1:]:
                points = sorted((row["ranks"], row["speedup"]) for row in rows
                                if (row["name"], *shape_of(row)) == shape and row["split"] == way)
                if points:
                    lines[way] = axes.plot(*zip(*points), color=COLOURS[way], linestyle=EDGE[way],
                                           marker="o", ms=4, linewidth=1.4)[0]
        axes.set_xticks(counts)
        extents = "x".join(map(str, shape[1:]))
        axes.set_title(extents if shape[0] == extents else f"{shape[0]}\n{extents}", fontsize=9)
        axes.set_ylim(0, max(2.2, 1.1 * max(row["speedup"] for row in rows)))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("times as fast as one rank", fontsize=9)
    for number in range(across):
        column = [axes for axes in panels[:, number] if axes.get_visible()]
        column[-1].set_xlabel("ranks", fontsize=9)
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=len(lines),
                  frameon=False, fontsize=9)
    finish(plt, figure, caption(rows, None), picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, help="JSON files of shardwise-split")
    parser.add_argument("folder", type=Path, help="where pictures go")
    parser.add_argument("--ranks", type=int, default=2, help="of winners and times [2]")
    for name in ("dtype", "backend", "communicator"):
        parser.add_argument(f"--{name}", help="which rows to draw [that of the first one]")
    options = parser.parse_args()
    rows = [row for file in options.results for row in rows_of(file)]
    if not rows:
        sys.exit("split.py: nothing was measured in these files")
    for name in ("dtype", "backend", "communicator"):
        wanted = getattr(options, name) or rows[0][name]
        known = sorted({row[name] for row in rows})
        rows = [row for row in rows if row[name] == wanted]
        if not rows:
            sys.exit(f"split.py: no rows of the {name} {wanted} that are also of the others; there are "
                     f"{', '.join(known)}")
    if options.ranks not in {row["ranks"] for row in rows}:
        sys.exit(f"split.py: no rows of {options.ranks} ranks; there are "
                 f"{', '.join(map(str, sorted({row['ranks'] for row in rows})))}: see --ranks")
    plt = matplotlib_or_leave()
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        grid = [row for row in rows if row["name"].startswith("grid")]
        others = [row for row in rows if not row["name"].startswith("grid")]
        draw_winner(plt, grid, options.ranks, options.folder / "split_winner.png")
        if others:
            draw_time(plt, others, options.ranks, options.folder / "split_time.png")
            draw_scaling(plt, others, options.folder / "split_scaling.png")
    except OSError as problem:
        sys.exit(f"split.py: pictures cannot be written: {problem}")


if __name__ == "__main__":
    main()
