#pragma once
// All-reduce, reduce-scatter and all-gather as rounds of messages, with what is added between them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/ordered_sum.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail::mpi {

/// The data of one such collective of a rank. It does not wait itself: the caller may wait for the
/// messages of each round, or do other things meanwhile. Sums of up to direct_ranks ranks are added
/// in rank order: of a small all_reduce each rank gets all inputs, else those of its own block.
/// Sums of more ranks go along a SumTree in accumulate_t, and are rounded at its end. An all_reduce
/// in blocks gathers these then.
class Rounds {
 public:
  explicit Rounds(Place place)
      : place_(place),
        tree_(place.size),
        counts_(ranks()),
        begins_(ranks() + 1),
        terms_(ranks() * sizeof(void*)) {}

  ///@{
  /// A collective begins. Nothing is read or written until next().
  template <class T>
  void begin(const moves::AllReduce<T>& m) {
    for (std::size_t r = 0; r < ranks(); ++r)
      counts_[r] = shardwise::block_of(m.in.size(), {static_cast<int>(r), place_.size}).size;
    sum(m.in, m.out.data(), m.reduction);
    gathers_inputs_ = is_direct() && m.in.size_bytes() <= gathered_bytes;
    if (gathers_inputs_) return;
    sums_ = out_ + begins_[index(place_.rank)] * sizeof(T);
    gather_rounds_ = gather_rounds(place_.size);
  }
  template <class T>
  void begin(const moves::ReduceScatter<T>& m) {
    std::ranges::copy(m.counts, counts_.begin());
    sum(m.in, m.out.data(), m.reduction);
  }
  template <class T>
  void begin(const moves::AllGather<T>& m) {
    std::ranges::copy(m.counts, counts_.begin());
    set(m.in, m.out.data());
    between_ = &Rounds::copy_own<T>;
    gather_rounds_ = gather_rounds(place_.size);
  }
  ///@}

  /// The elements of each rank's block. They stay until the next collective begins.
  std::span<const std::size_t> counts() const { return counts_; }

  /// Does what follows the messages of the round before, which are through, and adds those of the
  /// next round. Returns whether there are some.
  bool next(Transfers& transfers) {
    for (; number_ <= sum_rounds_ + gather_rounds_; ++number_) {
      if (!transfers.empty()) return true;
      if (number_ <= sum_rounds_) (this->*between_)(number_);
      if (number_ < sum_rounds_)
        is_direct() ? exchange_summands(transfers) : exchange_in_tree(transfers);
      else if (number_ < sum_rounds_ + gather_rounds_)
        gather_blocks(transfers);
    }
    return false;
  }

  /// Of the elements of that round.
  Dtype dtype() const { return number_ <= sum_rounds_ ? sent_as_ : dtype_; }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t ranks() const { return index(place_.size); }
  bool is_direct() const { return place_.size <= direct_ranks; }

  template <class T>
  void set(std::span<const T> in, T* out) {
    for (std::size_t r = 0; r < ranks(); ++r) begins_[r + 1] = begins_[r] + counts_[r];
    in_ = reinterpret_cast<const std::byte*>(in.data());
    out_ = reinterpret_cast<std::byte*>(out);
    dtype_ = dtype_v<T>;
    number_ = sum_rounds_ = gather_rounds_ = 0;
    gathers_inputs_ = false;
  }

  template <class T>
  void sum(std::span<const T> in, T* out, Reduction reduction) {
    set(in, out);
    sums_ = out_;
    reduction_ = reduction;
    sent_as_ = is_direct() ? dtype_v<T> : dtype_v<accumulate_t<T>>;
    sum_rounds_ = is_direct() ? 1 : tree_.rounds();
    between_ = is_direct() ? &Rounds::add_summands<T> : &Rounds::add_in_tree<T>;
  }

  template <class T>
  void copy_own(int) {
    const T* const in = reinterpret_cast<const T*>(in_);
    T* const out = reinterpret_cast<T*>(out_) + begins_[index(place_.rank)];
    if (in != out) std::copy_n(in, counts_[index(place_.rank)], out);
  }

  /// The inputs that the rank adds of which it gets the sums.
  Interval summands_of(int rank) const {
    if (gathers_inputs_) return {0, begins_.back()};
    return {begins_[index(rank)], counts_[index(rank)]};
  }

  void exchange_summands(Transfers& transfers) {
    const std::size_t bytes = size_of(dtype_), mine = summands_of(place_.rank).size;
    reserve(ranks() * mine * bytes);
    for_each_partner(place_, [&](int from, int to) {
      const Interval sent = summands_of(to);
      transfers.receive(from, {memory_.data() + index(from) * mine * bytes, mine});
      transfers.send(to, {const_cast<std::byte*>(in_) + sent.offset * bytes, sent.size});
    });
  }

  /// After the first round: in rank order.
  template <class T>
  void add_summands(int rounds) {
    if (rounds == 0) return;
    const Interval mine = summands_of(place_.rank);
    auto* const terms = reinterpret_cast<const T**>(terms_.data());
    for (std::size_t r = 0; r < ranks(); ++r)
      ::new (terms + r) const T*(reinterpret_cast<const T*>(memory_.data()) + r * mine.size);
    terms[index(place_.rank)] = reinterpret_cast<const T*>(in_) + mine.offset;
    ordered_sum<T>(std::span<const T* const>(terms, ranks()), 0, mine.size,
                   std::array{reinterpret_cast<T*>(sums_)}, reduction_);
  }

  /// In memory_ are the sums so far, and then room for those of another rank.
  void exchange_in_tree(Transfers& transfers) {
    const SumRound round = tree_.round(place_.rank, number_);
    if (round.partner < 0) return;
    const std::size_t n = begins_.back(), bytes = size_of(sent_as_);
    const auto blocks = [&](std::size_t before, const BlockRange& range) {
      const std::size_t begin = begins_[index(range.begin)];
      return Block{memory_.data() + (before + begin) * bytes, begins_[index(range.end)] - begin};
    };
    transfers.receive(round.partner, blocks(round.is_the_sum ? 0 : n, round.received));
    transfers.send(round.partner, blocks(0, round.sent));
  }

  template <class T>
  void add_in_tree(int rounds) {
    using A = accumulate_t<T>;
    const std::size_t n = begins_.back();
    if (rounds == 0) {
      reserve(2 * n * sizeof(A));
      const T* const in = reinterpret_cast<const T*>(in_);
      std::transform(in, in + n, reinterpret_cast<A*>(memory_.data()),
                     [](T x) { return static_cast<A>(x); });
      return;
    }
    A* const sums = reinterpret_cast<A*>(memory_.data());
    const SumRound round = tree_.round(place_.rank, rounds - 1);
    if (!round.is_the_sum) {
      const std::size_t begin = begins_[index(round.received.begin)];
      const std::size_t count = begins_[index(round.received.end)] - begin;
      std::array<const A*, 2> terms{sums + begin, sums + n + begin};
      if (round.partner_first) std::swap(terms[0], terms[1]);
      ordered_sum<A>(terms, 0, count, std::array{sums + begin}, reduction_);
    }
    if (rounds < sum_rounds_) return;
    const A* const mine = sums + begins_[index(place_.rank)];
    std::transform(mine, mine + counts_[index(place_.rank)], reinterpret_cast<T*>(sums_),
                   [](A x) { return static_cast<T>(x); });
  }

  void gather_blocks(Transfers& transfers) {
    add_gather_round(transfers, place_, number_ - sum_rounds_, [&](int begin, int end) {
      const std::size_t first = begins_[index(begin)];
      return Block{out_ + first * size_of(dtype_), begins_[index(end)] - first};
    });
  }

  /// Makes room in memory_, whose content is lost.
  void reserve(std::size_t bytes) {
    if (memory_.size() >= bytes) return;
    memory_.clear();  // so that resize copies nothing
    memory_.resize(bytes);
  }

  Place place_;
  SumTree tree_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> begins_;  // of the blocks; the last one is the end
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::byte* sums_ = nullptr;  // where the rank's sums belong
  Dtype dtype_ = Dtype::uint8;
  Dtype sent_as_ = Dtype::uint8;  // in the rounds of sums
  Reduction reduction_ = Reduction::sum;
  bool gathers_inputs_ = false;
  int number_ = 0;  // of the next round
  int sum_rounds_ = 0;
  int gather_rounds_ = 0;
  void (Rounds::*between_)(int) = nullptr;  // given how many rounds of sums are through
  std::vector<std::byte> memory_{};         // only grows
  std::vector<std::byte> terms_;            // a pointer for each rank
};

}  // namespace shardwise::detail::mpi
