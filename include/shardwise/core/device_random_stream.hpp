#pragma once
// Random numbers for loops on a device, whose step is in memory of the device.

#include <cstdint>

#include "shardwise/core/philox.hpp"

namespace shardwise::detail {

/// A RandomStream whose step is in memory of a device. So a loop that is recorded once and launched
/// in many steps draws the numbers of each step. Only loops call its members.
class DeviceRandomStream {
 public:
  /// The numbers of `stream`, in the step `*step` at the time of the draw, see
  /// `RandomStream::step_word`.
  constexpr DeviceRandomStream(const RandomStream& stream, const std::uint32_t* step)
      : stream_(stream), step_(step) {}

  ///@{
  /// As `RandomStream` says.
  constexpr std::uint32_t bits(std::uint64_t i) const { return now().bits(i); }
  constexpr float uniform(std::uint64_t i) const { return now().uniform(i); }
  template <class F>
  constexpr void for_each_bits(std::uint64_t begin, std::uint64_t end, F f) const {
    now().for_each_bits(begin, end, f);
  }
  template <class F>
  constexpr void for_each_uniform(std::uint64_t begin, std::uint64_t end, F f) const {
    now().for_each_uniform(begin, end, f);
  }
  /// In any order, but here one after another.
  template <class F>
  constexpr void for_each_uniform_in_any_order(std::uint64_t begin, std::uint64_t end, F f) const {
    now().for_each_uniform(begin, end, f);
  }
  template <class F>
  constexpr void for_each_normal(std::uint64_t begin, std::uint64_t end, F f) const {
    now().for_each_normal(begin, end, f);
  }
  ///@}

 private:
  constexpr RandomStream now() const { return stream_.in_step(*step_); }

  RandomStream stream_;
  const std::uint32_t* step_;
};

}  // namespace shardwise::detail
