#pragma once
// The loops of a table of rows: taking rows by their numbers, and adding gradients to them.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// The rows of a table that a rank has.
struct RowsHere {
  std::size_t all;      ///< rows of the table, over all ranks
  std::size_t first;    ///< number of the rank's first row
  std::size_t count;    ///< number of the rank's rows
  std::size_t columns;  ///< the rank's elements of a row

  /// The row among those of the rank, not below `count` if another rank or none has it.
  constexpr std::size_t of(std::int32_t id) const { return static_cast<std::size_t>(id) - first; }
  /// Whether the table has a row of this id.
  constexpr bool have(std::int32_t id) const { return static_cast<std::size_t>(id) < all; }
};

/// to[i] = from[i], or `otherwise` if the rank has no such row.
template <class T>
struct TakenRow {
  const T* from;
  T otherwise;
  T* to;

  constexpr void operator()(std::size_t i) const { to[i] = from == nullptr ? otherwise : from[i]; }
};

/// y[r] = table[ids[r]]: zeros if another rank has the row, and NaN if none has it.
template <class T>
struct TakenRows {
  RowsHere rows;
  const std::int32_t* ids;
  const T* table;
  T* y;

  constexpr TakenRow<T> operator()(std::size_t r) const {
    using A = accumulate_t<T>;
    const std::size_t row = rows.of(ids[r]);
    const A otherwise = rows.have(ids[r]) ? A(0) : std::numeric_limits<A>::quiet_NaN();
    return {row < rows.count ? table + row * rows.columns : nullptr, static_cast<T>(otherwise),
            y + r * rows.columns};
  }
};

/// sums[ids[r]] += dy[r] for each of `count` ids in order, for a block of `width` columns.
template <class T>
struct AddedRows {
  RowsHere rows;
  const std::int32_t* ids;
  std::size_t count;
  std::size_t width;
  const T* dy;
  accumulate_t<T>* sums;

  constexpr void operator()(std::size_t block) const {
    const std::size_t begin = block * width;
    const std::size_t end = std::min(begin + width, rows.columns);
    for (std::size_t r = 0; r < count; ++r) {
      const std::size_t row = rows.of(ids[r]);
      if (row >= rows.count) continue;
      const auto add = [from = dy + r * rows.columns + begin,
                        to = sums + row * rows.columns + begin](std::size_t c) {
        to[c] += static_cast<accumulate_t<T>>(from[c]);
      };
      plain_loop(end - begin, add);
    }
  }
};

/// gradient[i] (+)= sums[i].
template <class T>
struct StoredSums {
  Write write;
  const accumulate_t<T>* sums;
  T* gradient;

  constexpr void operator()(std::size_t i) const { store(gradient[i], sums[i], write); }
};

/// gradient[ids[r]] (+)= dy[r] for each of `count` ids, by `frame.write()`. Rows of equal ids are
/// added in accumulate_t. On a device one thread adds a column; on the host one loop adds whole
/// rows.
template <class Frame, class T>
void add_rows(Frame& frame, const RowsHere& rows, const std::int32_t* ids, std::size_t count,
              const T* dy, T* gradient) {
  const std::size_t elements = rows.count * rows.columns;
  const auto add_to = [&](accumulate_t<T>* sums) {
    constexpr bool is_device = DeviceBackend<typename Frame::backend_type>;
    frame.backend().for_each(
        is_device ? rows.columns : 1,
        AddedRows<T>{rows, ids, count, is_device ? 1 : rows.columns, dy, sums});
  };
  if constexpr (std::same_as<T, accumulate_t<T>>) {
    if (frame.write() == Write::replace) fill(frame.backend(), gradient, elements, T(0));
    add_to(gradient);
  } else {
    const Buffer memory = frame.take(elements * sizeof(accumulate_t<T>));
    auto* const sums = static_cast<accumulate_t<T>*>(memory.data());
    fill(frame.backend(), sums, elements, accumulate_t<T>(0));
    add_to(sums);
    frame.backend().for_each(elements, StoredSums<T>{frame.write(), sums, gradient});
  }
}

}  // namespace shardwise::detail
