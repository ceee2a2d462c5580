#pragma once
// The data that ranks with a device exchange before they have a communicator, and its checks.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/hello.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// A number that is equal for processes on one machine, in containers too: the FNV-1a hash of the
/// boot id of the system, or of the host name where there is no boot id.
inline std::uint64_t this_machine() {
  std::string text;
  std::ifstream start("/proc/sys/kernel/random/boot_id");
  if (!std::getline(start, text)) {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    text = name.data();
  }
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

/// The payload of a rank with a device in its rendezvous.
struct PeerInfo {
  std::array<std::byte, 128> id{};  ///< the unique id of NCCL; that of rank 0 is used
  std::uint64_t machine = 0;        ///< from this_machine()
  std::uint32_t version = 0;        ///< of NCCL
  std::string device;               ///< its PCI bus number, "0000:3b:00.0"
  std::string problem;              ///< why this rank cannot take part; empty if it can

  RendezvousPayload encode() const {
    RendezvousPayload payload{};
    const std::span<std::byte> bytes(payload);
    std::copy(id.begin(), id.end(), payload.begin());
    put_number(bytes.subspan(128), static_cast<std::uint32_t>(machine & 0xffff'ffffU));
    put_number(bytes.subspan(132), static_cast<std::uint32_t>(machine >> 32));
    put_number(bytes.subspan(136), version);
    put_text(bytes.subspan(140, 32), device);
    put_text(bytes.subspan(172), problem);
    return payload;
  }

  static PeerInfo decode(const RendezvousPayload& payload) {
    const std::span<const std::byte> bytes(payload);
    PeerInfo result;
    std::copy_n(payload.begin(), result.id.size(), result.id.begin());
    result.machine = get_number(bytes.subspan(128)) |
                     static_cast<std::uint64_t>(get_number(bytes.subspan(132))) << 32;
    result.version = get_number(bytes.subspan(136));
    result.device = get_text(bytes.subspan(140, 32));
    result.problem = get_text(bytes.subspan(172));
    return result;
  }

 private:
  /// Truncated if there is no room; the rest is zero.
  static void put_text(std::span<std::byte> bytes, std::string_view text) {
    text = text.substr(0, bytes.size());
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), bytes.begin());
  }
  static std::string get_text(std::span<const std::byte> bytes) {
    const auto end = std::find(bytes.begin(), bytes.end(), std::byte{0});
    return {reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::size_t>(end - bytes.begin())};
  }
};

/// Checks that all ranks can take part, that they have one version of NCCL, and that each has its
/// own device. All ranks check the same data, so either all of them throw or none.
/// throws  peer_error if a rank has a problem (that rank itself throws its own error before)
///         backend_error for different versions
///         argument_error for two ranks on one device
inline void check_peers(const std::vector<PeerInfo>& peers) {
  const auto number = [](std::size_t rank) { return std::to_string(rank); };
  for (std::size_t r = 0; r < peers.size(); ++r)
    if (!peers[r].problem.empty())
      throw peer_error({"rank ", number(r), " cannot take part: ", peers[r].problem});
  std::map<std::pair<std::uint64_t, std::string>, std::size_t> users;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (peers[r].version != peers[0].version)
      throw backend_error({"NCCL: rank 0 has version code ", peers[0].version, " and rank ",
                           number(r), " has ", peers[r].version,
                           "; give all ranks the same library"});
    const auto [user, is_first] = users.try_emplace({peers[r].machine, peers[r].device}, r);
    if (!is_first)
      throw argument_error({"NCCL: ranks ", number(user->second), " and ", number(r),
                            " are both on the GPU ", peers[r].device,
                            " of one machine, which NCCL refuses. Run no more ranks than GPUs and "
                            "give each its own (LOCAL_RANK), or share one GPU among thread ranks"});
  }
}

}  // namespace shardwise::detail
