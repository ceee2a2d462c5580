// Vision transformers and tokens of images that cannot be, each said where it is written.

#include "shardwise/models/vit.hpp"

#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

using Patches = Conv2d<split::output, 1, 8, kernel(4, {.stride = 4})>;

#if CASE == 1  // expect: Consumer takes Expected features
constexpr Sequential<Patches, PlanesToTokens, ClassToken<7>> asked{};
#elif CASE == 2  // expect: Consumer takes Expected features
constexpr Sequential<Patches, PlanesToTokens, FirstRows, Linear<split::none, 9, 3>> asked{};
#elif CASE == 3  // expect: A layer is given Given sizes at construction
constexpr ClassToken<8> asked(8);
#elif CASE == 4  // expect: a size, a stride and a dilation of at least 1
const auto asked = vit<TensorParallel, VitForm{.patch = 0}>({});
#else
constexpr Sequential<Patches, PlanesToTokens, ClassToken<8>, FirstRows, Linear<split::none, 8, 3>>
    asked{};
#endif
