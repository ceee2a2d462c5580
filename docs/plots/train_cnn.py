#!/usr/bin/env python3
"""Draws losses and accuracies of example 07 into one picture. Needs matplotlib.

  07_train_cnn --way spatial -s 2 --log spatial-2.csv      and so on for each way and rank count
  train_cnn.py docs/images/train_cnn.png *.csv
"""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"gathered": "tab:blue", "alternating": "tab:orange", "spatial": "tab:green"}
STYLES = {1: "-", 2: "--", 3: "-.", 4: ":"}
POINTS = 45


def read(path):
    """The name of a run, and its losses and accuracies as [images seen, value]."""
    points = {"loss": [], "accuracy": []}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            run = row["way"], int(row["ranks"])
            points[row["what"]].append((int(row["images"]), float(row["value"])))
    return run, points["loss"], points["accuracy"]


def means(points):
    """Means of neighbouring losses, about POINTS of them, at the images seen behind them."""
    steps = max(1, len(points) // POINTS)
    for end in range(steps, len(points) + 1, steps):
        part = points[end - steps : end]
        yield part[-1][0], sum(value for _, value in part) / len(part)


def main(picture, logs):
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for run, losses, accuracies in sorted(map(read, logs)):
        way, ranks = run
        look = {
            "color": COLOURS[way],
            "linestyle": STYLES.get(ranks, "-"),
            "label": f"{way}, {ranks} rank{'s' if ranks > 1 else ''}",
            "linewidth": 1.2,
        }
        left.plot(*zip(*((seen / 1000, loss) for seen, loss in means(losses))), **look)
        right.plot(*zip(*((seen / 1000, 100 * a) for seen, a in accuracies)), marker="o", ms=3, **look)
    left.set(xlabel="training images seen, thousands", title="Training loss",
             ylabel="cross-entropy, means of neighbouring steps")
    right.set(xlabel="training images seen, thousands", ylabel="test images classified correctly, %",
              title="Test accuracy")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
