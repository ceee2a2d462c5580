#pragma once
// The server of a rendezvous over TCP, which rank 0 runs until all ranks have connected.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/hello.hpp"
#include "shardwise/comm/detail/socket.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Before every reply: Hello::magic and the status. If it is `accepted`, all payloads follow.
inline constexpr std::size_t reply_length = 12;

inline std::array<std::byte, reply_length> reply(HelloStatus status) {
  std::array<std::byte, reply_length> bytes{};
  std::memcpy(bytes.data(), Hello::magic.data(), Hello::magic.size());
  put_number(std::span(bytes).subspan(8), static_cast<std::uint32_t>(status));
  return bytes;
}

/// A connection is pending until its whole hello has arrived, which has a fixed length. It is
/// closed after `hello_timeout`, or when too many are pending. So no connection delays the others.
class RendezvousServer {
 public:
  static constexpr std::chrono::seconds hello_timeout{5};

  RendezvousServer(const Participant& self, const Socket& listening, const RendezvousPayload& own)
      : self_(self),
        listening_(listening),
        connections_(static_cast<std::size_t>(self.size())),
        payloads_(connections_.size()),
        missing_(self.size() - 1) {
    payloads_[0] = own;
  }

  /// Returns when all ranks have connected.
  /// throws  peer_error after the time-out, naming the missing ranks
  ///         argument_error if the process cannot open so many descriptors
  const std::vector<RendezvousPayload>& receive_payloads(Until until) {
    while (missing_ > 0) {
      const Until now = std::chrono::steady_clock::now();
      if (now >= until) give_up();
      std::erase_if(pending_, [&](const PendingConnection& p) { return now >= p.until; });
      wait(until);
    }
    return payloads_;
  }

  /// Sends the payloads of all ranks to each of them.
  void send_payloads(Until until) const {
    std::vector<int> gone;
    for (std::size_t r = 1; r < connections_.size(); ++r)
      if (!connections_[r].send(reply(HelloStatus::accepted), until) ||
          !connections_[r].send(std::as_bytes(std::span(payloads_)), until))
        gone.push_back(static_cast<int>(r));
    if (!gone.empty())
      throw peer_error(
          {"rendezvous: rank ", list_of(gone), " came and was gone before all ranks were there"});
  }

 private:
  struct PendingConnection {
    Socket socket;
    Until until;
    Hello hello{};
    std::size_t received = 0;
  };

  void wait(Until until) {
    for (const PendingConnection& pending : pending_) until = std::min(until, pending.until);
    std::vector<pollfd> all{{listening_.descriptor(), POLLIN, 0}};
    for (const PendingConnection& pending : pending_)
      all.push_back({pending.socket.descriptor(), POLLIN, 0});
    for (const Socket& socket : connections_) all.push_back({socket.descriptor(), POLLIN, 0});
    if (::poll(all.data(), all.size(), milliseconds_until(until)) <= 0) return;
    const std::span<const pollfd> ranks = std::span(all).last(connections_.size());
    for (std::size_t r = 1; r < connections_.size(); ++r)
      if (ranks[r].revents != 0) disconnect(connections_[r]);
    for (std::size_t i = pending_.size(); i-- > 0;)
      if (all[i + 1].revents != 0 && !stays_pending(pending_[i]))
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (all[0].revents != 0) accept_connection();
  }

  /// A rank that sends more than its hello, or disconnects, has to connect again.
  void disconnect(Socket& socket) {
    socket = Socket();
    ++missing_;
  }

  void accept_connection() {
    Socket socket(
        ::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int code = errno;
    if (!socket) {  // the other side may have disconnected, which is not an error
      if (code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM) close_oldest(code);
      return;
    }
    ++accepted_;
    if (pending_.size() >= connections_.size() + 64) pending_.erase(pending_.begin());
    pending_.push_back({std::move(socket), std::chrono::steady_clock::now() + hello_timeout});
  }

  /// Frees the descriptor of the connection that has been pending for the longest time.
  void close_oldest(int code) {
    if (pending_.empty())
      throw argument_error(
          {"rendezvous, rank 0 of ", self_.size(),
           ": cannot accept the other ranks: ", std::generic_category().message(code),
           ". It needs a descriptor for each of them; raise the limit of open "
           "files (ulimit -n)"});
    pending_.erase(pending_.begin());
  }

  /// Reads what has arrived. False when the hello is complete or wrong.
  bool stays_pending(PendingConnection& pending) {
    std::span<std::byte> rest = std::span(pending.hello.bytes).subspan(pending.received);
    if (pending.socket.receive_some(rest) == Socket::Moved::ended) return false;
    pending.received = Hello::length - rest.size();
    const std::span<const std::byte> so_far(pending.hello.bytes.data(), pending.received);
    const std::size_t compared = std::min(so_far.size(), Hello::magic.size());
    if (std::memcmp(so_far.data(), Hello::magic.data(), compared) != 0) return false;
    if (!rest.empty()) return true;
    finish(pending);
    return false;
  }

  /// Accepts or refuses a connection whose hello is complete.
  void finish(PendingConnection& pending) {
    HelloStatus status = pending.hello.status(self_);
    const auto rank = static_cast<std::size_t>(pending.hello.rank());
    if (status == HelloStatus::accepted && (rank == 0 || connections_[rank]))
      status = HelloStatus::duplicate_rank;
    if (status != HelloStatus::accepted) {
      refused_ = std::string("; one was refused because it ") + describe(status);
      pending.socket.send(reply(status), std::chrono::steady_clock::now());
      return;
    }
    payloads_[rank] = pending.hello.payload();
    connections_[rank] = std::move(pending.socket);
    --missing_;
  }

  [[noreturn]] void give_up() const {
    std::vector<int> absent;
    for (int r = 1; r < self_.size(); ++r)
      if (!connections_[static_cast<std::size_t>(r)]) absent.push_back(r);
    throw peer_error({"rendezvous, rank 0 of ", self_.size(), ": after ",
                      self_.options().timeout.count(), " ms, rank ", list_of(absent),
                      " has not come. ", accepted_, " connection(s) were made", refused_,
                      ". Do all ranks run, and do they reach this address?"});
  }

  const Participant& self_;
  const Socket& listening_;
  std::vector<Socket> connections_;  ///< of the ranks that have joined
  std::vector<RendezvousPayload> payloads_;
  int missing_;
  std::vector<PendingConnection> pending_;
  std::size_t accepted_ = 0;
  std::string refused_;  ///< why the last connection was refused
};

}  // namespace shardwise::detail
