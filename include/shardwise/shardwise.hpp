#pragma once
// The portable parts, in the order in which they build on each other. Backends and communicators
// that need a library have headers of their own: backend/onednn/onednn.hpp, comm/mpi_ranks.hpp.

#include "shardwise/version.hpp"

/// All names of the library. What stands in namespaces called `detail` is its own affair, and may
/// change without notice.
namespace shardwise {}

// What one rank holds
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"

// How a tensor lies over ranks
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/layout/token_rows.hpp"
#include "shardwise/layout/view.hpp"

// Who talks, and who computes
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/comm/timeout.hpp"

// From layout to layout
#include "shardwise/redistribute/mesh.hpp"
#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/redistribute/run.hpp"

// Layers
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/average_pool.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/bias.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/expert_split.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/prelu.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/scale_channels.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/softmax.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/layers/weight_and_bias.hpp"

// Layers put together
#include "shardwise/model/composition.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/recompute.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/model/tied.hpp"

// Whole models
#include "shardwise/models/bert.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/last_logits.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_forms.hpp"
#include "shardwise/models/parallel_gpt.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/vit.hpp"

// Models that run, and what is known of them before
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/predict.hpp"
#include "shardwise/model/queries.hpp"

// Models that people look at
#include "shardwise/model/describe.hpp"
#include "shardwise/model/describe_graph.hpp"

// Training
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adam.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/binary_cross_entropy.hpp"
#include "shardwise/train/class_weights.hpp"
#include "shardwise/train/clip.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "shardwise/train/gradient_check.hpp"
#include "shardwise/train/held_alike.hpp"
#include "shardwise/train/huber.hpp"
#include "shardwise/train/lion.hpp"
#include "shardwise/train/loss_of_elements.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/losses.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/negative_log_likelihood.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/recorded_step.hpp"
#include "shardwise/train/rms_prop.hpp"
#include "shardwise/train/running_mean.hpp"
#include "shardwise/train/schedules.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

// What a model did, and when; observe/write_trace.hpp makes a file of it
#include "shardwise/observe/tracer.hpp"

// Batches of a program's own rows
#include "shardwise/data/row_batch.hpp"
#include "shardwise/data/sampler.hpp"
