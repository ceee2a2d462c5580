// Mixtures of experts and models of the Llama family that cannot be, each said where it is written.

#include "shardwise/layers/experts.hpp"

#include "shardwise/models/llama.hpp"
#include "shardwise/models/parallelism.hpp"

using namespace shardwise;

constexpr ExpertSizes sizes{.experts = 4, .chosen = 2, .features = 8, .hidden = 6};

#if CASE == 1  // expect: chooses at least one expert, and no more than there are
constexpr Experts<split::expert, ExpertSizes{4, 5, 8, 6}> experts{};
#elif CASE == 2  // expect: all sizes in their type, or all in the object
constexpr Experts<split::expert, ExpertSizes{.experts = 4, .chosen = 2}> experts{};
#elif CASE == 3  // expect: is split by split::expert, or not
constexpr Experts<split::output, sizes> experts{};
#elif CASE == 4  // expect: only models with experts have a balancing loss
const auto model = llama<TensorParallel, LlamaForm{.balanced = true}>({});
#elif CASE == 5  // expect: two windows are those of the config
const auto model = llama<TensorParallel, LlamaForm{.window = 4, .two_windows = true}>({});
#else
constexpr Experts<split::expert, sizes> experts{};
#endif
