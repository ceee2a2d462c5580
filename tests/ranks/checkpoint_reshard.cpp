// Saved at P ranks and loaded at Q, bit by bit, for P and Q from 1 to 8. What a file has to hold is
// said by a formula, and who owns which element by the oracle.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/file_tensors.hpp"
#include "support/messages.hpp"
#include "support/oracle.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::bytes_of;
using testing::check_mentions;
using testing::message_of;
using testing::numbers_of;
using testing::TemporaryFolder;

namespace {

/// Keeps a number for each feature of its own, and one for all.
struct Remembers : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  struct State {
    Tensor<float, Sharded<Axis::feature>> split;
    Tensor<double, Invariant> whole;

    template <class F>
    void visit_buffers(F&& f) {
      f("split", split.view());
      f("whole", whole.view());
    }
  };
  template <class Frame>
  State make_state(Frame& frame) const {
    return {Tensor<float, Sharded<Axis::feature>>(Shape{frame.bound_input().back()}, frame.place()),
            Tensor<double, Invariant>(Shape{{Axis::feature, 1}}, frame.place())};
  }

  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    std::copy_n(x.data(), x.size(), y.data());
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

/// 608 features over 3 ranks, 10 over 4, 3 over more, features in grains, and whole parameters.
struct Uneven : Sequential<RowParallelLinear<6, 10>, Relu, ColumnParallelLinear<10, 608>, Remembers,
                           RowParallelLinear<608, 3>, ColumnParallelLinear<3, 3>, Relu,
                           Linear<split::none, 3, 5>> {};

const Shape in{{Axis::batch, dynamic}, {Axis::feature, 2, 3}};  // two units of three elements

const RunPosition position{.sampler = {5, 2, 100}, .loss_scale = {0.125, 7, 2}};

template <class P>
using ModelOf = Model<Uneven, Context<P, Reference, ThreadCommunicator>>;

/// The bits of element `i` of the tensor `name`: any bits, NaNs among them.
template <class T>
T element(const std::string& name, std::size_t i) {
  std::uint64_t bits = 0x9e3779b97f4a7c15U * (i + 1);
  for (const char c : name) bits = (bits ^ static_cast<unsigned char>(c)) * 0xbf58476d1ce4e5b9U;
  bits ^= bits >> 31;
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

/// Calls f(global element, local element) for each element that this rank holds.
template <class V, class F>
void for_each_owned(const V& view, F&& f) {
  using L = typename V::layout;
  std::size_t local = 0;
  std::vector<std::size_t> owner(view.global().elements());
  if constexpr (ShardedLayout<L>) {
    owner = testing::owners(view.global(), L::axis, view.place().size);
  } else {
    owner.assign(owner.size(), static_cast<std::size_t>(view.place().rank));
  }
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] == static_cast<std::size_t>(view.place().rank)) f(i, local++);
  }
  CHECK(local == view.size());
}

/// Calls f(stored number, what it has to be) for all that a checkpoint holds on this rank.
template <class M, class O, class F>
void for_each_number(M& model, O& optimizer, F&& f) {
  model.visit_parameters([&](auto& parameter) {
    using T = typename M::parameter_dtype;
    auto* moments = optimizer.moments_of(parameter.slot);
    using A = std::remove_pointer_t<decltype(moments)>;
    for_each_owned(parameter.value, [&](std::size_t global, std::size_t local) {
      f(parameter.value[local], element<T>(parameter.name, global));
      for (std::size_t k = 0; k < 2; ++k) {
        f(moments[2 * local + k],
          element<A>(parameter.name + ".moment" + std::to_string(k), global));
      }
    });
  });
  model.visit_buffers([&](auto& buffer) {
    for_each_owned(buffer.value, [&](std::size_t global, std::size_t local) {
      using T = typename decltype(buffer.value)::value_type;
      f(buffer.value[local], element<T>(buffer.name, global));
    });
  });
}

template <class P>
void save(int size, const std::filesystem::path& path, const SaveOptions& options = {}) {
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOf<P> model(Uneven{}, ranks, Seed{11}, in);
    Optimizer optimizer(model, AdamW{.learning_rate = 0.3});
    for_each_number(model, optimizer, [](auto& stored, auto wanted) { stored = wanted; });
    model.set_step(17);
    optimizer.set_steps(16);
    save_checkpoint(path, model, optimizer, position, options);
  });
}

template <class P>
void check_loads(int size, const std::filesystem::path& path) {
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOf<P> model(Uneven{}, ranks, Seed{12}, in);
    Optimizer optimizer(model, AdamW{});
    const LoadedCheckpoint loaded = load_checkpoint(path, model, optimizer);
    CHECK(loaded.position.sampler == position.sampler);
    CHECK(loaded.position.loss_scale == position.loss_scale);
    CHECK(model.step() == 17);
    CHECK(model.run().seed.value == 11);
    CHECK(optimizer.steps() == 16);
    CHECK(optimizer.rule().learning_rate == 0.3);
    bool all_equal = true;
    for_each_number(model, optimizer, [&](auto& stored, auto wanted) {
      all_equal = all_equal && std::memcmp(&stored, &wanted, sizeof stored) == 0;
    });
    CHECK(all_equal);
  });
}

/// The data of the file by the formula, tensor by tensor.
template <class T>
bool holds(const TensorFiles& files, const std::string& file, const std::string& name,
           const std::string& key) {
  const detail::TensorInfo& info = files.tensors().at(name).info;
  const std::size_t begin = files.begin_of(files.tensors().at(name));
  for (std::size_t i = 0; i < (info.end - info.begin) / sizeof(T); ++i) {
    const T wanted = element<T>(key, i);
    if (std::memcmp(file.data() + begin + i * sizeof(T), &wanted, sizeof(T)) != 0) return false;
  }
  return info.dtype == detail::file_dtype_v<T>;
}

/// Who maps the file into memory finds every number where its type may lie.
void check_alignment(const TensorFiles& files) {
  for (const auto& tensor : files.tensors()) {
    CAPTURE(tensor.first);
    const TensorFiles::Place& place = tensor.second;
    CHECK(files.begin_of(place) % (place.info.dtype.bits / 8) == 0);
  }
}

}  // namespace

TEST_CASE("saved at P ranks, loaded at Q") {
  const TemporaryFolder folder("shardwise_reshard");
  std::string first;
  for (int p = 1; p <= 8; ++p) {
    CAPTURE(p);
    const auto path = folder.path() / ("at_" + std::to_string(p) + ".safetensors");
    save<float>(p, path);
    const std::string bytes = bytes_of(path);
    if (p == 1) first = bytes;
    CHECK(bytes == first);  // the number of ranks leaves no trace
    for (int q = 1; q <= 8; ++q) check_loads<float>(q, path);
  }
  const auto path = folder.path() / "at_3.safetensors";
  const TensorFiles files(path);
  CHECK(files.tensors().size() == 3 * 10 + 2);
  CHECK(files.tensors().at("2.weight").info.shape == std::vector<std::uint64_t>{608, 10});
  CHECK(files.tensors().at("0.weight").info.shape == std::vector<std::uint64_t>{10, 6});
  CHECK(holds<float>(files, first, "3.split", "3.split"));
  CHECK(holds<double>(files, first, "3.whole", "3.whole"));
  for (const std::string name : {"0.weight", "2.weight", "4.weight", "5.bias", "7.weight"}) {
    CAPTURE(name);
    CHECK(holds<float>(files, first, name, name));
    CHECK(holds<float>(files, first, "optimizer." + name + ".moment1", name + ".moment1"));
  }
}

TEST_CASE("parameters in one dtype, moments in another, and files of bounded size") {
  const TemporaryFolder folder("shardwise_reshard_files");
  const auto path = folder.path() / "model.safetensors";
  save<bf16>(3, path, {.max_shard_bytes = 30'000});
  const auto names = folder.names();
  CHECK(names.size() > 3);
  for (const std::string& name : names) {
    if (name.ends_with(".json")) continue;
    CAPTURE(name);
    const auto bytes = std::filesystem::file_size(folder.path() / name);
    CHECK(bytes < 30'000 + 4096);
  }
  for (const int q : {1, 2, 5, 8}) check_loads<bf16>(q, path);
  // 8617 parameters of 2 bytes with two moments of 4, and Remembers: 608 floats and one double.
  CHECK(bytes_of(path.string() + ".index.json").find("\"total_size\":88610}") != std::string::npos);
  const TensorFiles files(path);
  check_alignment(files);
  CHECK(files.tensors().at("2.weight").info.dtype == detail::file_dtype_v<bf16>);
  CHECK(files.tensors().at("optimizer.2.weight.moment0").info.dtype == detail::file_dtype_v<float>);

  // Again and again under the same name: new files, and no old ones left.
  save<bf16>(2, path, {.max_shard_bytes = 30'000});
  CHECK(folder.names() != names);
  CHECK(folder.names().size() == names.size());
  check_loads<bf16>(4, path);
  save<bf16>(5, path, {.max_shard_bytes = 30'000});
  CHECK(folder.names() == names);
  save<bf16>(2, path);
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  check_alignment(TensorFiles(path));
  check_loads<bf16>(3, path);
  save<bf16>(2, path, {.max_shard_bytes = 1});  // a tensor is never split
  CHECK(folder.names().size() == 33);
  check_loads<bf16>(3, path);
}

TEST_CASE("a caller's own tensors and text are beside the model's") {
  const TemporaryFolder folder("shardwise_own");
  const auto path = folder.path() / "model.safetensors";
  const Shape rows{{Axis::batch, 7}, {Axis::feature, 2}};
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    ModelOf<float> model(Uneven{}, ranks, Seed{1}, in);
    // begin: save_own
    std::vector<double> mean{0.5, -1.25}, deviation{2, 1e-3};
    const Shape features{{Axis::feature, 2}};
    const View<double, Invariant> means(mean, features, place_of(ranks));
    const View<double, Invariant> deviations(deviation, features, place_of(ranks));
    save_weights(path, model,
                 {.metadata = {{"unit", "kelvin"}},
                  .own = {part_of("data.mean", means), part_of("data.deviation", deviations)}});
    // end: save_own
    Tensor<std::int64_t, Sharded<Axis::batch>> split(rows, place_of(ranks));
    for_each_owned(split.view(), [&](std::size_t global, std::size_t local) {
      split[local] = static_cast<std::int64_t>(global) << 40;
    });
    Optimizer optimizer(model, AdamW{});
    save_checkpoint(folder.path() / "run.safetensors", model, optimizer, {},
                    {.own = {part_of("data.rows", split.view())}});
    const auto text = message_of<argument_error>(
        [&] { save_weights(path, model, {.own = {part_of("0.weight", means)}}); });
    check_mentions(text, {"'0.weight'"});
    check_mentions(message_of<argument_error>([&] { part_of("data.*", means); }), {"add_parts"});
    check_mentions(
        message_of<argument_error>([&] { part_of(FileTensor{"data"}.in_pieces(1, 2), means); }),
        {"add_parts"});
  });
  CHECK(numbers_of<double>(TensorFiles(path), "data.mean") == std::vector{0.5, -1.25});
  CHECK(numbers_of<std::int64_t>(TensorFiles(folder.path() / "run.safetensors"), "data.rows")[13] ==
        13 * 0x1p40);
  for (const int size : {1, 2, 5, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      ModelOf<float> model(Uneven{}, ranks, Seed{2}, in);
      // begin: load_own
      Tensor<double, Invariant> mean({{Axis::feature, 2}}, place_of(ranks));
      Tensor<double, Invariant> deviation(mean.global(), place_of(ranks));
      const auto metadata = load_weights(path, model,
                                         {.own = {part_of("data.mean", mean.view()),
                                                  part_of("data.deviation", deviation.view())}});
      // end: load_own
      CHECK(metadata.at("unit") == "kelvin");
      CHECK(mean[1] == -1.25);
      CHECK(deviation[1] == 1e-3);
      const auto text = message_of<data_error>([&] { load_weights(path, model); });
      check_mentions(text, {"unexpected: 'data.deviation', 'data.mean'"});

      Tensor<std::int64_t, Sharded<Axis::batch>> split(rows, place_of(ranks));
      Optimizer optimizer(model, AdamW{});
      load_checkpoint(folder.path() / "run.safetensors", model, optimizer,
                      {.own = {part_of("data.rows", split.view())}});
      for_each_owned(split.view(), [&](std::size_t global, std::size_t local) {
        CHECK(split[local] == static_cast<std::int64_t>(global) << 40);
      });
      Tensor<float, Invariant> wrong(rows, place_of(ranks));
      for (const std::span<float> numbers :
           {model.values(), optimizer.moments(), wrong.view().span()})
        std::ranges::fill(numbers, 7.0F);
      const auto other = message_of<data_error>([&] {
        load_checkpoint(folder.path() / "run.safetensors", model, optimizer,
                        {.convert = true, .own = {part_of("data.rows", wrong.view())}});
      });
      check_mentions(other, {"'data.rows' is I64 in the file and F32 here"});
      for (const std::span<float> numbers :
           {model.values(), optimizer.moments(), wrong.view().span()})
        CHECK(std::ranges::count(numbers, 7.0F) == std::ssize(numbers));  // nothing has changed
    });
  }
}
