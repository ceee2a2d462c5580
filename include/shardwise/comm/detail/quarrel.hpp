#pragma once
// How ranks that disagree are told apart, and what is said about them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// One differing count always shows; several escape with a probability of 2^-64.
inline std::uint64_t digest(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0;
  for (const std::size_t count : counts) {
    hash = (hash ^ count) * 0x9e37'79b9'7f4a'7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

/// "rank 0 called all_reduce(...); ranks 1, 2 called barrier()", for collective `number` of a
/// group. `ranks` are the names of its members, agree(q, r) tells whether two of them made the same
/// call, and call(r) is that call in words. Empty if there is no memory.
template <class Agree, class InWords>
std::string describe_quarrel(std::uint64_t number, std::span<const int> ranks, Agree agree,
                             InWords call) noexcept try {
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::string who;
    bool told = false;
    for (std::size_t q = 0; q < ranks.size(); ++q) {
      if (!agree(q, r)) continue;
      told |= q < r;
      who += sentence({who.empty() ? "" : ", ", ranks[q]});
    }
    if (told) continue;
    const bool one = who.find(',') == std::string::npos;
    text +=
        sentence({text.empty() ? "" : "; ", one ? "rank " : "ranks ", who, " called ", call(r)});
  }
  return sentence({"ranks disagree in collective ", number, " of their group of ", ranks.size(),
                   ": ", text, "; all must make the same call"});
} catch (...) {
  return {};
}

/// What rank `from` sends in an all_to_all and rank `to` does not expect.
struct Unequal {
  std::size_t from, to, sent, received;
};

/// The first such block, if there is one. Rank f has sent(f, t) elements for rank t, which waits
/// for received(t, f).
template <class Sent, class Received>
std::optional<Unequal> first_unequal(std::size_t ranks, Sent sent, Received received) noexcept {
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      if (sent(from, to) != received(to, from))
        return Unequal{from, to, sent(from, to), received(to, from)};
  return {};
}

/// The same of the calls of all ranks, each with its counts `sent` and `received`.
template <class AllToAll>
std::optional<Unequal> first_unequal(std::span<const AllToAll* const> all) noexcept {
  return first_unequal(
      all.size(), [&](std::size_t from, std::size_t to) { return all[from]->sent[to]; },
      [&](std::size_t to, std::size_t from) { return all[to]->received[from]; });
}

/// Such a block in words; name(rank) is how a rank is called.
template <class Name>
std::string describe_unequal(const Unequal& block, Name name) {
  return sentence({"ranks disagree in all_to_all: rank ", name(block.from), " sends ", block.sent,
                   " elements to rank ", name(block.to), ", which called it to receive ",
                   block.received, " from there; the two counts must be the same"});
}

}  // namespace shardwise::detail
