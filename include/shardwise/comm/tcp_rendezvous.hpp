#pragma once
// A rendezvous over TCP, at an address of the machine of rank 0.

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

#include "shardwise/comm/detail/hello.hpp"
#include "shardwise/comm/detail/rendezvous_server.hpp"
#include "shardwise/comm/detail/socket.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// Rank 0 listens at the given address, and at no other of its machine, until all ranks have
/// connected. Then it sends the payloads of all ranks to each of them. Messages have a fixed
/// length. A connection that sends anything else, or nothing, is closed and does not delay the
/// ranks. A process with another token is refused.
class TcpRendezvous {
 public:
  /// throws  argument_error if `rank` is not below `size`, the port is not valid, or the token is
  ///         too long
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

  /// With rank, size, address, port and token from the launcher.
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
  ///         argument_error if the address does not belong to this machine or the port is not
  ///         free, or if rank 0 refused this process; the message has the reason
  ///         data_error if another program listens there
  std::vector<RendezvousPayload> meet(const RendezvousPayload& mine) {
    if (size() == 1) return {mine};
    const detail::Until until = std::chrono::steady_clock::now() + self_.options().timeout;
    return rank() == 0 ? serve(mine, until) : connect(mine, until);
  }

 private:
  std::string place() const { return address_ + ':' + std::to_string(port_); }
  std::string prefix() const {
    return "rendezvous at " + place() + ", rank " + std::to_string(rank()) + " of " +
           std::to_string(size()) + ": ";
  }

  std::vector<RendezvousPayload> serve(const RendezvousPayload& mine, detail::Until until) const {
    const detail::Socket listening =
        detail::listen_at(detail::Addresses(address_, port_), size() + 128);
    if (!listening) {
      const int code = errno;
      throw argument_error({prefix(),
                            "cannot listen there: ", std::generic_category().message(code),
                            ". The address must be one of this machine and the port free; "
                            "torchrun's own store may hold MASTER_PORT, then set SHARDWISE_PORT"});
    }
    detail::RendezvousServer server(self_, listening, mine);
    const std::vector<RendezvousPayload>& all = server.receive_payloads(until);
    server.send_payloads(until);
    return all;
  }

  std::vector<RendezvousPayload> connect(const RendezvousPayload& mine, detail::Until until) const {
    const detail::Addresses addresses(address_, port_);
    const detail::Hello hello(self_, mine);
    std::vector<RendezvousPayload> all(static_cast<std::size_t>(size()));
    while (true) {  // rank 0 may not listen yet
      const detail::Socket socket = detail::connect_to(addresses, until);
      std::array<std::byte, detail::reply_length> reply{};
      if (socket && socket.send(hello.bytes, until) && socket.receive(reply, until)) {
        check(reply);
        if (socket.receive(std::as_writable_bytes(std::span(all)), until)) return all;
      }
      if (std::chrono::steady_clock::now() >= until)
        throw peer_error({prefix(), "after ", self_.options().timeout.count(), " ms, ",
                          socket ? "not all ranks have come" : "no program listens there",
                          ". Does rank 0 run, with this address, port and number of ranks?"});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void check(std::span<const std::byte> reply) const {
    if (std::memcmp(reply.data(), detail::Hello::magic.data(), detail::Hello::magic.size()) != 0)
      throw data_error(
          {prefix(),
           "the program that listens there is not rank 0 of this job; torchrun's own store may "
           "hold MASTER_PORT, then set SHARDWISE_PORT to a free one"});
    const auto status = static_cast<detail::HelloStatus>(detail::get_number(reply.subspan(8)));
    if (status != detail::HelloStatus::accepted)
      throw argument_error({prefix(), "refused by rank 0, because this process ",
                            detail::describe(status),
                            ". Start all processes of a job together, with one token"});
  }

  std::string address_;
  int port_;
  detail::Participant self_;
};

static_assert(Rendezvous<TcpRendezvous>);

}  // namespace shardwise
