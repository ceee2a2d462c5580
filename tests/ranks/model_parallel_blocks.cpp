// GPT-J and Falcon of transformers, see transformers.hpp.

#include <doctest/doctest.h>

#include <string>

#include "ranks/transformers.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/models/falcon_files.hpp"
#include "shardwise/models/gptj_files.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "shardwise/models/parallelism.hpp"

using namespace shardwise;
using testing::transformers::directory;

namespace {

template <class P>
void check_gptj(int size) {
  const ParallelGptConfig config = read_gptj_config(directory("gptj"));
  testing::transformers::check<P>("gptj", parallel_gpt<P, gptj_form>(config), gptj_tensors(config),
                                  size);
}

template <class P, ParallelGptForm Form>
void check_falcon(const std::string& family, int size) {
  const ParallelGptConfig config = read_falcon_config(directory(family));
  testing::transformers::check<P>(family, parallel_gpt<P, Form>(config), falcon_tensors(config),
                                  size);
}

}  // namespace

TEST_CASE("a GPT-J of transformers") {
  for (const int size : {1, 2, 3, 5, 8}) check_gptj<TensorParallel>(size);
  for (const int size : {1, 3}) check_gptj<SequenceParallel>(size);
}

TEST_CASE("Falcons of transformers") {
  constexpr ParallelGptForm one_norm{.tied = true};
  constexpr ParallelGptForm grouped{
      .two_norms = true, .attention_bias = true, .perceptron_bias = true};
  for (const int size : {1, 2, 3, 4, 7}) {
    check_falcon<TensorParallel, one_norm>("falcon", size);
    check_falcon<TensorParallel, one_norm>("falcon_heads", size);
    check_falcon<TensorParallel, grouped>("falcon_grouped", size);
  }
  for (const int size : {2, 3}) check_falcon<ContextParallel, grouped>("falcon_grouped", size);
}

TEST_CASE("ranks sum once for each block, forward and backward") {
  const auto net = parallel_gpt<TensorParallel, gptj_form>(read_gptj_config(directory("gptj")));
  const Plan plan = plan_of<Ends<TensorParallel::ids, TensorParallel::logits>, Train>(
      net, 2, testing::transformers::text);
  const Collective sum = all_reduce(2 * 11 * 16);
  CHECK(plan.forward == CollectiveList{sum, sum, sum});   // of the table, and of two blocks
  CHECK(plan.backward == CollectiveList{sum, sum, sum});  // of the logits, and of two blocks
  CHECK(plan.settle.empty());
}
