#pragma once
// Rank 0's part of a rendezvous over TCP: lets visitors in until all ranks are there.

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

#include "shardwise/comm/detail/greeting.hpp"
#include "shardwise/comm/detail/socket.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Ahead of every answer: Greeting::mark and the verdict. All cards follow if it is `welcome`.
inline constexpr std::size_t answer_length = 12;

inline std::array<std::byte, answer_length> answer(Verdict verdict) {
  std::array<std::byte, answer_length> bytes{};
  std::memcpy(bytes.data(), Greeting::mark.data(), Greeting::mark.size());
  put_number(std::span(bytes).subspan(8), static_cast<std::uint32_t>(verdict));
  return bytes;
}

/// Whoever connects is a stranger until a whole greeting has come, which has one fixed length, and
/// is sent away after `patience`, or when too many wait. Nobody holds up the others.
class Reception {
 public:
  static constexpr std::chrono::seconds patience{5};

  Reception(const Participant& self, const Socket& listening, const Card& own)
      : self_(self),
        listening_(listening),
        seats_(static_cast<std::size_t>(self.size())),
        cards_(seats_.size()),
        missing_(self.size() - 1) {
    cards_[0] = own;
  }

  /// Returns when all have come.
  /// throws  peer_error after the time-out, naming who has not
  ///         argument_error if there is no descriptor for so many
  const std::vector<Card>& receive_all(Until until) {
    while (missing_ > 0) {
      const Until now = std::chrono::steady_clock::now();
      if (now >= until) give_up();
      std::erase_if(strangers_, [&](const Stranger& s) { return now >= s.until; });
      wait(until);
    }
    return cards_;
  }

  /// Sends all cards to all.
  void answer_all(Until until) const {
    std::vector<int> gone;
    for (std::size_t r = 1; r < seats_.size(); ++r)
      if (!seats_[r].send(answer(Verdict::welcome), until) ||
          !seats_[r].send(std::as_bytes(std::span(cards_)), until))
        gone.push_back(static_cast<int>(r));
    if (!gone.empty())
      throw peer_error(
          {"rendezvous: rank ", list_of(gone), " came and was gone before all ranks were there"});
  }

 private:
  struct Stranger {
    Socket socket;
    Until until;
    Greeting greeting{};
    std::size_t received = 0;
  };

  void wait(Until until) {
    for (const Stranger& stranger : strangers_) until = std::min(until, stranger.until);
    std::vector<pollfd> all{{listening_.descriptor(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_)
      all.push_back({stranger.socket.descriptor(), POLLIN, 0});
    for (const Socket& seat : seats_) all.push_back({seat.descriptor(), POLLIN, 0});
    if (::poll(all.data(), all.size(), milliseconds_until(until)) <= 0) return;
    const std::span<const pollfd> seats = std::span(all).last(seats_.size());
    for (std::size_t r = 1; r < seats_.size(); ++r)
      if (seats[r].revents != 0) clear(seats_[r]);
    for (std::size_t i = strangers_.size(); i-- > 0;)
      if (all[i + 1].revents != 0 && !stays(strangers_[i]))
        strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (all[0].revents != 0) let_in();
  }

  /// A rank that says more than its greeting, or leaves, has to come again.
  void clear(Socket& seat) {
    seat = Socket();
    ++missing_;
  }

  void let_in() {
    Socket socket(
        ::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int code = errno;
    if (!socket) {  // it may be gone already, and nothing is amiss
      if (code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM) make_room(code);
      return;
    }
    ++visits_;
    if (strangers_.size() >= seats_.size() + 64) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(socket), std::chrono::steady_clock::now() + patience});
  }

  /// There is no descriptor for one more: whoever has waited longest goes.
  void make_room(int code) {
    if (strangers_.empty())
      throw argument_error(
          {"rendezvous, rank 0 of ", self_.size(),
           ": cannot let the other ranks in: ", std::generic_category().message(code),
           ". It needs a descriptor for each of them; raise the limit of open "
           "files (ulimit -n)"});
    strangers_.erase(strangers_.begin());
  }

  /// Reads what a stranger has sent; false when it is none any more.
  bool stays(Stranger& stranger) {
    std::span<std::byte> rest = std::span(stranger.greeting.bytes).subspan(stranger.received);
    if (stranger.socket.receive_some(rest) == Socket::Moved::ended) return false;
    stranger.received = Greeting::length - rest.size();
    const std::span<const std::byte> so_far(stranger.greeting.bytes.data(), stranger.received);
    const std::size_t marked = std::min(so_far.size(), Greeting::mark.size());
    if (std::memcmp(so_far.data(), Greeting::mark.data(), marked) != 0) return false;
    if (!rest.empty()) return true;
    seat(stranger);
    return false;
  }

  void seat(Stranger& stranger) {
    Verdict verdict = stranger.greeting.verdict(self_);
    const auto rank = static_cast<std::size_t>(stranger.greeting.rank());
    if (verdict == Verdict::welcome && (rank == 0 || seats_[rank])) verdict = Verdict::taken;
    if (verdict != Verdict::welcome) {
      refused_ = std::string("; one was refused that ") + meaning(verdict);
      stranger.socket.send(answer(verdict), std::chrono::steady_clock::now());
      return;
    }
    cards_[rank] = stranger.greeting.card();
    seats_[rank] = std::move(stranger.socket);
    --missing_;
  }

  [[noreturn]] void give_up() const {
    std::vector<int> absent;
    for (int r = 1; r < self_.size(); ++r)
      if (!seats_[static_cast<std::size_t>(r)]) absent.push_back(r);
    throw peer_error({"rendezvous, rank 0 of ", self_.size(), ": after ",
                      self_.options().timeout.count(), " ms, rank ", list_of(absent),
                      " has not come. ", visits_, " connection(s) were made", refused_,
                      ". Do all ranks run, and do they reach this address?"});
  }

  const Participant& self_;
  const Socket& listening_;
  std::vector<Socket> seats_;
  std::vector<Card> cards_;
  int missing_;
  std::vector<Stranger> strangers_;
  std::size_t visits_ = 0;
  std::string refused_;
};

}  // namespace shardwise::detail
