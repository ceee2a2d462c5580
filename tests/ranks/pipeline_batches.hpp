#pragma once
// Micro-batches for tests of pipelines, whose rows are those of one batch.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/shardwise.hpp"
#include "witness/formula.hpp"

namespace testing::on_meshes {

constexpr Shape shape_of(std::size_t samples) {
  return {{Axis::batch, samples}, {Axis::feature, 6}};
}

/// Element i of the rows from `first` on.
inline double element_of_rows(std::size_t first, std::size_t i) {
  return witness::made(7, static_cast<std::int64_t>(first * 6 + i));
}

/// Rows of a batch: those of micro-batches follow each other.
inline Tensor<double, Whole> rows_of(std::size_t first, std::size_t count, const MeshPlace& place) {
  return filled<double, Whole>(shape_of(count), place,
                               [&](std::size_t i) { return element_of_rows(first, i); });
}

/// Inputs and labels of batches whose rows follow each other.
struct MicroBatches {
  MicroBatches(const std::vector<std::size_t>& sizes, const MeshPlace& place) {
    std::size_t first = 0;
    for (const std::size_t count : sizes) {
      rows.push_back(rows_of(first, count, place));
      classes.push_back(labels(count, static_cast<std::int64_t>(first), place));
      inputs.push_back(std::as_const(rows.back()).view());
      targets.push_back(std::as_const(classes.back()).view());
      first += count;
    }
  }

  std::deque<Tensor<double, Whole>> rows{};
  std::deque<Tensor<std::int32_t, Invariant>> classes{};
  std::vector<View<const double, Whole>> inputs{};
  std::vector<View<const std::int32_t, Invariant>> targets{};
};

}  // namespace testing::on_meshes
