#pragma once
// What a problem holds, and whether a contender computes the same.
//
// A problem is a folder of .npy files in float: x, dy (the gradient of the output), each parameter
// by its name, and what must come out of them: y and grad.<parameter>. All of x, dy and parameters
// are whole numbers from -2 to 2, so that every sum of products is a whole number below 2^24 and
// exact in float, in whatever order it was added up. A problem of attention has q, k and v instead
// of x and parameters, and its results are rounded from double.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/core/philox.hpp"
#include "shardwise/interop/npy.hpp"

namespace peers {

namespace sw = shardwise;

inline std::filesystem::path file_of(const std::filesystem::path& folder, const std::string& name) {
  return folder / (name + ".npy");
}

/// Rows of features, or images.
inline sw::Shape shape_of_x(const std::filesystem::path& folder) {
  using enum sw::Axis;
  const auto extents = sw::read_npy_header(file_of(folder, "x")).shape;
  sw::Shape shape;
  for (const sw::Axis axis : extents.size() == 2 ? std::vector{batch, feature}
                                                 : std::vector{batch, channel, height, width})
    shape.append({axis, static_cast<std::size_t>(extents.at(shape.rank()))});
  return shape;
}

/// The numbers of one tensor, or of the part that a rank has of it.
template <class L = sw::Invariant>
std::vector<float> load(const std::filesystem::path& folder, const std::string& name,
                        const sw::Shape& shape, sw::Place place = {}) {
  sw::Tensor<float, L> tensor(shape, place);
  sw::read_npy(file_of(folder, name), tensor.view());
  return {tensor.data(), tensor.data() + tensor.size()};
}

/// Whole numbers from -2 to 2; `number` tells the tensors of a problem apart.
inline sw::Tensor<float, sw::Invariant> whole_numbers(const sw::Shape& shape,
                                                      std::uint64_t number) {
  sw::Tensor<float, sw::Invariant> tensor(shape);
  const std::span<float> values = tensor.view().span();
  sw::RandomStream(sw::Seed{1}, sw::data_ordinal, 0, number)
      .for_each_bits(0, values.size(), [&](std::uint64_t i, std::uint32_t word) {
        values[static_cast<std::size_t>(i)] = static_cast<float>(word % 5) - 2.0F;
      });
  return tensor;
}

/// How far from exact a tensor may be, as |got - exact| / |exact| with the square root of the sum
/// of squares: not at all in float, which checks what is computed. In bf16 every layer rounds to 8
/// bits what it gives, and where that changes the sign of a later sum, ReLU lets another gradient
/// through: that shows large mistakes alone.
template <class T>
double bound(const std::string& name) {
  if (std::is_same_v<T, float>) return 0;
  return name.starts_with("grad.") ? 1.0 / 32 : 1.0 / 128;
}

/// Says how far a tensor or a part of it is from exact, on the rank that speaks; throws
/// std::runtime_error beyond `most`.
template <class T>
void require_close(const std::string& name, std::span<const T> got, std::span<const float> exact,
                   double most, bool speaks) {
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto e = static_cast<double>(exact[i]);
    const double difference = static_cast<double>(static_cast<float>(got[i])) - e;
    apart += difference * difference;
    all += e * e;
  }
  const double difference = std::sqrt(apart / all);
  if (speaks) std::printf("difference %s %.3g\n", name.c_str(), difference);
  if (difference <= most) return;
  std::ostringstream why;
  why << name << " is wrong: |got - exact| / |exact| is " << difference << ", and at most " << most
      << " is allowed";
  throw std::runtime_error(why.str());
}

template <class T>
void require_exact(const std::string& name, std::span<const T> got, std::span<const float> exact,
                   bool speaks) {
  require_close(name, got, exact, bound<T>(name), speaks);
}

}  // namespace peers
