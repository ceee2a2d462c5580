#pragma once
// TCP connections whose operations all have a time limit.

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

using Until = std::chrono::steady_clock::time_point;

/// For poll(): the time until then, rounded up; 0 if it has passed.
inline int milliseconds_until(Until until) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 1'000'000));
}

/// A descriptor of a socket that never blocks.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  /// Waits for an event (POLLIN, POLLOUT); false if the time is over before.
  bool wait(short events, Until until) const {
    pollfd one{descriptor_, events, 0};
    int ready = -1;
    do {
      ready = ::poll(&one, 1, milliseconds_until(until));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
  }

  enum class Moved { some, nothing_yet, ended };

  /// Copies what has arrived to the front of `bytes`, which becomes the rest.
  Moved receive_some(std::span<std::byte>& bytes) const {
    const ssize_t got = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (got == 0) return Moved::ended;
    if (got < 0) return is_temporary() ? Moved::nothing_yet : Moved::ended;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    return Moved::some;
  }

  /// Fills `bytes`; false if the other side has disconnected or the time is over.
  bool receive(std::span<std::byte> bytes, Until until) const {
    while (!bytes.empty()) {
      if (!wait(POLLIN, until) || receive_some(bytes) == Moved::ended) return false;
    }
    return true;
  }

  /// The same for sending. If the other side has disconnected, no signal is raised.
  bool send(std::span<const std::byte> bytes, Until until) const {
    while (!bytes.empty()) {
      if (!wait(POLLOUT, until)) return false;
      const ssize_t put = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put < 0 && !is_temporary()) return false;
      if (put > 0) bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return true;
  }

  static bool is_temporary() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

 private:
  int descriptor_ = -1;
};

/// The addresses of a name and a port.
class Addresses {
 public:
  /// throws  argument_error if the name is unknown
  Addresses(const std::string& name, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code != 0)
      throw argument_error({"rendezvous: the address '", name, "' is unknown: ",
                            ::gai_strerror(code), ". Set MASTER_ADDR to one of rank 0's machine"});
    all_.reset(found);
  }

  /// Calls f(address) for each until it returns true.
  template <class F>
  bool any(F&& f) const {
    for (const addrinfo* address = all_.get(); address != nullptr; address = address->ai_next)
      if (f(*address)) return true;
    return false;
  }

 private:
  struct Free {
    void operator()(addrinfo* all) const { ::freeaddrinfo(all); }
  };
  std::unique_ptr<addrinfo, Free> all_;
};

inline Socket new_socket(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol));
}

/// Listens at this address and no other. If that fails, returns no socket and sets errno.
inline Socket listen_at(const Addresses& addresses, int waiting) {
  Socket listening;
  addresses.any([&](const addrinfo& address) {
    Socket socket = new_socket(address);
    const int on = 1;
    if (!socket ||
        ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0 ||
        ::listen(socket.descriptor(), waiting) != 0)
      return false;
    listening = std::move(socket);
    return true;
  });
  return listening;
}

/// Connected, or no socket if no program listens or the time is over.
inline Socket connect_to(const Addresses& addresses, Until until) {
  Socket connected;
  addresses.any([&](const addrinfo& address) {
    Socket socket = new_socket(address);
    if (!socket) return false;
    if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0 &&
        (errno != EINPROGRESS || !socket.wait(POLLOUT, until)))
      return false;
    int code = 0;
    socklen_t length = sizeof code;
    if (::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code != 0)
      return false;
    connected = std::move(socket);
    return true;
  });
  return connected;
}

}  // namespace shardwise::detail
