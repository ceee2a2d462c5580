#pragma once
// A rank's part of a tensor that is made up element by element.

#include <cstddef>

#include "shardwise/layout/over.hpp"
#include "shardwise/layout/tensor.hpp"

namespace testing {

/// Element i of the whole tensor is number(i).
template <class T, shardwise::Layout L, class F>
shardwise::Tensor<T, L> filled(const shardwise::Shape& shape, const shardwise::place_t<L>& place,
                               F&& number) {
  shardwise::Tensor<T, L> part(shape, place);
  for_each_global_run(part.view(), [&](std::size_t global, std::size_t local, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) part[local + i] = static_cast<T>(number(global + i));
  });
  return part;
}

}  // namespace testing
