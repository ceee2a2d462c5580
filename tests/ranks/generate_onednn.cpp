// On oneDNN, a generator writes what one rank with plain loops writes without a cache.
// Compiled alone: ranks/generate needs no oneDNN.

#include <doctest/doctest.h>

#include <cstddef>
#include <type_traits>

#include "ranks/generate.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/thread_ranks.hpp"

using namespace testing::text;

TEST_CASE_TEMPLATE("texts on oneDNN are those without a cache", Window,
                   std::integral_constant<std::size_t, 0>, std::integral_constant<std::size_t, 3>) {
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 1.5, .top_k = 12, .top_p = 0.95, .seed = Seed{8}}}) {
    Tokens texts[3];
    for (std::size_t i = 0; i < 3; ++i)
      texts[i] = expected<float, Window::value>(prompts[i], i, written[i], sampling);
    for (int ranks = 1; ranks <= 8; ++ranks) {
      CAPTURE(ranks);
      run_ranks(ranks, [&](ThreadCommunicator& group) {
        Writer<float, Window::value, OneDnn, ThreadCommunicator> model(group);
        const Texts of = write(model, sampling, 4);
        for (std::size_t i = 0; i < 3; ++i) CHECK(of.texts[i] == texts[i]);
      });
    }
  }
}
