// A generator on memory that the host cannot touch writes what one on the host writes.

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>

#include "ranks/generate.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/far.hpp"

using namespace testing::text;
using testing::Far;
using testing::FarMemory;

TEST_CASE("texts on far memory") {
  using Group = DeviceThreadCommunicator<Far>;
  const Sampling sampling{.temperature = 1.5, .top_k = 12, .top_p = 0.95, .seed = Seed{8}};
  Tokens texts[3];
  for (std::size_t i = 0; i < 3; ++i)
    texts[i] = expected<float, 3>(prompts[i], i, written[i], sampling);
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    const auto memory = std::make_shared<FarMemory>();
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      Far backend(memory);
      Group group(threads, backend);
      Writer<float, 3, Far, Group, TensorParallel, TensorParallel::logits> model(group, backend);
      const Texts of = write(model, sampling, 4);
      for (std::size_t i = 0; i < 3; ++i) CHECK(of.texts[i] == texts[i]);
      threads.barrier();  // peers read this rank's memory until here
    });
  }
}
