#pragma once
// Vision transformers.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/pre_norm_block.hpp"

namespace shardwise {

/// What the type of a vision transformer says: images are cut into patches of `patch` x `patch`
/// pixels. In training `dropped` in `of` are set to 0, of the first stream, of the weights of
/// attention, and of what each attention and perceptron adds to the stream.
struct VitForm {
  int patch = 16;             ///< rows and columns
  std::uint32_t dropped = 0;  ///< see above
  std::uint32_t of = 1;       ///< see above
};

/// The sizes of a vision transformer.
struct VitConfig {
  std::size_t channels = 0;  ///< of an image
  std::size_t side = 0;      ///< rows and columns of an image
  std::size_t patch = 0;     ///< of a patch; must be that of the type
  std::size_t features = 0;  ///< of a token; a multiple of `heads`
  std::size_t hidden = 0;    ///< features of the perceptron
  std::size_t heads = 0;     ///< of an attention
  std::size_t layers = 0;    ///< blocks
  std::size_t classes = 0;   ///< of images
  double epsilon = 1e-12;    ///< of norms

  /// Tokens of an image: its whole patches, and the class token.
  constexpr std::size_t tokens() const { return (side / patch) * (side / patch) + 1; }
};

/// A vision transformer: images [batch, channel, height, width] to logits [batch, classes]. All
/// patches go through one linear layer, behind a class token, whose row at the end gives the
/// logits. Between the blocks the stream is that of Parallel; patches are split as the first layers
/// of a block. Images are `Invariant`, and logits `Sharded<feature>` or, in ContextParallel,
/// `Invariant`.
///
///     x = x + attention(norm(x)), x = x + down(gelu(up(norm(x)))), in each block
///
/// `Blocks` is the number of blocks if the type is to have it, as stages of a pipeline need; the
/// blocks are part 6.
/// throws   argument_error if the patch of the type is not that of `config`, `heads` does not
///          divide `features`, or `layers` is not `Blocks`
/// source   Dosovitskiy et al. 2021, section 3.1
template <class Parallel = TensorParallel, VitForm Form = VitForm{}, std::size_t Blocks = dynamic>
constexpr auto vit(const VitConfig& config) {
  using Patches = Conv2d<typename Parallel::first, dynamic, dynamic,
                         kernel(Form.patch, {.stride = Form.patch})>;
  using Logits = Linear<typename Parallel::first, dynamic, dynamic>;
  if (config.patch != static_cast<std::size_t>(Form.patch)) {
    throw argument_error({"vit: the type has VitForm{.patch = ", Form.patch,
                          "}, but this model has patches of ", config.patch, " rows and columns"});
  }
  constexpr AttentionForm attention{.causal = false, .dropped = Form.dropped, .of = Form.of};
  const std::size_t wide = config.features;
  const auto block = detail::pre_norm_block<Parallel, attention, Gelu>("vit", config);
  return Sequential(Patches(config.channels, wide), PlanesToTokens{},
                    ClassToken<dynamic>(wide).initialized_by(init::narrow_normal),
                    PositionEmbedding<dynamic, dynamic>(config.tokens(), wide)
                        .initialized_by(init::narrow_normal),
                    To<typename Parallel::stream>{}, Dropout<Form.dropped, Form.of>{},
                    detail::repeated<Blocks>(config.layers, block),
                    LayerNorm<dynamic>(wide, Epsilon{config.epsilon}), FirstRows{},
                    Logits(wide, config.classes));
}

}  // namespace shardwise
