#pragma once
// Ranks that meet over TCP, at an address of rank 0's machine.

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/greeting.hpp"
#include "shardwise/comm/detail/reception.hpp"
#include "shardwise/comm/detail/socket.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// Rank 0 listens at the given address, and at no other of its machine, until all ranks have come;
/// then it sends each all cards. Messages have one fixed length. Who sends anything else, or
/// nothing, is sent away and holds nobody up; who comes with another token is refused.
class TcpRendezvous {
 public:
  /// throws  argument_error if `rank` is none of `size`, the port is none, or the token is too long
  TcpRendezvous(std::string address, int port, int rank, int size, RendezvousOptions options = {})
      : address_(std::move(address)),
        port_(port),
        self_("TcpRendezvous", rank, size, std::move(options)) {
    if (address_.empty() && size > 1)
      throw argument_error(
          "TcpRendezvous: no address is given; set MASTER_ADDR to one of rank 0's machine");
    if ((port < 1 || port > 65535) && size > 1)
      throw argument_error(
          {"TcpRendezvous: ", port,
           " is no port; set MASTER_PORT or SHARDWISE_PORT to 1 to 65535, the same "
           "on all ranks and free on rank 0's machine"});
  }

  /// As the launcher has told, token included.
  explicit TcpRendezvous(const LaunchEnvironment& launch,
                         std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : TcpRendezvous(launch.master_address, launch.master_port.value_or(0), launch.rank,
                      launch.size, {launch.token, timeout}) {}

  ///@{
  /// As `Rendezvous` says.
  int rank() const { return self_.rank(); }
  int size() const { return self_.size(); }
  ///@}

  /// throws  peer_error after the time-out, on rank 0 naming the ranks that have not come
  ///         argument_error if the address is not of this machine, or its port not free; if this
  ///         rank was refused, for the reason that it names
  ///         data_error if somebody else listens there
  std::vector<Card> meet(const Card& mine) {
    if (size() == 1) return {mine};
    const detail::Until until = std::chrono::steady_clock::now() + self_.options().timeout;
    return rank() == 0 ? receive(mine, until) : visit(mine, until);
  }

 private:
  std::string place() const { return address_ + ':' + std::to_string(port_); }
  std::string prefix() const {
    return "rendezvous at " + place() + ", rank " + std::to_string(rank()) + " of " +
           std::to_string(size()) + ": ";
  }

  std::vector<Card> receive(const Card& mine, detail::Until until) const {
    const detail::Socket listening =
        detail::listen_at(detail::Addresses(address_, port_), size() + 128);
    if (!listening) {
      const int code = errno;
      throw argument_error({prefix(),
                            "cannot listen there: ", std::generic_category().message(code),
                            ". The address must be one of this machine and the port free; "
                            "torchrun's own store may hold MASTER_PORT, then set SHARDWISE_PORT"});
    }
    detail::Reception reception(self_, listening, mine);
    const std::vector<Card>& all = reception.receive_all(until);
    reception.answer_all(until);
    return all;
  }

  std::vector<Card> visit(const Card& mine, detail::Until until) const {
    const detail::Addresses addresses(address_, port_);
    const detail::Greeting greeting(self_, mine);
    std::vector<Card> all(static_cast<std::size_t>(size()));
    while (true) {  // rank 0 may not listen yet
      const detail::Socket socket = detail::connect_to(addresses, until);
      std::array<std::byte, detail::answer_length> answer{};
      if (socket && socket.send(greeting.bytes, until) && socket.receive(answer, until)) {
        check(answer);
        if (socket.receive(std::as_writable_bytes(std::span(all)), until)) return all;
      }
      if (std::chrono::steady_clock::now() >= until)
        throw peer_error({prefix(), "after ", self_.options().timeout.count(), " ms, ",
                          socket ? "not all ranks have come" : "nobody listens there",
                          ". Does rank 0 run, with this address, port and number of ranks?"});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void check(std::span<const std::byte> answer) const {
    if (std::memcmp(answer.data(), detail::Greeting::mark.data(), detail::Greeting::mark.size()) !=
        0)
      throw data_error({prefix(),
                        "who listens there is not rank 0 of this library; torchrun's own store may "
                        "hold MASTER_PORT, then set SHARDWISE_PORT to a free one"});
    const auto verdict = static_cast<detail::Verdict>(detail::get_number(answer.subspan(8)));
    if (verdict != detail::Verdict::welcome)
      throw argument_error({prefix(), "refused by rank 0, for which this process ",
                            detail::meaning(verdict),
                            ". Start all processes of a job together, with one token"});
  }

  std::string address_;
  int port_;
  detail::Participant self_;
};

static_assert(Rendezvous<TcpRendezvous>);

}  // namespace shardwise
