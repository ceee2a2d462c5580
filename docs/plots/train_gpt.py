#!/usr/bin/env python3
"""Draws the losses of example 13 into one picture. Needs matplotlib.

  13_train_gpt --way context -s 2 --log context-2.csv      and so on for each way and rank count
  train_gpt.py docs/images/train_gpt.png *.csv
"""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"tensor": "tab:blue", "sequence": "tab:orange", "context": "tab:green"}
STYLES = {1: "-", 2: "--", 4: ":"}


def main(picture, logs):
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for path in sorted(logs):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        way, ranks = rows[0]["way"], int(rows[0]["ranks"])
        axes.plot([int(row["step"]) + 1 for row in rows], [float(row["loss"]) for row in rows],
                  color=COLOURS[way], linestyle=STYLES.get(ranks, "-."), linewidth=1.2,
                  label=f"{way}, {ranks} rank{'s' if ranks > 1 else ''}")
    axes.set(xlabel="step", ylabel="cross-entropy, nats a character", title="Training loss")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
