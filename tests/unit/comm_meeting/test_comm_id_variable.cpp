// The variable from which NCCL reads the address of rank 0.

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "shardwise/comm/detail/comm_id_variable.hpp"

using namespace shardwise;
using detail::CommIdVariable;

namespace {

std::optional<std::string> value() { return detail::process_variable("NCCL_COMM_ID"); }

LaunchEnvironment launch_at(const std::string& address, std::optional<int> port) {
  return {.launcher = "torchrun",
          .rank = 1,
          .size = 2,
          .local_rank = {},
          .master_address = address,
          .master_port = port};
}

}  // namespace

TEST_CASE("NCCL_COMM_ID is set as long as its object lives") {
  ::unsetenv("NCCL_COMM_ID");
  for (int i = 0; i < 2; ++i) {
    {
      const CommIdVariable variable(launch_at("10.0.0.1", 29600 + i));
      CHECK(value() == "10.0.0.1:2960" + std::to_string(i));
      CHECK(variable.text() == "NCCL_COMM_ID=" + *value());
    }
    CHECK(!value().has_value());
  }
}

TEST_CASE("NCCL_COMM_ID: a number of IPv6 is in brackets") {
  const CommIdVariable variable(launch_at("fe80::1", 29600));
  CHECK(value() == "[fe80::1]:29600");
}

TEST_CASE("NCCL_COMM_ID: a value of the user stays") {
  ::setenv("NCCL_COMM_ID", "node7:1234", 1);
  {
    const CommIdVariable variable(launch_at("", {}));
    CHECK(value() == "node7:1234");
  }
  CHECK(value() == "node7:1234");
  ::unsetenv("NCCL_COMM_ID");
}

TEST_CASE("NCCL_COMM_ID: without an address or a port") {
  for (const LaunchEnvironment& launch : {launch_at("", 29600), launch_at("node0", {})}) {
    CHECK_THROWS_WITH_AS(
        CommIdVariable{launch},
        "NCCL: rank 1 does not know where rank 0 listens; set MASTER_ADDR to the name or number of "
        "rank 0's machine, and SHARDWISE_PORT or MASTER_PORT to a port that is free there",
        argument_error);
    CHECK(!value().has_value());
  }
}
