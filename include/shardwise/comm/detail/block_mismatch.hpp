#pragma once
// Blocks of an all_to_all whose senders and receivers disagree on their sizes.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// A block of an all_to_all whose size is not the same for its sender and its receiver.
struct BlockMismatch {
  std::size_t from, to, sent, received;
};

/// Of the blocks that rank `to` expects from each rank, the first that is sent with another size,
/// if there is one.
inline std::optional<BlockMismatch> first_block_mismatch(
    std::size_t to, std::span<const std::size_t> sent,
    std::span<const std::size_t> expected) noexcept {
  for (std::size_t from = 0; from < sent.size(); ++from)
    if (sent[from] != expected[from]) return BlockMismatch{from, to, sent[from], expected[from]};
  return {};
}

/// The first of all, by sender and receiver, of what each receiver has found, by rank.
template <class Found>
auto first_found(const std::vector<Found>& found) noexcept {
  Found first;
  for (const Found& one : found)
    if (one && (!first || one->from < first->from)) first = one;
  return first;
}

/// The same of the calls of all ranks, each with its counts `sent` and `received`.
template <class AllToAll>
std::optional<BlockMismatch> first_block_mismatch(std::span<const AllToAll* const> all) noexcept {
  for (std::size_t from = 0; from < all.size(); ++from)
    for (std::size_t to = 0; to < all.size(); ++to)
      if (all[from]->sent[to] != all[to]->received[from])
        return BlockMismatch{from, to, all[from]->sent[to], all[to]->received[from]};
  return {};
}

/// The text about it; name(rank) is the number by which the text names a rank.
template <class Name>
std::string describe_block_mismatch(const BlockMismatch& block, Name name) {
  return sentence({"ranks disagree in all_to_all: rank ", name(block.from), " sends ", block.sent,
                   " elements to rank ", name(block.to), ", which called it to receive ",
                   block.received, " from there; the two counts must be the same"});
}

}  // namespace shardwise::detail
