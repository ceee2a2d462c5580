#pragma once
// Sums over buffers of several ranks, as a loop that runs on a device.

#include <array>
#include <cstddef>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Pointers to the buffers of some ranks, in an object that a kernel takes by value.
template <class T>
struct PeerPointers {
  static constexpr std::size_t most = 32;
  std::array<T*, most> pointers{};
  std::size_t count = 0;

  constexpr void add(T* pointer) { pointers[count++] = pointer; }
};

inline void require_few_ranks(int ranks) {
  if (static_cast<std::size_t>(ranks) <= PeerPointers<float>::most) return;
  throw argument_error({"DeviceThreadCommunicator: ", ranks,
                        " ranks; a kernel takes the buffers of at most ", PeerPointers<float>::most,
                        ": use NcclCommunicator, or fewer ranks"});
}

template <class A>
constexpr A combined(Reduction reduction, A a, A b) {
  switch (reduction) {
    case Reduction::max:
      return combine<Reduction::max>(a, b);
    case Reduction::min:
      return combine<Reduction::min>(a, b);
    default:
      return combine<Reduction::sum>(a, b);
  }
}

/// Element i of every output = element i of all inputs, reduced in their order and rounded once.
template <class T>
struct PeerReduction {
  PeerPointers<const T> in;
  PeerPointers<T> out;
  Reduction reduction;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    A all = static_cast<A>(in.pointers[0][i]);
    for (std::size_t r = 1; r < in.count; ++r)
      all = combined(reduction, all, static_cast<A>(in.pointers[r][i]));
    for (std::size_t r = 0; r < out.count; ++r) out.pointers[r][i] = static_cast<T>(all);
  }
};

}  // namespace shardwise::detail
