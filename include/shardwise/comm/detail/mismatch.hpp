#pragma once
// Which ranks made different calls, and the text of the error about them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// For example "rank 0 called all_reduce(...); ranks 1, 2 called barrier()", for collective
/// `number` of a group. `ranks` are the world ranks of its members, agree(q, r) says whether two of
/// them made the same call, and call(r) is the text of that call. Empty if there is no memory.
template <class Agree, class CallText>
std::string describe_mismatch(std::uint64_t number, std::span<const int> ranks, Agree agree,
                              CallText call) noexcept try {
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::string who;
    bool listed = false;
    for (std::size_t q = 0; q < ranks.size(); ++q) {
      if (!agree(q, r)) continue;
      listed |= q < r;
      who += sentence({who.empty() ? "" : ", ", ranks[q]});
    }
    if (listed) continue;
    const bool one = who.find(',') == std::string::npos;
    text +=
        sentence({text.empty() ? "" : "; ", one ? "rank " : "ranks ", who, " called ", call(r)});
  }
  return sentence({"ranks disagree in collective ", number, " of their group of ", ranks.size(),
                   ": ", text, "; all must make the same call"});
} catch (...) {
  return {};
}

/// Whether `receive` expects the message of `sent`.
inline bool is_same_message(const Call& sent, const Call& receive) {
  return sent.dtype == receive.dtype && sent.elements == receive.elements &&
         sent.tag == receive.tag;
}

/// The text about a message that its receiver does not expect. The ranks are world ranks.
inline std::string describe_message_mismatch(int sender, const Call& sent, int receiver,
                                             const Call& receive) {
  return sentence({"rank ", sender, " called ", sent, ", rank ", receiver, " called ", receive,
                   "; dtype, elements and tag of a message must be the same on both sides"});
}

/// A block of an all_to_all whose size is not the same for its sender and its receiver.
struct BlockMismatch {
  std::size_t from, to, sent, received;
};

/// The first such block, if there is one. Rank f sends sent(f, t) elements to rank t, which expects
/// received(t, f).
template <class Sent, class Received>
std::optional<BlockMismatch> first_block_mismatch(std::size_t ranks, Sent sent,
                                                  Received received) noexcept {
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      if (sent(from, to) != received(to, from))
        return BlockMismatch{from, to, sent(from, to), received(to, from)};
  return {};
}

/// The same of the calls of all ranks, each with its counts `sent` and `received`.
template <class AllToAll>
std::optional<BlockMismatch> first_block_mismatch(std::span<const AllToAll* const> all) noexcept {
  return first_block_mismatch(
      all.size(), [&](std::size_t from, std::size_t to) { return all[from]->sent[to]; },
      [&](std::size_t to, std::size_t from) { return all[to]->received[from]; });
}

/// The text about it; name(rank) is the number by which the text names a rank.
template <class Name>
std::string describe_block_mismatch(const BlockMismatch& block, Name name) {
  return sentence({"ranks disagree in all_to_all: rank ", name(block.from), " sends ", block.sent,
                   " elements to rank ", name(block.to), ", which called it to receive ",
                   block.received, " from there; the two counts must be the same"});
}

}  // namespace shardwise::detail
