#pragma once
// NCCL_COMM_ID: the variable from which NCCL reads where the processes of a job connect.

#include <cstdlib>
#include <string>

#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// While it lives, NCCL_COMM_ID is the address of rank 0. A value that the user has set stays.
/// Without this variable ncclGetUniqueId makes a new id. With it, ncclGetUniqueId returns this
/// address on every rank, and rank 0 listens there while it connects (bootstrapGetUniqueId and
/// ncclCommInitRankDev in NCCL's sources). The thread of NCCL that connects reads the variable too,
/// so this object has to live until the ranks are connected.
class CommIdVariable {
 public:
  /// throws  argument_error if neither the user nor the launcher has set an address
  explicit CommIdVariable(const LaunchEnvironment& launch) : is_ours_(!process_variable(name)) {
    if (is_ours_) ::setenv(name, address_of(launch).c_str(), 1);
  }
  CommIdVariable(const CommIdVariable&) = delete;
  CommIdVariable& operator=(const CommIdVariable&) = delete;
  ~CommIdVariable() {
    if (is_ours_) ::unsetenv(name);
  }

  /// "NCCL_COMM_ID=10.0.0.1:29600"
  std::string text() const { return std::string(name) + '=' + process_variable(name).value_or(""); }

 private:
  static constexpr const char* name = "NCCL_COMM_ID";

  /// "10.0.0.1:29600", "[fe80::1]:29600" or "node0:29600"
  static std::string address_of(const LaunchEnvironment& launch) {
    const std::string& host = launch.master_address;
    if (host.empty() || !launch.master_port)
      throw argument_error(
          {"NCCL: rank ", launch.rank,
           " does not know where rank 0 listens; set MASTER_ADDR to the name or number of rank 0's "
           "machine, and SHARDWISE_PORT or MASTER_PORT to a port that is free there"});
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return (is_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(*launch.master_port);
  }

  bool is_ours_;
};

}  // namespace shardwise::detail
