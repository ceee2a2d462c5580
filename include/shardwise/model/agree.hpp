#pragma once
// Agreement of ranks: either all ranks continue, or all throw.

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/model/host_ranks.hpp"

namespace shardwise {

namespace detail {

/// The text of rank `root`, on every rank.
template <AgreeingRanks R>
std::string broadcast_text(R& ranks, const std::string& text, int root) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  ranks.broadcast(std::span(&length, 1), root);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length));
  if (ranks.rank() == root) bytes.assign(text.begin(), text.end());
  ranks.broadcast(std::span(bytes), root);
  return {bytes.begin(), bytes.end()};
}

/// The first rank on which `here` is true; the number of ranks if there is none. A collective.
template <AgreeingRanks R>
int first_rank(R& ranks, bool here) {
  std::int32_t first = here ? ranks.rank() : ranks.size();
  ranks.all_reduce(std::span<const std::int32_t>(&first, 1), std::span(&first, 1), Reduction::min);
  return first;
}

/// Calls `call`, which must not communicate, on every rank, and returns when all have returned. If
/// it throws on some ranks, all ranks throw: those ranks their own exception, the others an error
/// of the type `Told` with the message of the first of them. A collective.
template <class Told = data_error, AgreeingRanks R, class Call>
void on_all_ranks(R& ranks, Call&& call) {
  std::exception_ptr mine;
  std::string text;
  try {
    call();
  } catch (const std::exception& e) {
    mine = std::current_exception();
    text = e.what();
  } catch (...) {
    mine = std::current_exception();
    text = "threw what is no std::exception";
  }
  const int first = first_rank(ranks, mine != nullptr);
  if (first == ranks.size()) return;
  const std::string message = broadcast_text(ranks, text, first);
  if (mine) std::rethrow_exception(mine);
  throw Told({"rank ", first, ": ", message});
}

/// Whether `value` is the same on all ranks. A collective.
template <AgreeingRanks R>
bool same_on_all_ranks(R& ranks, std::uint64_t value) {
  const auto mine = static_cast<std::int64_t>(value);
  std::array<std::int64_t, 2> least{mine, ~mine};  // the least ~v is that of the greatest v
  const std::span<std::int64_t> numbers(least);
  ranks.all_reduce(std::span<const std::int64_t>(numbers), numbers, Reduction::min);
  return least[0] == ~least[1];
}

/// The first rank whose value is not that of rank 0, for values that differ. A collective.
template <AgreeingRanks R>
int first_unlike_rank_0(R& ranks, std::uint64_t value) {
  const auto mine = static_cast<std::int64_t>(value);
  std::int64_t of_rank_0 = mine;
  ranks.broadcast(std::span(&of_rank_0, 1), 0);
  return first_rank(ranks, mine != of_rank_0);
}

}  // namespace detail

}  // namespace shardwise
