#pragma once
// Thread ranks that begin collectives, and make them as late as they may.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/mesh.hpp"

namespace testing {

/// What became of the collectives that this rank has begun.
struct SeenLate {
  int begun = 0;
  int under_way = 0;
  int most = 0;        // that were under way at a time
  int progressed = 0;  // calls of progress(), of all that were under way
  int touched = 0;     // while they were under way
  /// n where one begins that gives n elements, and -n at its end.
  std::vector<std::ptrdiff_t> events{};
};
inline thread_local SeenLate late;

/// A collective that is made at its end, and not at all if it is destroyed before. Until then its
/// memory has NaNs, which whoever reads it gets.
template <class Move>
class Late {
  using T = typename decltype(Move::out)::element_type;
  static constexpr bool has_counts = requires(const Move& move) { move.counts; };

 public:
  Late(shardwise::ThreadCommunicator& ranks, const Move& move) : ranks_(&ranks), move_(move) {
    if (move.in.data() < move.out.data() + move.out.size() &&
        move.out.data() < move.in.data() + move.in.size())
      given_.assign(move.in.begin(), move.in.end());
    if constexpr (has_counts) std::ranges::copy(move.counts, counts_.begin());
    ++late.begun;
    late.most = std::max(late.most, ++late.under_way);
    late.events.push_back(static_cast<std::ptrdiff_t>(move.out.size()));
    std::ranges::fill(bytes(), nothing);
  }
  Late(Late&& other) noexcept
      : ranks_(std::exchange(other.ranks_, nullptr)),
        given_(std::move(other.given_)),
        move_(other.move_),
        counts_(other.counts_) {}
  Late& operator=(Late&&) = delete;
  ~Late() {
    if (ranks_ != nullptr) --late.under_way;
  }

  void progress() { ++late.progressed; }
  void finish() {
    if (ranks_ == nullptr) return;
    --late.under_way;
    late.events.push_back(-static_cast<std::ptrdiff_t>(move_.out.size()));
    if (!std::ranges::all_of(bytes(), [](std::byte b) { return b == nothing; })) ++late.touched;
    if (!given_.empty()) move_.in = given_;
    if constexpr (has_counts) move_.counts = std::span(counts_).first(move_.counts.size());
    move_.on(*std::exchange(ranks_, nullptr));
  }

 private:
  static constexpr std::byte nothing{0xff};
  std::span<std::byte> bytes() const { return std::as_writable_bytes(move_.out); }

  shardwise::ThreadCommunicator* ranks_;
  std::vector<T> given_{};  // if `out` is a part of it
  Move move_;
  std::array<std::size_t, 16> counts_{};
};

class LateRanks : public shardwise::BeginningCollectives<LateRanks> {
 public:
  explicit LateRanks(shardwise::ThreadCommunicator inner) : inner_(std::move(inner)) {}
  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  LateRanks split(int color, int key) { return LateRanks(inner_.split(color, key)); }

  template <class Move>
  void move(const shardwise::Call&, const Move& move) {
    move.on(inner_);
  }
  template <class Move>
  Late<Move> begin(const shardwise::Call&, const Move& move) {
    return Late<Move>(inner_, move);
  }

 private:
  shardwise::ThreadCommunicator inner_;
};
static_assert(shardwise::BeginsCollectives<LateRanks>);

/// Calls f(MeshRanks<C>) on the ranks of a mesh, where C is made of LateRanks; at the end nothing
/// is under way, and nobody has touched the memory of what was.
template <class C, class F>
void on_late_mesh(const shardwise::mesh& sizes, F&& f) {
  shardwise::run_ranks(sizes.size(), [&](shardwise::ThreadCommunicator& world) {
    late = {};
    shardwise::MeshRanks<C> ranks(C(LateRanks(world)), sizes);
    f(ranks);
    CHECK(late.touched == 0);
    CHECK(late.under_way == 0);
  });
}

}  // namespace testing
