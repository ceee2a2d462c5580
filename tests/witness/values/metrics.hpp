#pragma once
// clang-format off
// Made with PyTorch 2.15.0+cu132 by make_witness.py. Do not edit.
//
// In how many of 40 rows the label, made_label(row, 10), is among the k largest of the logits
// [40, 10] = made(72); for k = 1 to 10.

namespace witness::metrics {

inline constexpr double top_k[10] = {
    5, 8, 14, 18, 20, 25, 29, 32, 33, 40
};

}  // namespace witness::metrics
