#pragma once
// Checks that the sender and the receiver of each block of an all_to_all mean the same size.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "shardwise/comm/detail/block_mismatch.hpp"
#include "shardwise/comm/detail/mpi_exchange.hpp"
#include "shardwise/comm/detail/mpi_transfers.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::mpi {

/// One rank's part in it, once all ranks make the same call: that does not compare counts.
class BlockAgreement {
 public:
  /// `exchange` has to outlive it.
  explicit BlockAgreement(Exchange& exchange) : exchange_(exchange) {}

  /// Throws on all ranks if one sends another size than its receiver expects. Each rank tells each
  /// what it sends there, and all what it finds, so that nobody needs the counts of all pairs. A
  /// collective.
  void agree(std::span<const std::size_t> sent, std::span<const std::size_t> expected) {
    const auto rank = static_cast<std::size_t>(exchange_.place().rank);
    sent_.assign(sent.begin(), sent.end());
    sent_here_.assign(sent.begin(), sent.end());  // of this rank itself
    for (std::size_t r = 0; r < sent_.size(); ++r) {
      exchange_.outgoing()[r] = count_of(sent_[r]);
      exchange_.incoming()[r] = count_of(sent_here_[r]);
    }
    exchange_.run(Dtype::uint8);
    exchange_.gather(first_block_mismatch(rank, sent_here_, expected), found_);
    const auto name = [&](std::size_t r) { return exchange_.world_ranks()[r]; };
    if (const auto first = first_found(found_))
      throw collective_error(describe_block_mismatch(*first, name));
  }

 private:
  static Block count_of(std::size_t& one) {
    return {reinterpret_cast<std::byte*>(&one), sizeof one};
  }

  Exchange& exchange_;
  std::vector<std::size_t> sent_{};                    // by rank: what this rank sends
  std::vector<std::size_t> sent_here_{};               // and what is sent to it
  std::vector<std::optional<BlockMismatch>> found_{};  // by rank
};

}  // namespace shardwise::detail::mpi
