// After the second training step nothing is allocated, on any rank. Counts every operator new of
// the thread, which is why this is a program of its own.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "support/ranks.hpp"

using namespace shardwise;
using testing::allocated_after_second;
using testing::allocations;

namespace {

struct Block : Sequential<LayerNorm<9>, ColumnParallelLinear<9, 21>, Gelu, RmsNorm<21>,
                          RowParallelLinear<21, 9>> {};
struct Stream : Sequential<Linear<split::none, 9, 9>, Residual<Block>, Dropout<1, 4>,
                           Residual<Sequential<Block, Dropout<1, 10>>>> {};
struct Classifier
    : Sequential<RowParallelLinear<9, 17>, Relu, Dropout<1, 4>, ColumnParallelLinear<17, 10>> {};

template <class T, Communicator C>
void check_classifier(C& ranks) {
  using E = Ends<Invariant, Sharded<Axis::feature>>;
  Model<Classifier, Context<T, Reference, C>, E> model(ranks, Seed{1});
  Tensor<T, Invariant> x(Shape{{Axis::batch, 6}, {Axis::feature, 9}}, place_of(ranks));
  Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 6}}, place_of(ranks));
  Optimizer optimizer(model, AdamW{});
  CHECK(allocated_after_second([&] {
          train_step(model, x.view(), labels.view(), CrossEntropy{0.1}, optimizer);
        }) == 0);
  CHECK(allocated_after_second([&] { count_correct(model, x.view(), labels.view()); }) == 0);
}

template <class T, Communicator C>
void check_stream(C& ranks) {
  using Sequence = Sharded<Axis::sequence>;
  Model<Stream, Context<T, Reference, C>, Ends<Sequence, Sequence>> model(
      Stream{}, ranks, Seed{1},
      Shape{{Axis::batch, dynamic}, {Axis::sequence, 7}, {Axis::feature, 9}});
  const Shape shape{{Axis::batch, 2}, {Axis::sequence, 7}, {Axis::feature, 9}};
  Tensor<T, Sequence> x(shape, place_of(ranks));
  Tensor<T, Invariant> target(shape, place_of(ranks));
  Optimizer optimizer(model, Sgd{.learning_rate = 0.1, .momentum = 0.9});
  CHECK(allocated_after_second([&] {
          shardwise::Step step(optimizer, 4);
          for (int i = 0; i < 2; ++i) step.add(x.view(), target.view(), MeanSquaredError{});
          step.finish();
        }) == 0);
}

/// To look up the last of many parameters costs as much as to look up the first: the list of all
/// names is made for the error only.
void check_lookups() {
  SingleRank alone;
  Model<Repeat<20, Linear<split::none, 1, 1, false>>, Context<float, Reference, SingleRank>> model(
      alone, Seed{1});
  const auto allocated_by = [&](const char* name) {
    const std::size_t before = allocations;
    model.gather(name);
    return allocations - before;
  };
  CHECK(allocated_by("0.weight") == allocated_by("19.weight"));
}

/// Experts whose rows change from step to step.
template <class T, Communicator C>
void check_experts(C& ranks) {
  using Mixture = Experts<split::expert, ExpertSizes{5, 2, 3, 4}, true>;
  constexpr Shape shape{{Axis::batch, 60}, {Axis::feature, 3}};
  Model<Mixture, Context<T, Reference, C>, Ends<Invariant, Invariant>> model(Mixture{}, ranks,
                                                                             Seed{1}, shape);
  Tensor<T, Invariant> x(shape, place_of(ranks));
  Optimizer optimizer(model, AdamW{});
  std::size_t step = 0;
  CHECK(allocated_after_second([&] {
          ++step;
          for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<T>(static_cast<float>(i * i * step % 13) - 6.0F);
          train_step(model, x.view(), x.view(), MeanSquaredError{}, optimizer);
        }) == 0);
}

template <class T, Communicator C>
void check_gpt(C& ranks) {
  const Shape text{{Axis::batch, 2}, {Axis::sequence, 7}};
  const Gpt2Config config{
      .vocabulary = 13, .positions = 7, .features = 12, .hidden = 24, .heads = 3, .layers = 2};
  using Net = decltype(gpt2<SequenceParallel, Gpt2Form{1, 10}>(config));
  Model<Net, Context<T, Reference, C>, Ends<SequenceParallel::ids, SequenceParallel::logits>> model(
      gpt2<SequenceParallel, Gpt2Form{1, 10}>(config), ranks, Seed{1}, text);
  const Tensor<std::int32_t, Invariant> ids(text, place_of(ranks)), labels(text, place_of(ranks));
  const std::vector<Segment> documents{{0, 4}, {4, 3}, {7, 7}};
  Optimizer optimizer(model, AdamW{.decay = Decay::chosen});
  CHECK(allocated_after_second([&] {
          train_step(model, ids.view(), labels.view(), CrossEntropy{}, optimizer,
                     {.clip_norm = 1.0}, documents);
        }) == 0);
}

struct MadeAtOnce {
  void progress() {}
  void finish() {}
};

/// Ranks that make at once what they begin, and allocate nothing for it.
class AtOnce : public BeginningCollectives<AtOnce> {
 public:
  explicit AtOnce(ThreadCommunicator inner) : inner_(std::move(inner)) {}
  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  AtOnce split(int color, int key) { return AtOnce(inner_.split(color, key)); }

  template <class Move>
  void move(const Call&, const Move& move) {
    move.on(inner_);
  }
  template <class Move>
  MadeAtOnce begin(const Call&, const Move& move) {
    move.on(inner_);
    return {};
  }

 private:
  ThreadCommunicator inner_;
};

/// On a mesh, where each rank along `data` keeps a share of the moments, and perhaps of gradients
/// and parameters; without traffic beside the layers and with it.
void check_share(MeshRanks<AtOnce>& ranks, Keep keep, bool meanwhile) {
  using M = Model<Classifier, Context<bf16, Reference, MeshRanks<AtOnce>>>;
  M model(ranks, Seed{1},
          {.keep = cuts_gradients(keep) ? keep : Keep::whole,
           .bucket_bytes = 64,
           .sums_meanwhile = meanwhile,
           .layers_ahead = meanwhile && cuts_parameters(keep) ? 1U : 0U});
  CHECK((model.run().traffic != nullptr) == meanwhile);
  const Shape rows{{Axis::batch, 6}};
  Tensor<bf16, M::input_layout> x({rows[0], {Axis::feature, 9}}, ranks.place());
  Tensor<std::int32_t, M::input_layout> labels(rows, ranks.place());
  Optimizer optimizer(model, AdamW{}, keep);
  CHECK(allocated_after_second([&] {
          train_step(model, x.view(), labels.view(), CrossEntropy{0.1}, optimizer,
                     {.clip_norm = 1.0});
        }) == 0);
}

}  // namespace

TEST_CASE("the counter counts") {
  const std::size_t before = allocations;
  ::operator delete(::operator new(4));  // a call of its own, which no compiler may leave out
  ::operator delete (::operator new (64, std::align_val_t{64}, std::nothrow), std::align_val_t{64});
  CHECK(allocations == before + 2);
}

TEST_CASE("a parameter is looked up without a list of all names") { check_lookups(); }

TEST_CASE("nothing is allocated after the second step") {
  SingleRank alone;
  check_classifier<float>(alone);
  check_stream<float>(alone);
  check_gpt<float>(alone);
  for (const int size : testing::rank_counts({1, 2, 4})) {
    testing::run_on_ranks(size, [](testing::Ranks& ranks) {
      check_classifier<float>(ranks);
      check_classifier<bf16>(ranks);
      check_stream<float>(ranks);
      check_experts<float>(ranks);
      check_gpt<bf16>(ranks);
    });
  }
  for (const Keep keep :
       {Keep::whole, Keep::state_over_data, Keep::gradients_over_data, Keep::all_over_data})
    for (const bool meanwhile : {false, true})
      run_ranks(4, [&](ThreadCommunicator& world) {
        MeshRanks ranks(AtOnce(world), {.data = 2, .tensor = 2});
        check_share(ranks, keep, meanwhile);
      });
}
